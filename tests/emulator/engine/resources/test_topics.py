"""Topics: create, get, list, update, delete, and the errors for bad requests."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from pullstream_emulator.engine import Engine
from pullstream_protocol.errors import AlreadyExists, InvalidArgument, NotFound
from pullstream_protocol.messages import pubsub_pb2 as pubsub

NAME = "projects/test/topics/orders"
NAMING_HELP = (
    "Refer to https://cloud.google.com/pubsub/docs/admin#resource_names for more information."
)


def topics(engine: Engine) -> list[pubsub.Topic]:
    return list(engine.list_topics(pubsub.ListTopicsRequest(project="projects/test")).topics)


def update(engine: Engine, *paths: str, **fields: Any) -> pubsub.Topic:
    request = pubsub.UpdateTopicRequest(
        topic=pubsub.Topic(**{"name": NAME, **fields}),
        update_mask=FieldMask(paths=paths),
    )
    return engine.update_topic(request)


def test_a_topic_created_without_settings_shows_only_its_name(engine: Engine) -> None:
    """Neither the broker nor the production service adds settings."""
    created = engine.create_topic(pubsub.Topic(name=NAME))
    assert created == pubsub.Topic(name=NAME)
    assert engine.get_topic(NAME) == pubsub.Topic(name=NAME)


def test_get_topic_returns_the_settings_given_at_creation(engine: Engine) -> None:
    """Labels, retention and KMS key are kept."""
    topic = pubsub.Topic(
        name=NAME,
        labels={"team": "billing", "env": "test-1"},
        message_retention_duration=Duration(seconds=3600),
        kms_key_name="key",
    )
    engine.create_topic(topic)
    assert engine.get_topic(NAME) == topic


def test_the_output_only_state_field_in_a_create_topic_request_is_ignored(engine: Engine) -> None:
    """The state in a request is ignored, like every output-only field."""
    topic = pubsub.Topic(name=NAME, state=pubsub.Topic.INGESTION_RESOURCE_ERROR)
    assert engine.create_topic(topic).state == pubsub.Topic.STATE_UNSPECIFIED


@pytest.mark.parametrize(
    "topic_id",
    ["abc", "A-._~+%9", "a" * 255],
    ids=["shortest", "every kind of character", "longest"],
)
def test_create_topic_accepts_valid_topic_names(engine: Engine, topic_id: str) -> None:
    """An ID has 3 to 255 characters of a fixed set and begins with a letter."""
    topic = engine.create_topic(pubsub.Topic(name=f"projects/test/topics/{topic_id}"))
    assert topics(engine) == [topic]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "orders",
        "projects/test/topics/ab",
        "projects/test/topics/" + "a" * 256,
        "projects/test/topics/1abc",
        "projects/test/topics/googly",
        "projects/test/topics/with space",
        "projects/test/topics/a/b",
        "projects/test/subscriptions/orders",
        "projects//topics/orders",
    ],
)
def test_the_error_for_an_invalid_topic_name_quotes_the_name(engine: Engine, name: str) -> None:
    """Each call with a topic name gives the same error, and creates nothing."""
    for call in (
        lambda: engine.create_topic(pubsub.Topic(name=name)),
        lambda: engine.get_topic(name),
        lambda: engine.delete_topic(name),
        lambda: engine.update_topic(pubsub.UpdateTopicRequest(topic=pubsub.Topic(name=name))),
        lambda: engine.publish(pubsub.PublishRequest(topic=name)),
        lambda: engine.list_topic_subscriptions(pubsub.ListTopicSubscriptionsRequest(topic=name)),
    ):
        with pytest.raises(InvalidArgument) as refused:
            call()
        expected = f"Invalid resource name given (name={name}). {NAMING_HELP}"
        assert refused.value.message == expected
    assert topics(engine) == []


def test_publisher_calls_for_a_missing_topic_end_with_not_found(engine: Engine) -> None:
    """The error quotes the short ID, as in the production service."""
    for call in (
        lambda: engine.get_topic(NAME),
        lambda: engine.delete_topic(NAME),
        lambda: update(engine, "labels"),
        lambda: engine.publish(pubsub.PublishRequest(topic=NAME)),
        lambda: engine.list_topic_subscriptions(pubsub.ListTopicSubscriptionsRequest(topic=NAME)),
    ):
        with pytest.raises(NotFound) as refused:
            call()
        assert refused.value.message == "Resource not found (resource=orders)."


def test_creating_a_topic_with_an_existing_name_is_refused(engine: Engine) -> None:
    """The second creation is refused and does not change the first."""
    engine.create_topic(pubsub.Topic(name=NAME, kms_key_name="first"))
    with pytest.raises(AlreadyExists) as refused:
        engine.create_topic(pubsub.Topic(name=NAME, kms_key_name="second"))
    assert refused.value.message == "Resource already exists in the project (resource=orders)."
    assert engine.get_topic(NAME).kms_key_name == "first"


@pytest.mark.parametrize("seconds", [600, 31 * 86400])
def test_a_message_retention_of_a_topic_at_the_allowed_limits_is_accepted(
    engine: Engine, seconds: int
) -> None:
    """Ten minutes and 31 days are allowed."""
    retention = Duration(seconds=seconds)
    engine.create_topic(pubsub.Topic(name=NAME, message_retention_duration=retention))
    assert engine.get_topic(NAME).message_retention_duration == retention


@pytest.mark.parametrize(
    ("retention", "passed"),
    [
        (Duration(seconds=5), "5s"),
        (Duration(seconds=599), "599s"),
        (Duration(), "0"),
        (Duration(seconds=-60), "-1m"),
        (Duration(seconds=32 * 86400), "768h"),
        (Duration(seconds=31 * 86400, nanos=500_000_000), "2678400.5s"),
    ],
)
def test_creating_a_topic_with_a_message_retention_out_of_limits_is_refused(
    engine: Engine, retention: Duration, passed: str
) -> None:
    """The error names the field, the value and the limits."""
    with pytest.raises(InvalidArgument) as refused:
        engine.create_topic(pubsub.Topic(name=NAME, message_retention_duration=retention))
    assert refused.value.message == (
        "The value for message retention duration is out of bounds. You passed "
        f"{passed} in the request, but the value must be between 10m and 744h."
    )
    assert topics(engine) == []


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"Team": "x"}, "key 'Team'"),
        ({"1team": "x"}, "key '1team'"),
        ({"": "x"}, "key ''"),
        ({"k" * 64: "x"}, f"key '{'k' * 64}'"),
        ({"team": "Billing"}, "value 'Billing' of key 'team'"),
        ({"team": "a b"}, "value 'a b' of key 'team'"),
        ({"team": "v" * 64}, f"value '{'v' * 64}' of key 'team'"),
        ({f"k{i}": "" for i in range(65)}, "65 labels given, at most 64 are allowed"),
    ],
)
def test_creating_a_topic_with_invalid_labels_is_refused(
    engine: Engine, labels: dict[str, str], problem: str
) -> None:
    """The error names the wrong key or value."""
    with pytest.raises(InvalidArgument) as refused:
        engine.create_topic(pubsub.Topic(name=NAME, labels=labels))
    start = "You have passed an invalid argument to the service (argument=Invalid labels: "
    assert refused.value.message.startswith(start + problem)
    assert topics(engine) == []


def test_topic_labels_at_the_allowed_limits_are_accepted(engine: Engine) -> None:
    """There may be 64 labels of 63 characters each, in any script without capitals."""
    labels = {"é" + "k" * 60 + f"{i:02}": "v" * 63 for i in range(63)} | {"ключ-1_": ""}
    assert engine.create_topic(pubsub.Topic(name=NAME, labels=labels)).labels == labels


def test_a_topic_update_changes_only_the_fields_in_its_mask(engine: Engine) -> None:
    """Named fields are replaced as a whole, or removed if unset. The others are kept."""
    engine.create_topic(
        pubsub.Topic(
            name=NAME,
            labels={"old": "label"},
            kms_key_name="key",
            message_retention_duration=Duration(seconds=600),
        )
    )
    changed = update(
        engine,
        "labels",
        "message_retention_duration",
        labels={"new": "label"},
        kms_key_name="not named in the mask",
    )
    assert changed == pubsub.Topic(name=NAME, labels={"new": "label"}, kms_key_name="key")
    assert engine.get_topic(NAME) == changed


def test_a_dotted_path_in_the_mask_of_a_topic_update_changes_only_the_nested_field(
    engine: Engine,
) -> None:
    """The other fields of the policy stay."""
    policy = pubsub.MessageStoragePolicy(
        allowed_persistence_regions=["here", "there"], enforce_in_transit=True
    )
    engine.create_topic(pubsub.Topic(name=NAME, message_storage_policy=policy))
    update(
        engine,
        "message_storage_policy.allowed_persistence_regions",
        message_storage_policy=pubsub.MessageStoragePolicy(allowed_persistence_regions=["here"]),
    )
    assert engine.get_topic(NAME).message_storage_policy == pubsub.MessageStoragePolicy(
        allowed_persistence_regions=["here"], enforce_in_transit=True
    )


MASK = "Invalid update_mask provided in the UpdateTopicRequest: "


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        (
            [],
            "The update_mask in the UpdateTopicRequest must be set, and must contain a non-empty "
            "paths list.",
        ),
        *(
            (
                ["labels", path],
                f"{MASK}'{path}' is not a known Topic field. Note that field paths must be of the "
                "form 'schema_settings' rather than 'schemaSettings'.",
            )
            for path in ("kmsKeyName", "nonsense", "", "labels.team", "labels.", "kms_key_name.x")
        ),
        (["labels", "name"], f"{MASK}the 'name' field in the Topic is not mutable."),
        (["labels", "state"], f"{MASK}the 'state' field in the Topic is not mutable."),
    ],
)
def test_an_update_with_an_invalid_mask_leaves_the_topic_unchanged(
    engine: Engine, paths: list[str], text: str
) -> None:
    """One bad path refuses the whole update with its good paths."""
    engine.create_topic(pubsub.Topic(name=NAME))
    with pytest.raises(InvalidArgument) as refused:
        update(engine, *paths, labels={"new": "label"})
    assert refused.value.message == text
    assert engine.get_topic(NAME) == pubsub.Topic(name=NAME)


def test_an_update_with_an_invalid_value_leaves_the_topic_unchanged(engine: Engine) -> None:
    """The result is checked like a new topic."""
    engine.create_topic(pubsub.Topic(name=NAME))
    with pytest.raises(InvalidArgument):
        update(
            engine,
            "labels",
            "message_retention_duration",
            labels={"new": "label"},
            message_retention_duration=Duration(seconds=1),
        )
    assert engine.get_topic(NAME) == pubsub.Topic(name=NAME)
