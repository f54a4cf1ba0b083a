"""`pullstream redrive`: move the messages of a dead-letter subscription back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack

import click

from pullstream.client import SubscriberClient
from pullstream.message import Message
from pullstream.publisher import PublisherClient, PublisherOptions, PublishFuture
from pullstream_protocol import dead_letters, names
from pullstream_protocol.errors import InvalidArgument, NotFound, PullstreamError
from pullstream_protocol.filter import Filter, compile_filter
from pullstream_protocol.printable import printable

from . import completion
from .context import CliContext, pass_session
from .groups import command
from .output import Output
from .parameters import Seconds

# Messages that are fetched and moved at a time.
_GROUP = 1000


@command("redrive")
@click.argument("subscription", shell_complete=completion.subscriptions)
@click.option(
    "--to",
    "target",
    metavar="TOPIC",
    help="Topic for all messages. Default: the topic that each message came from.",
)
@click.option(
    "--filter",
    "filter_text",
    default="",
    metavar="EXPRESSION",
    help="Move only messages whose attributes match, in Pub/Sub's filter language.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Move at most this many messages.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the messages and their targets, and return them at once. A server other than "
    "pullstream's broker counts a delivery attempt.",
)
@click.option(
    "--timeout",
    type=Seconds(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="End after this many seconds without another message.",
)
@pass_session
def redrive(
    session: CliContext,
    subscription: str,
    target: str | None,
    filter_text: str,
    limit: int | None,
    dry_run: bool,
    timeout: float,
) -> None:
    """Move the messages of a dead-letter SUBSCRIPTION back to where they came from.

    Each message is published again without the attributes of dead-lettering, and acknowledged when
    the server has confirmed the copy. Every subscription of the topic receives the copy. Messages
    that do not match the filter, or cannot be moved, stay in the subscription.
    """
    try:
        matches = compile_filter(filter_text) if filter_text else lambda attributes: True
    except InvalidArgument as error:
        raise click.UsageError(f"--filter: {error.message}") from error
    topic = session.full_name("topics", target) if target else None
    mover = _Mover(session, topic, matches, dry_run=dry_run)
    mover.run(session.full_name("subscriptions", subscription), limit, timeout)


class _Mover:
    """One run of the command, with its counts."""

    def __init__(
        self, session: CliContext, topic: str | None, matches: Filter, *, dry_run: bool
    ) -> None:
        self._output: Output = session.output
        self._client: SubscriberClient = session.subscriber()
        self._publisher: PublisherClient = session.publisher(
            PublisherOptions(enable_message_ordering=True)
        )
        self._topic = topic
        self._matches = matches
        self._dry_run = dry_run
        # By full name of a subscription: its topic, or None if there is none any more.
        self._topics: dict[str, str | None] = {}
        self._counts: Counter[str] = Counter()
        self._first_error: BaseException | None = None

    def run(self, subscription: str, limit: int | None, timeout: float) -> None:
        with ExitStack() as stack:
            while True:
                left = _GROUP if limit is None else limit - self._counts["moved"]
                if left <= 0:
                    break
                group = self._client.fetch(
                    subscription, min(left, _GROUP), timeout, missing_ok=True
                )
                if not group:
                    break
                # The other messages stay leased until the end, so that they are not fetched again.
                self._move(stack.enter_context(group))
                self._report()
        if not self._counts:
            self._output.remark("no messages")
        if self._counts["failed"] or self._counts["without a source"]:
            raise click.ClickException(self._problem())

    def _move(self, messages: list[Message]) -> None:
        published: list[tuple[Message, PublishFuture]] = []
        for message in messages:
            if not self._matches(message.attributes):
                self._counts["not matching"] += 1
                continue
            topic = self._topic or self._source_topic(message.attributes)
            if topic is None:
                self._counts["without a source"] += 1
            elif self._dry_run:
                self._counts["moved"] += 1
                self._print_move(message, topic)
            else:
                try:
                    future = self._publisher.publish(topic, dead_letters.original_of(message))
                    published.append((message, future))
                except ValueError as refusal:
                    # Another server has accepted what Pub/Sub refuses.
                    self._fail(refusal)
        for message, future in published:
            error = future.exception()
            if error is None:
                message.ack()
                self._counts["moved"] += 1
            else:
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._counts["failed"] += 1
        self._first_error = self._first_error or error

    def _source_topic(self, attributes: Mapping[str, str]) -> str | None:
        """Return the topic of the subscription that gave the message up, if it still exists."""
        project = attributes.get(dead_letters.SUBSCRIPTION_PROJECT)
        short = attributes.get(dead_letters.SUBSCRIPTION)
        if not project or not short:
            return None
        subscription = names.subscription_path(project, short)
        if subscription not in self._topics:
            try:
                topic = self._client.get_subscription(subscription=subscription).topic
            except NotFound:
                topic = ""
            # The topic of a detached subscription is "_deleted-topic_".
            self._topics[subscription] = topic if topic.startswith("projects/") else None
        return self._topics[subscription]

    def _print_move(self, message: Message, topic: str) -> None:
        reason = message.attributes.get(dead_letters.REASON, "")
        record = {"messageId": message.message_id, "topic": topic, "reason": reason}
        text = f"{message.message_id} to {topic}" + (f": {printable(reason)}" if reason else "")
        self._output.result(record, text)

    def _report(self) -> None:
        """Print the present counts, after each group."""
        verb = "would move" if self._dry_run else "moved"
        others = "".join(
            f", {count:,} {what}"
            for what, count in sorted(self._counts.items())
            if what != "moved" and count
        )
        self._output.flush()
        self._output.remark(f"{verb} {self._counts['moved']:,}{others}")

    def _problem(self) -> str:
        if self._counts["failed"]:
            error = self._first_error
            text = str(error) if isinstance(error, PullstreamError) else repr(error)
            return f"{self._counts['failed']:,} messages were not moved: {text}"
        return (
            f"{self._counts['without a source']:,} messages name no subscription that exists; "
            "give the topic with --to"
        )
