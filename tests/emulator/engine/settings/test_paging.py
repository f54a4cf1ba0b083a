"""Lists: their order, their pages, and the errors for bad requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from pullstream_emulator.engine import Engine
from pullstream_protocol.errors import InvalidArgument, NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub

TOPIC = "projects/test/topics/all-of-them"
Page = tuple[list[str], str]


class Topics:
    """The topics of a project."""

    parent = "projects/test"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, *ids: str, project: str = "test") -> None:
        for topic_id in ids:
            self._engine.create_topic(pubsub.Topic(name=f"projects/{project}/topics/{topic_id}"))

    def delete(self, topic_id: str) -> None:
        self._engine.delete_topic(f"projects/test/topics/{topic_id}")

    def page(self, parent: str = parent, **paging: Any) -> Page:
        response = self._engine.list_topics(pubsub.ListTopicsRequest(project=parent, **paging))
        return short_ids(t.name for t in response.topics), response.next_page_token


class Subscriptions:
    """The subscriptions of a project."""

    parent = "projects/test"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.create_topic(pubsub.Topic(name=TOPIC))

    def create(self, *ids: str, project: str = "test") -> None:
        for subscription_id in ids:
            name = f"projects/{project}/subscriptions/{subscription_id}"
            self._engine.create_subscription(pubsub.Subscription(name=name, topic=TOPIC))

    def delete(self, subscription_id: str) -> None:
        self._engine.delete_subscription(f"projects/test/subscriptions/{subscription_id}")

    def page(self, parent: str = parent, **paging: Any) -> Page:
        request = pubsub.ListSubscriptionsRequest(project=parent, **paging)
        response = self._engine.list_subscriptions(request)
        return short_ids(s.name for s in response.subscriptions), response.next_page_token


class SubscriptionsOfTopic(Subscriptions):
    """The subscriptions attached to one topic."""

    parent = TOPIC

    def page(self, parent: str = parent, **paging: Any) -> Page:
        request = pubsub.ListTopicSubscriptionsRequest(topic=parent, **paging)
        response = self._engine.list_topic_subscriptions(request)
        return short_ids(response.subscriptions), response.next_page_token


def short_ids(names: Iterable[str]) -> list[str]:
    return [name.rpartition("/")[2] for name in names]


Collection = Topics | Subscriptions


@pytest.fixture(params=[Topics, Subscriptions, SubscriptionsOfTopic])
def collection(engine: Engine, request: pytest.FixtureRequest) -> Collection:
    made: Collection = request.param(engine)
    return made


def test_resources_in_list_pages_are_ordered_by_name(collection: Collection) -> None:
    """The pages contain each item once, whatever the order of creation."""
    collection.create("nnn3", "nnn1", "nnn5", "nnn2", "nnn4")
    first, token = collection.page(page_size=2)
    second, token = collection.page(page_size=2, page_token=token)
    third, end = collection.page(page_size=2, page_token=token)
    assert [first, second, third, end] == [["nnn1", "nnn2"], ["nnn3", "nnn4"], ["nnn5"], ""]


def test_resource_lists_in_pages_stay_complete_while_resources_are_created_and_deleted(
    collection: Collection,
) -> None:
    """Items that exist throughout are neither repeated nor skipped.

    The pages are right even if the last returned item is deleted.
    """
    collection.create("nnn1", "nnn2", "nnn3", "nnn4")
    _, token = collection.page(page_size=2)
    collection.create("nnn0")
    collection.delete("nnn2")
    assert collection.page(page_token=token) == (["nnn3", "nnn4"], "")


def test_a_last_list_page_that_is_just_full_has_no_next_page_token(
    collection: Collection,
) -> None:
    """No token leads to an empty page."""
    collection.create("nnn1", "nnn2")
    assert collection.page(page_size=2) == (["nnn1", "nnn2"], "")


def test_a_list_page_has_a_thousand_items_at_most(collection: Collection) -> None:
    """The size is the same if the request has none or a larger one."""
    collection.create(*(f"n{i:04}" for i in range(1001)))
    for size in (0, 5000):
        listed, token = collection.page(page_size=size)
        assert (len(listed), listed[-1]) == (1000, "n0999")
        assert collection.page(page_size=size, page_token=token) == (["n1000"], "")


@pytest.mark.parametrize(
    ("bad", "argument"),
    [
        ({"page_size": -1}, "page_size"),
        ({"page_token": "made up"}, "page_token"),
        ({"page_token": "bm90IGEgbmFtZQ=="}, "page_token"),
        ({"page_token": "/////w=="}, "page_token"),
    ],
)
def test_the_error_of_a_list_request_quotes_the_invalid_page_size_or_page_token(
    collection: Collection, bad: dict[str, Any], argument: str
) -> None:
    """A bad size or token never gives an empty list."""
    with pytest.raises(InvalidArgument) as refused:
        collection.page(**bad)
    assert refused.value.message == (
        f"You have passed an invalid argument to the service (argument={argument})."
    )


@pytest.mark.parametrize("parent", ["", "test", "projects/", "projects/a/b", "topics/test"])
def test_the_error_of_a_list_request_quotes_the_invalid_parent_name(
    collection: Collection, parent: str
) -> None:
    """A bad project or topic never gives an empty list."""
    with pytest.raises(InvalidArgument) as refused:
        collection.page(parent)
    assert f"Invalid resource name given (name={parent})." in refused.value.message


@pytest.mark.parametrize("kind", [Topics, Subscriptions])
def test_a_list_request_for_a_project_returns_only_resources_of_that_project(
    engine: Engine, kind: type[Topics] | type[Subscriptions]
) -> None:
    """Resources of other projects are excluded, also those of a project with the same prefix."""
    collection = kind(engine)
    collection.create("other", project="test2")
    collection.create("mine")
    assert "mine" in collection.page()[0]
    assert collection.page("projects/test2") == (["other"], "")
    assert collection.page("projects/tes") == ([], "")


def test_the_list_of_subscriptions_of_a_topic_includes_those_of_other_projects(
    engine: Engine,
) -> None:
    """A subscription may belong to another project than its topic."""
    collection = SubscriptionsOfTopic(engine)
    collection.create("near")
    collection.create("away", project="other")
    assert sorted(collection.page()[0]) == ["away", "near"]


def test_listing_the_subscriptions_of_a_missing_topic_ends_with_not_found(engine: Engine) -> None:
    """The production service does the same. The official emulator returns an empty list."""
    request = pubsub.ListTopicSubscriptionsRequest(topic="projects/test/topics/orders")
    with pytest.raises(NotFound, match=r"Resource not found \(resource=orders\)\."):
        engine.list_topic_subscriptions(request)
