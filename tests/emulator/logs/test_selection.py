"""Selection of records for one answer, and of their fields."""

from __future__ import annotations

import pytest

from pullstream_emulator.logs.selection import Limits
from pullstream_protocol.errors import InvalidArgument
from tests.emulator.logs.driver import Driver, seqs


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    driver.put()
    return driver


@pytest.mark.parametrize(
    ("numbers", "given"),
    [
        ((0, 0), (256, 256 * 1024)),
        ((1, 1), (1, 1)),
        ((1000, 8 << 20), (1000, 8 << 20)),
        ((1001, (8 << 20) + 1), (1000, 8 << 20)),
    ],
)
def test_limits_of_a_feed_read_have_defaults_and_maxima(
    numbers: tuple[int, int], given: tuple[int, int]
) -> None:
    assert Limits.clamped(*numbers) == given


def test_a_feed_read_with_negative_limits_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="max_messages"):
        Limits.clamped(-1, 0)
    with pytest.raises(InvalidArgument, match="max_bytes"):
        Limits.clamped(0, -1)


@pytest.mark.parametrize("selection", [{}, {"filter": "attributes:tag"}])
def test_a_feed_read_returns_at_least_one_record_however_large_the_record_is(
    driver: Driver, selection: dict[str, str]
) -> None:
    """The rule also holds if the records must be parsed."""
    driver.append("x" * 100, "y" * 100, tag="t")
    response = driver.read(0, max_bytes=1, **selection)
    assert (seqs(response.messages), response.next_seq) == ([1], 1)
    response = driver.read(1, max_bytes=1, **selection)
    assert (seqs(response.messages), response.caught_up) == ([2], True)


def test_the_next_position_after_a_full_filtered_feed_read_skips_records_without_a_match(
    driver: Driver,
) -> None:
    """The unwanted records are not examined again."""
    for number in range(6):
        driver.append("x", tag="odd" if number % 2 else "even")
    response = driver.read(0, max_messages=1, filter='attributes.tag = "even"')
    assert (seqs(response.messages), response.next_seq) == ([1], 2)


def test_a_feed_read_without_data_returns_tag_node_id_and_time_of_records(driver: Driver) -> None:
    driver.append("secret", tag="t", node="n", other="o")
    (message,) = driver.read(0, include_data=False).messages
    assert (message.data, dict(message.attributes)) == (b"", {"tag": "t", "node": "n"})
    assert (message.message_id, message.publish_time.seconds) == ("1", int(driver.clock.now()))


def test_a_feed_read_with_an_invalid_filter_is_refused(driver: Driver) -> None:
    with pytest.raises(InvalidArgument, match="expected"):
        driver.read(0, filter="tag = 1")
    with pytest.raises(InvalidArgument, match="filter"):
        driver.read(0, filter="attributes:" + "k" * 256)


def test_a_filtered_feed_read_examines_only_a_few_large_records_at_a_time(driver: Driver) -> None:
    """Parsing copies the data of a record. The answer has the position that was reached."""
    driver.append(*["x" * 900_000] * 10, tag="a")
    seen = driver.read(filter='attributes.tag = "b"')
    assert seen.next_seq == 4
    assert not seen.caught_up
    assert driver.read(after=8, filter='attributes.tag = "b"').caught_up
