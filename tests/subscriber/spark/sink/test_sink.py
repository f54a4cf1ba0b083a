"""`write.format("pubsub")` and `writeStream.format("pubsub")` on real Spark."""

from __future__ import annotations

import logging
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from pullstream import SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.spark.stage import SUBSCRIPTION, TOPIC, Stage, publish, subscribed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COPIES = "projects/p/topics/copies"
COPIED = "projects/p/subscriptions/copies"


@pytest.fixture(autouse=True)
def quiet() -> None:
    # Some tests fail on purpose, and py4j would log these failures as well.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def pulled(broker: Emulator, subscription: str, count: int) -> list[pubsub.PubsubMessage]:
    """Return this many messages in the order of arrival."""
    found: list[pubsub.PubsubMessage] = []
    with SubscriberClient(endpoint=broker.endpoint) as client:
        while len(found) < count:
            response = client.pull(subscription=subscription, max_messages=count - len(found))
            found += [received.message for received in response.received_messages]
    return found


def test_the_spark_sink_publishes_the_rows_of_a_data_frame_as_messages(
    spark: SparkSession, broker: Emulator
) -> None:
    """Attributes are kept, and so is the order of each key whose rows are in one partition."""
    subscribed(broker)
    rows = [(f"{number}", {"n": str(number)}, f"k{number % 3}") for number in range(300)]
    frame = spark.createDataFrame(
        rows, "data STRING, attributes MAP<STRING, STRING>, ordering_key STRING"
    )
    frame.repartition(2, "ordering_key").sortWithinPartitions(frame.data.cast("int")).write.format(
        "pubsub"
    ).option("topic", TOPIC).option("endpoint", broker.endpoint).mode("append").save()
    by_key = defaultdict(list)
    for message in pulled(broker, SUBSCRIPTION, 300):
        assert dict(message.attributes) == {"n": message.data.decode()}
        by_key[message.ordering_key].append((int(message.message_id), int(message.data)))
    for number in range(3):
        found = [data for _, data in sorted(by_key[f"k{number}"])]
        assert found == list(range(number, 300, 3))


def test_a_spark_stream_copies_each_message_of_one_topic_to_another_topic_once(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """The stream copies one topic to another, each message once without failures."""
    stage = Stage(spark, broker, tmp_path)
    with (
        TopicAdminClient(endpoint=broker.endpoint) as topics,
        SubscriberClient(endpoint=broker.endpoint) as client,
    ):
        topics.create_topic(name=COPIES)
        client.create_subscription(name=COPIED, topic=COPIES)
    publish(broker, 50, attributes={"a": "b"})
    query = (
        stage.read(maxMessagesPerTrigger="20")
        .select("data", "attributes")
        .writeStream.format("pubsub")
        .option("topic", COPIES)
        .option("endpoint", broker.endpoint)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = pulled(broker, COPIED, 50)
    assert sorted(int(message.data) for message in found) == list(range(50))
    assert dict(found[0].attributes) == {"a": "b"}
    assert broker.backlog(SUBSCRIPTION) == 0


@pytest.mark.parametrize(
    ("columns", "mode", "options", "text"),
    [
        ("1 AS data", "append", {"topic": TOPIC}, "column 'data' has the type int"),
        ("'x' AS data, 1 AS id", "append", {"topic": TOPIC}, "column 'id' is not part of a"),
        ("'x' AS data", "append", {}, "option 'topic' is missing"),
        ("'x' AS data", "overwrite", {"topic": TOPIC}, "published messages cannot be withdrawn"),
        ("'' AS data", "append", {"topic": TOPIC}, "neither data nor attributes"),
        ("'x' AS data", "append", {"topic": COPIES}, "Resource not found .resource=copies"),
    ],
)
def test_a_spark_write_of_rows_that_cannot_be_published_raises_an_error(
    spark: SparkSession,
    broker: Emulator,
    columns: str,
    mode: str,
    options: dict[str, str],
    text: str,
) -> None:
    """If possible, the error comes before any row is read."""
    subscribed(broker)
    writer = spark.sql(f"SELECT {columns}").write.format("pubsub").mode(mode)
    with pytest.raises(PySparkException, match=text):
        writer.options(endpoint=broker.endpoint, **options).save()
    assert broker.backlog(SUBSCRIPTION) == 0
