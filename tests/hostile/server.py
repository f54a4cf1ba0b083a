"""A server of streaming pulls, pulls and publishes whose answers are wrong in every form.

It never lies about what took effect: a request that it answers with OK took effect, and an ack id
that it names as refused did not. Everything else about an answer may be wrong, missing, late,
repeated or damaged. The forms of partial refusals are those of Google's service, of Google's
emulator and of our broker, and some that no server sends.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

from pullstream_protocol.errors import STATUS_DETAILS_KEY
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.rpcs import BY_METHOD, Kind
from tests.event_log import Recorder

from .truth import Answer, Backlog, Delivery, Log

GARBAGE = b"\xff\xff\xff\xff"
TRANSIENT = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.CANCELLED,
)
# The transient codes that leave open whether a call was carried out. The others deny it.
UNCLEAR = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.CANCELLED,
)
PERMANENT = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.UNAUTHENTICATED,
)
NOT_REPEATED = "TRANSIENT_FAILURE_INVALID_ACK_ID"
# As many ids can be named in 8 KiB of metadata.
MOST_NAMED = 100
# Seconds. Longer than the time limit of every acknowledgement.
LATE = 21.0
# The publish time of the message 0 of each key, in seconds since the epoch.
FIRST_PUBLISH_TIME = 1_700_000_000
# The messages in a response, and the pause after it.
RESPONSE = 20
PAUSE = 0.25


class HostileServer:
    """One server in this process. `calm` ends all faults, except that streams stay as they are.

    Args:
        dice: The source of randomness. Calls use it from several threads.
        recorder: Gets the truth.
        plant: The name of a planted fault, or "".
    """

    def __init__(self, dice: random.Random, recorder: Recorder, plant: str = "") -> None:
        self.backlogs: dict[str, Backlog] = {}
        self.log = Log(recorder)
        self.is_calm = False
        # The number of times that each misbehaviour was used.
        self.done: Counter[str] = Counter()
        self._plant = plant
        self._dice = dice
        self._ending = threading.Event()
        self._server = grpc.server(
            ThreadPoolExecutor(300), options=[("grpc.max_receive_message_length", -1)]
        )
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._calls: dict[str, Callable[[Any, grpc.ServicerContext], bytes]] = {
            "Acknowledge": self._acknowledge,
            "ModifyAckDeadline": self._modify,
            "Publish": self._publish,
            "Pull": self._pull,
        }

    def start(self) -> None:
        self._server.start()

    def calm(self) -> None:
        """End all faults."""
        self.is_calm = True
        for backlog in self.backlogs.values():
            backlog.is_ending = True

    def stop(self) -> None:
        self._ending.set()
        self._server.stop(1.0).wait()

    def call(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer a unary call."""
        handle = self._calls.get(method)
        if handle is None:
            return b""
        return handle(BY_METHOD[method].request.FromString(request), context)

    # ---- choices -------------------------------------------------------------------------------

    def _choose(self, subject: str, **weights: float) -> str:
        """Choose a misbehaviour, or "well"."""
        if self.is_calm:
            return "well"
        names = ["well", *weights]
        chances = [max(0.0, 1 - sum(weights.values())), *weights.values()]
        (name,) = self._dice.choices(names, chances)
        if name != "well":
            self.done[f"{subject}: {name}"] += 1
        return name

    def _wait(self, context: grpc.ServicerContext, seconds: float) -> None:
        """Wait, also after the client's time limit has passed."""
        self._ending.wait(seconds)

    def _abandon(self, context: grpc.ServicerContext) -> None:
        """Give no answer before the client drops the call."""
        dropped = threading.Event()
        if context.add_callback(dropped.set):
            dropped.wait(60.0)
        context.abort(grpc.StatusCode.CANCELLED, "the server gives no answer")

    def _fail(
        self, context: grpc.ServicerContext, code: grpc.StatusCode, trailer: bytes | None = None
    ) -> None:
        if trailer is not None:
            context.set_trailing_metadata(((STATUS_DETAILS_KEY, trailer),))
        context.abort(code, "The hostile server wants it so.")

    def _transient(self) -> grpc.StatusCode:
        return self._dice.choice(TRANSIENT)

    # ---- acknowledgements and deadlines --------------------------------------------------------

    def _acknowledge(
        self, request: pubsub.AcknowledgeRequest, context: grpc.ServicerContext
    ) -> bytes:
        return self._settle("ack", request.subscription, list(request.ack_ids), 0, context)

    def _modify(
        self, request: pubsub.ModifyAckDeadlineRequest, context: grpc.ServicerContext
    ) -> bytes:
        seconds = request.ack_deadline_seconds
        kind = "extend" if seconds else "nack"
        return self._settle(kind, request.subscription, list(request.ack_ids), seconds, context)

    def _settle(
        self,
        kind: str,
        subscription: str,
        ack_ids: list[str],
        seconds: int,
        context: grpc.ServicerContext,
    ) -> bytes:
        backlog = self.backlogs[subscription]
        backlog.arrived(kind, ack_ids)
        if self._plant == "false-success" and kind == "ack" and self._dice.random() < 0.2:
            # The planted fault: OK, and nothing happens.
            return b""
        what = self._choose(
            kind,
            lost=0.06,
            refused=0.06,
            late=0.003,
            never=0.003,
            garbage=0.03,
            transient=0.04,
            half=0.05,
            strangers=0.03,
            trailer=0.03,
            permanent=0.005 if backlog.may_refuse(kind, ack_ids) else 0.0,
            duplicated=0.03,
        )
        answers = backlog.look(kind, ack_ids)
        right = [ack_id for ack_id, answer in answers.items() if answer is Answer.OK]
        if what == "never":
            self._abandon(context)
        elif what == "refused":
            self._fail(context, self._transient())
        elif what == "permanent":
            backlog.refused(kind, ack_ids)
            self._fail(context, self._dice.choice(PERMANENT))
        elif what == "trailer":
            # Details that cannot be read, and no effect.
            self._fail(context, self._transient(), self._dice.randbytes(30))
        elif what == "strangers":
            # Names ids that were never sent, and no effect.
            names = {f"stranger-{number}": Answer.INVALID.value for number in range(3)}
            self._fail(context, self._transient(), _details(self._transient(), names))
        elif what == "transient":
            # Everything took effect, and is named as to be repeated.
            backlog.apply(kind, right, seconds)
            self._answer_by_id(kind, backlog, answers, dict.fromkeys(right, NOT_REPEATED), context)
        elif what == "half":
            # Every other id takes effect. The others are to be repeated.
            backlog.apply(kind, right[::2], seconds)
            self._answer_by_id(
                kind, backlog, answers, dict.fromkeys(right[1::2], NOT_REPEATED), context
            )
        elif len(right) < len(ack_ids):
            self._refuse_some(kind, backlog, answers, seconds, context)
        else:
            if what == "late":
                self._wait(context, LATE)
            backlog.apply(kind, ack_ids, seconds)
            if what == "duplicated":
                backlog.apply(kind, ack_ids, seconds)
            if what == "lost":
                self._fail(context, self._dice.choice(UNCLEAR))
            if what == "garbage":
                return GARBAGE
        return b""

    def _answer_by_id(
        self,
        kind: str,
        backlog: Backlog,
        answers: dict[str, Answer],
        transient: dict[str, str],
        context: grpc.ServicerContext,
        code: grpc.StatusCode | None = None,
    ) -> None:
        """Name the refused ids and those that are to be repeated, and a stranger."""
        refused = {i: a.value for i, a in answers.items() if a is not Answer.OK}
        if len(refused) + len(transient) > MOST_NAMED or not refused.keys() | transient.keys():
            # Nothing can be named: the client learns no more than the status.
            self._fail(context, code or grpc.StatusCode.INTERNAL)
        backlog.refused(kind, (i for i, a in answers.items() if a is Answer.INVALID))
        names = {**refused, **transient}
        if self._dice.random() < 0.2:
            names["stranger"] = Answer.INVALID.value
        if code is None:
            code = self._dice.choice((*TRANSIENT[:5], *PERMANENT[2:4]))
        trailers = [
            (STATUS_DETAILS_KEY, _details(code, part)) for part in _split(names, self._dice)
        ]
        context.set_trailing_metadata(tuple(trailers))
        context.abort(code, "Some acknowledgement ids are refused.")

    def _refuse_some(
        self,
        kind: str,
        backlog: Backlog,
        answers: dict[str, Answer],
        seconds: int,
        context: grpc.ServicerContext,
    ) -> None:
        """Answer a request with valid and invalid ids, in one of the forms that servers use."""
        right = [ack_id for ack_id, answer in answers.items() if answer is Answer.OK]
        forms = ["all named", "only refused named", "refused named, no effect", "none named"]
        form = forms[0] if self.is_calm else self._dice.choice(forms)
        self.done[f"{kind}: {form}"] += 1
        repeated = dict.fromkeys(right, NOT_REPEATED)
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        if form == "all named":
            # A repeated nack would be refused, so a nack has no effect.
            if kind != "nack":
                backlog.apply(kind, right, seconds)
            self._answer_by_id(kind, backlog, answers, repeated, context)
        elif form == "only refused named":
            backlog.apply(kind, right, seconds)
            code = self._dice.choice((invalid, grpc.StatusCode.INTERNAL))
            self._answer_by_id(kind, backlog, answers, {}, context, code)
        elif form == "refused named, no effect":
            self._answer_by_id(kind, backlog, answers, {}, context, invalid)
        else:
            if len(answers) == 1:
                backlog.refused(kind, answers)
            self._fail(context, invalid)

    # ---- publishing ----------------------------------------------------------------------------

    def _publish(self, request: pubsub.PublishRequest, context: grpc.ServicerContext) -> bytes:
        data = [message.data.decode() for message in request.messages]
        self.log.arrived(data)
        what = self._choose(
            "publish",
            lost=0.06,
            refused=0.06,
            late=0.01,
            never=0.01,
            garbage=0.03,
            permanent=0.02,
            trailer=0.02,
            too_few=0.02,
            too_many=0.02,
            none=0.02,
            empty=0.02,
            repeated=0.02,
        )
        if what == "never":
            self._abandon(context)
        if what == "refused":
            self._fail(context, self._transient())
        if what == "permanent":
            self.log.refused(data)
            self._fail(context, self._dice.choice(PERMANENT))
        if what == "trailer":
            self._fail(context, self._transient(), self._dice.randbytes(30))
        if what == "late":
            self._wait(context, LATE / 4)
        ids = self.log.store(data)
        if what == "lost":
            self._fail(context, self._dice.choice(UNCLEAR))
        if what == "garbage":
            return GARBAGE
        if what == "too_few":
            ids = ids[:-1]
        elif what == "too_many":
            ids = [*ids, "4711"]
        elif what == "none":
            ids = []
        elif what == "empty":
            ids = [""] * len(ids)
        elif what == "repeated":
            ids = ids[:1] * max(2, len(ids))
        return pubsub.PublishResponse(message_ids=ids).SerializeToString()

    # ---- deliveries ----------------------------------------------------------------------------

    def _pull(self, request: pubsub.PullRequest, context: grpc.ServicerContext) -> bytes:
        what = self._choose("pull", lost=0.05, refused=0.05, garbage=0.03, never=0.005, empty=0.1)
        if what == "never":
            self._abandon(context)
        if what == "refused":
            self._fail(context, self._transient())
        if what == "empty":
            return b""
        backlog = self.backlogs[request.subscription]
        deliveries = backlog.take(min(request.max_messages, RESPONSE))
        if not deliveries and not request.return_immediately:
            self._ending.wait(0.1)
        if what == "lost":
            self._fail(context, self._transient())
        if what == "garbage":
            return GARBAGE
        received = [_received(delivery, ordered=False) for delivery in deliveries]
        return pubsub.PullResponse(received_messages=received).SerializeToString()

    def stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer a streaming pull."""
        first = pubsub.StreamingPullRequest.FromString(next(requests))
        backlog = self.backlogs[first.subscription]
        properties = pubsub.StreamingPullResponse.SubscriptionProperties(
            exactly_once_delivery_enabled=backlog.exactly_once,
            message_ordering_enabled="ordered" in backlog.name,
        )
        pings = threading.Semaphore(0)
        threading.Thread(target=_count, args=(requests, pings), daemon=True).start()
        while context.is_active() and not self._ending.is_set():
            what = self._choose(
                "stream",
                silent=0.002,
                ended=0.005,
                failed=0.02,
                permanent=0.001,
                garbage=0.005,
                again=0.05,
                twice=0.03,
                headless=0.01,
                unknown_field=0.02,
                confirmations=0.02,
                nothing=0.05,
            )
            if what == "silent":
                self._ending.wait(self._dice.uniform(5.0, 25.0))
            if what == "ended":
                return
            if what == "failed":
                context.abort(self._transient(), "The hostile server ends the stream.")
            if what == "permanent":
                context.abort(self._dice.choice(PERMANENT[:3]), "The stream ends for good.")
            if what == "garbage":
                yield GARBAGE
                return
            yield from self._responses(backlog, properties, what, context)
            while pings.acquire(blocking=False):
                yield b""
            self._ending.wait(PAUSE)

    def _responses(
        self, backlog: Backlog, properties: Any, what: str, consumer: object
    ) -> Iterator[bytes]:
        response = pubsub.StreamingPullResponse(subscription_properties=properties)
        if self._plant == "acked-again" and backlog.exactly_once:
            backlog.forget_an_acknowledgement()
        deliveries = [] if what == "nothing" else backlog.take(RESPONSE, consumer)
        ordered = "ordered" in backlog.name
        if self._plant == "reordered-key" and ordered:
            deliveries.reverse()
        if what == "again" and not ordered:
            # The same messages with new ack ids, in the same response.
            deliveries += [backlog.again(delivery) for delivery in deliveries[:3]]
        response.received_messages.extend(_received(each, ordered=ordered) for each in deliveries)
        if what == "headless":
            response.received_messages.add(ack_id="stranger")
        if what == "confirmations":
            response.acknowledge_confirmation.ack_ids.append("stranger")
            response.modify_ack_deadline_confirmation.ack_ids.append("stranger")
        encoded = response.SerializeToString()
        if what == "unknown_field":
            encoded += b"\xfa\x3f\x03abc"
        if deliveries or what != "well":
            yield encoded
        if what == "twice":
            backlog.sent_twice(delivery.ack_id for delivery in deliveries)
            yield encoded


class _Handlers(grpc.GenericRpcHandler):
    """Passes requests and responses as bytes, so that responses may be damaged."""

    def __init__(self, server: HostileServer) -> None:
        self._server = server

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = handler_call_details.method.rpartition("/")[2]
        if method not in BY_METHOD:
            return None
        if BY_METHOD[method].kind is Kind.BIDI:
            return grpc.stream_stream_rpc_method_handler(self._server.stream)
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._server.call(method, request, context)
        )


def _count(requests: Iterator[bytes], pings: threading.Semaphore) -> None:
    """Count the requests of a stream until it ends."""
    with suppress(Exception):
        for _ in requests:
            pings.release()


def _received(delivery: Delivery, *, ordered: bool) -> pubsub.ReceivedMessage:
    message = pubsub.PubsubMessage(
        data=delivery.data.encode(),
        message_id=f"{delivery.key}-{delivery.number}",
        ordering_key=delivery.key if ordered else "",
    )
    # A redelivery has the publish time of the first delivery.
    message.publish_time.FromSeconds(FIRST_PUBLISH_TIME + delivery.number)
    return pubsub.ReceivedMessage(ack_id=delivery.ack_id, message=message)


def _details(code: grpc.StatusCode, names: dict[str, str]) -> bytes:
    info = error_details_pb2.ErrorInfo(
        reason="EXACTLY_ONCE_ACKID_FAILURE", domain="pubsub.googleapis.com", metadata=names
    )
    detail = AnyMessage()
    detail.Pack(info)
    status = status_pb2.Status(code=code.value[0], message="Some failed.", details=[detail])
    encoded: bytes = status.SerializeToString()
    return encoded


def _split(names: dict[str, str], dice: random.Random) -> list[dict[str, str]]:
    """Return the names in one or two parts, as a proxy or a server may send them."""
    if len(names) < 2 or dice.random() < 0.8:
        return [names]
    pairs = list(names.items())
    return [dict(pairs[::2]), dict(pairs[1::2])]
