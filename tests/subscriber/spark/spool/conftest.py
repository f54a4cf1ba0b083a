"""The simulated ingestion that the tests of a session use."""

from tests.subscriber.spark.session.conftest import world as world
