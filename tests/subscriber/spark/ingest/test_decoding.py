"""Decoding of message data in an ingestion: JSON and text, compared with plain Python."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812

from pullstream import TopicAdminClient
from pullstream.spark import IngestJob
from pullstream.spark.ingest.batch_handler import BatchHandler
from pullstream.spark.ingest.columns import arrow_schema
from pullstream.spark.ingest.decoding import Decoding, JsonDecoding, TextDecoding, Undecoded
from pullstream.spark.ingest.report import Totals
from pullstream.spark.ingest.targets import TableTarget
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.data_files import PartitionField
from pullstream.spark.tables.file_table import FileTable
from pullstream_emulator import Emulator
from pullstream_protocol.clock import SYSTEM_CLOCK
from tests.subscriber.command_line import pullstream, usage_error
from tests.subscriber.spark.stage import SUBSCRIPTION, TOPIC, subscribed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

PUBLISHED = datetime(2026, 11, 27, tzinfo=timezone.utc)
BATCH = BatchName("0123456789abcdef", 7)
DAY = 86_400.0


def messages(spark: SparkSession, *data: bytes | None) -> DataFrame:
    """Return messages whose ids are their positions."""
    rows = [(str(number), one, PUBLISHED) for number, one in enumerate(data)]
    return spark.createDataFrame(rows, "message_id STRING, data BINARY, publish_time TIMESTAMP")


def decoded(
    spark: SparkSession, decoding: Decoding, *data: bytes | None
) -> tuple[list[Row], dict[bytes | None, str], dict[str, int]]:
    """Return the good rows, the reasons of the bad ones by their data, and the counts."""
    counted = Observation()
    read = decoding.read(messages(spark, *data), str(BATCH))
    sums = [F.sum(number).alias(name) for name, number in decoding.counts().items()]
    watched = read.observe(counted, F.count_if(decoding.is_bad()).alias("bad"), *sums)
    good = decoding.good(watched).collect()
    bad = decoding.bad(watched).collect()
    counts = {name: number or 0 for name, number in counted.get.items()}
    assert counts.pop("bad") == len(bad) == len(data) - len(good)
    reasons = {None if row.data is None else bytes(row.data): row.reason for row in bad}
    return good, reasons, counts


@contextmanager
def session_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    """Give the session another time zone during the block."""
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


# ---- values of JSON ------------------------------------------------------------------------------

# A type, the JSON value, and what is read; None is a value that does not fit.
VALUES: list[tuple[str, str, Any]] = [
    ("BIGINT", "9223372036854775807", 9223372036854775807),
    ("BIGINT", '"-9223372036854775808"', -9223372036854775808),
    ("BIGINT", "9223372036854775808", None),
    ("BIGINT", '"9223372036854775808"', None),
    ("BIGINT", "1.5", None),
    ("BIGINT", "1.0", None),
    ("BIGINT", '"1e2"', None),
    ("BIGINT", '"1.5"', None),
    ("BIGINT", '" 1"', None),
    ("BIGINT", '""', None),
    ("BIGINT", "true", None),
    ("BIGINT", "[1]", None),
    ("INT", '"2147483647"', 2147483647),
    ("INT", "2147483648", None),
    ("INT", '"2147483648"', None),
    ("SMALLINT", '"-32768"', -32768),
    ("SMALLINT", "32768", None),
    ("TINYINT", "-128", -128),
    ("TINYINT", '"127"', 127),
    ("TINYINT", "200", None),
    ("TINYINT", '"200"', None),
    ("DOUBLE", "1.25", 1.25),
    ("DOUBLE", "1e400", None),
    ("DOUBLE", '"1e400"', None),
    ("DOUBLE", "-1e400", None),
    ("DOUBLE", "1e-400", 0.0),
    ("DOUBLE", '"-1.25e-3"', -0.00125),
    ("DOUBLE", '"Infinity"', math.inf),
    ("DOUBLE", '"-Infinity"', -math.inf),
    ("DOUBLE", '"1d"', None),
    ("DOUBLE", '"0x1p3"', None),
    ("DOUBLE", '"1,5"', None),
    ("FLOAT", '"0.5"', 0.5),
    ("FLOAT", "1e39", None),
    ("FLOAT", '"1e39"', None),
    ("FLOAT", '"Infinity"', math.inf),
    ("ARRAY<DOUBLE>", "[1e400]", None),
    ("ARRAY<DOUBLE>", '["Infinity", 1]', [math.inf, 1.0]),
    ("DECIMAL(38,18)", "12345678901234567890.123456789012345678", "exact"),
    ("DECIMAL(38,18)", '"12345678901234567890.123456789012345678"', "exact"),
    ("DECIMAL(4,2)", "99.99", Decimal("99.99")),
    # Spark rounds these.
    ("DECIMAL(4,2)", "1.005", Decimal("1.01")),
    ("DECIMAL(4,2)", '"1.005"', Decimal("1.01")),
    ("DECIMAL(4,2)", "1.5000", Decimal("1.50")),
    ("DECIMAL(4,2)", '"1.5e1"', Decimal("15.00")),
    ("DECIMAL(4,2)", "100", None),
    ("DECIMAL(4,2)", '"100"', None),
    ("DECIMAL(4,2)", "99.995", None),
    ("DECIMAL(4,2)", '"1,5"', None),
    ("DECIMAL(4,2)", '"x"', None),
    ("DATE", '"2026-11-01"', date(2026, 11, 1)),
    ("DATE", '"2026"', None),
    ("DATE", '"2026-11-01T00:00:00Z"', None),
    ("DATE", '"2026-02-30"', None),
    ("TIMESTAMP_NTZ", '"2026-11-01T02:03:04.123456789"', datetime(2026, 11, 1, 2, 3, 4, 123456)),
    ("TIMESTAMP_NTZ", '"2026-11-01"', datetime(2026, 11, 1)),
    ("TIMESTAMP_NTZ", '"2026-11-01T02:03:04Z"', None),
    ("BOOLEAN", '"true"', None),
    ("STRING", '"1,5"', "1,5"),
    # Spark reads these through a double.
    ("STRING", "0.12345678901234567890123", "0.12345678901234568"),
    ("STRING", "12345678901234567890.5", "1.2345678901234567E19"),
    ("STRING", "12345678901234567890", "12345678901234567890"),
    ("STRING", "1e400", '"Infinity"'),
    ("STRING", '[1.10, 1e400, "\\u00e4"]', '[1.1,"Infinity","ä"]'),
    ("STRING", '{"k": 1, "k": [true]}', '{"k":1,"k":[true]}'),
    ("STRING", '"\\ud800x"', "?x"),
    ("BINARY", '"AQI="', b"\x01\x02"),
    ("BINARY", '"AQI"', None),
    ("MAP<STRING, INT>", '{"k": 1, "k": 2}', {"k": 2}),
    ("STRUCT<k: INT>", '{"k": 1, "k": 2, "K": 3}', (2,)),
]


def _given(kind: str, text: str) -> str:
    """Return the type of a JSON value in the words of a reason."""
    value = json.loads(text)
    if isinstance(value, list):
        return f"array of {_given('', json.dumps(value[0]))}" if value else "array"
    names = {str: "string", bool: "boolean", dict: "object"}
    if type(value) in names:
        return names[type(value)]
    if kind.startswith("DECIMAL"):
        return "number with too many digits"
    if kind.endswith("INT") and isinstance(value, float):
        return "number with a fraction"
    return f"number{'' if kind == 'DATE' else ' out of range'}" if kind else "number"


def test_the_json_decoding_reads_each_value_in_full_or_refuses_it_with_a_reason(
    spark: SparkSession,
) -> None:
    """Each pair of a type and a JSON value has one result: the value, or a reason.

    All pairs are read twice: alone, and beside a number that is a text, which changes the way in
    which Spark reads the object.
    """
    exact = Decimal("12345678901234567890.123456789012345678")
    kinds = list(dict.fromkeys(kind for kind, _, _ in VALUES))
    columns = {kind: f"c{number}" for number, kind in enumerate(kinds)}
    ddl = ", ".join(f"{name} {kind}" for kind, name in columns.items())
    decoding = JsonDecoding.from_ddl(f"{ddl}, b BIGINT")
    for rest in ("", ', "b": "1"'):
        data = [f'{{"{columns[kind]}": {text}{rest}}}'.encode() for kind, text, _ in VALUES]
        good, reasons, _ = decoded(spark, decoding, *data)
        found = {int(row.pubsub_message_id): row for row in good}
        for number, (kind, text, expected) in enumerate(VALUES):
            column = columns[kind]
            if expected is None:
                told = f"does not fit: {column} {kind.lower()} (given: {_given(kind, text)})"
                assert (number in found, reasons[data[number]]) == (False, told)
            else:
                value = exact if expected == "exact" else expected
                assert found[number][column] == value, data[number]
    nan, _, _ = decoded(spark, JsonDecoding.from_ddl("a DOUBLE"), b'{"a": "NaN"}')
    assert math.isnan(nan[0].a)


TYPES = {
    "bigint": "BIGINT",
    "int": "INT",
    "tinyint": "TINYINT",
    "double": "DOUBLE",
    "decimal": "DECIMAL(10,2)",
    "time": "TIMESTAMP",
}
RANGES = {"bigint": 2**63, "int": 2**31, "tinyint": 2**7}


def near(bound: int) -> st.SearchStrategy[int]:
    return st.one_of(
        st.integers(-bound - 2, -bound + 2), st.integers(bound - 2, bound + 2), st.integers(-9, 9)
    )


DECIMALS = st.integers(1, 4).flatmap(
    lambda places: st.decimals(-(10**9), 10**9, places=places).map(lambda one: format(one, "f"))
)
NUMBERS = st.one_of(
    *(
        st.tuples(st.just(kind), near(bound).map(str), st.booleans())
        for kind, bound in RANGES.items()
    ),
    st.tuples(st.just("double"), st.floats(allow_nan=False).map(repr), st.booleans()),
    st.tuples(st.just("decimal"), DECIMALS, st.booleans()),
)
TIMES = st.tuples(
    st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    st.text("0123456789", max_size=9),
    st.sampled_from(["", "Z", "z", "+00:00", "-05:30", "+0200"]),
    st.sampled_from("Tt "),
)


def of_number(kind: str, text: str) -> Any:
    """Return what plain Python reads; None if it does not fit."""
    if kind == "double":
        return float(text)
    if kind == "decimal":
        value = Decimal(text).quantize(Decimal("0.01"), ROUND_HALF_UP)
        return value if abs(value) < 10**8 else None
    return int(text) if -RANGES[kind] <= int(text) < RANGES[kind] else None


# An example is a Spark job, so a smaller one is not looked for: the message names the value.
FEW_EXAMPLES = settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@FEW_EXAMPLES
@given(st.lists(NUMBERS, min_size=30, max_size=150))
def test_the_json_decoding_agrees_with_python_on_numbers_and_texts_of_numbers(
    spark: SparkSession, numbers: list[tuple[str, str, bool]]
) -> None:
    """Numbers near the limits of each type are equal to Python's, or make the message bad."""
    decoding = JsonDecoding.from_ddl(", ".join(f"`{name}` {kind}" for name, kind in TYPES.items()))
    data = []
    for kind, text, is_text in numbers:
        # JSON has no infinite numbers, only texts.
        quoted = is_text or "inf" in text
        text = text.replace("inf", "Infinity")
        data.append(f'{{"{kind}": {json.dumps(text) if quoted else text}}}'.encode())
    good, _, _ = decoded(spark, decoding, *data)
    found = {int(row.pubsub_message_id): row for row in good}
    for number, (kind, text, _) in enumerate(numbers):
        expected = of_number(kind, text)
        row = found.get(number)
        assert (None if row is None else row[kind]) == expected, data[number]


@FEW_EXAMPLES
@given(st.lists(TIMES, min_size=30, max_size=150))
def test_the_json_decoding_agrees_with_python_on_times_in_any_session_zone(
    spark: SparkSession, times: list[tuple[datetime, str, str, str]]
) -> None:
    """Times with up to nine digits are cut to microseconds and counted; UTC is the default zone."""
    data, expected, cut = [], {}, 0
    for number, (time, digits, zone, separator) in enumerate(times):
        time = time.replace(microsecond=0)
        fraction = f".{digits}" if digits else ""
        text = f"{time:%Y-%m-%d}{separator}{time:%H:%M:%S}{fraction}{zone}"
        data.append(json.dumps({"time": text}).encode())
        micros = int(digits.ljust(6, "0")[:6])
        offset = "+00:00" if zone in ("", "z", "Z") else zone
        instant = datetime.strptime(f"{time.isoformat()}{offset}", "%Y-%m-%dT%H:%M:%S%z")
        since = instant - datetime(1970, 1, 1, tzinfo=timezone.utc)
        expected[number] = since // timedelta(seconds=1) * 1_000_000 + micros
        cut += int(digits[6:] or "0") > 0
    decoding = JsonDecoding.from_ddl("time TIMESTAMP")
    for zone in ("America/Los_Angeles", "Asia/Kolkata"):
        with session_zone(spark, zone):
            counted = Observation()
            read = decoding.read(messages(spark, *data), "")
            sums = [F.sum(value).alias(name) for name, value in decoding.counts().items()]
            rows = decoding.good(read.observe(counted, *sums))
            found = rows.select("pubsub_message_id", F.unix_micros("time").alias("us")).collect()
        assert {int(row.pubsub_message_id): row.us for row in found} == expected
        assert counted.get["cut_times"] == cut


TIMES_REFUSED = [
    *("2026", "2026-11", "T12:30", "12:30", "2026-11-01T00:00Z", "2026-13-01T00:00:00Z"),
    *("2026-11-01T24:00:00Z", "2026-11-01T00:00:60Z", "2026-11-01T00:00:00 Europe/Berlin"),
    *("+57868-12-07T16:00:00Z", "2026-11-01T00:00:00.Z", "2026-11-01T00:00:00+25:00", "now", ""),
]


def test_the_json_decoding_refuses_times_that_are_not_in_the_form_of_rfc_3339(
    spark: SparkSession,
) -> None:
    """Spark's own reader takes a year, a clock time or a number of seconds as a time."""
    data = [json.dumps({"t": text}).encode() for text in (*TIMES_REFUSED, 1764000000000)]
    good, reasons, _ = decoded(spark, JsonDecoding.from_ddl("t TIMESTAMP"), *data)
    assert good == []
    assert set(reasons) == set(data)
    assert set(reasons.values()) == {
        "does not fit: t timestamp (given: string)",
        "does not fit: t timestamp (given: number)",
    }


@pytest.mark.parametrize(
    ("zone", "hour"), [("UTC", 12), ("Europe/Berlin", 11), ("+05:30", 6), ("America/New_York", 17)]
)
def test_the_json_decoding_reads_times_without_a_zone_in_the_given_zone(
    spark: SparkSession, zone: str, hour: int
) -> None:
    """The option decides, whatever the session's zone is. A time with a zone keeps its own."""
    decoding = JsonDecoding.from_ddl("t TIMESTAMP, n TIMESTAMP_NTZ", time_zone=zone)
    data = [
        b'{"t": "2026-11-27 12:00:00", "n": "2026-11-27 12:00:00"}',
        b'{"t": "2026-11-27T12:00:00Z"}',
        b'{"t": "2026-11-27"}',
    ]
    with session_zone(spark, "Asia/Tokyo"):
        rows = decoding.good(decoding.read(messages(spark, *data), ""))
        found = rows.select(F.unix_micros("t"), F.col("n").cast("string")).collect()
    hours = [(row[0] - 1795737600 * 10**6) / 3_600e6 for row in found]
    shift = 12 - hour
    minutes = 0.5 if zone == "+05:30" else 0
    assert hours == [12 - shift + minutes, 12, -shift + minutes]
    # A time without a zone stays as it is.
    assert found[0][1] == "2026-11-27 12:00:00"


@pytest.mark.parametrize("zone", ["", "Nowhere/Land", "+25:00", "Z; DROP"])
def test_the_json_decoding_refuses_a_time_zone_that_does_not_exist(
    spark: SparkSession, zone: str
) -> None:
    """The error names the value and gives two examples."""
    with pytest.raises(ValueError, match=re.escape(f"time_zone is {zone!r}; it must be the name")):
        JsonDecoding.from_ddl("t TIMESTAMP", time_zone=zone)


def test_the_json_decoding_converts_values_inside_arrays_maps_and_structs(
    spark: SparkSession,
) -> None:
    """Texts, cut times and values that do not fit are found at any depth."""
    ddl = (
        "items ARRAY<STRUCT<id: BIGINT, at: TIMESTAMP>>, m MAP<STRING, DOUBLE>, "
        "s STRUCT<a: TINYINT, p: DECIMAL(5,2)>"
    )
    decoding = JsonDecoding.from_ddl(ddl)
    whole = {
        "items": [{"id": "1", "at": "2026-11-27T00:00:00.123456789Z"}, {"id": 2}, None],
        "m": {"a": "NaN", "b": 2.5, "c": "-1"},
        "s": {"a": "-1", "p": "1.25"},
    }
    bad = [
        {"items": [{"id": "x"}]},
        {"items": [{"at": "x"}]},
        {"m": {"a": "x"}},
        {"s": {"a": 200}},
        {"s": {"p": "1,5"}},
        {"s": {"p": 1000}},
    ]
    data = [json.dumps(one).encode() for one in (whole, {}, *bad)]
    good, reasons, counts = decoded(spark, decoding, *data)
    first, empty = good
    assert [one and (one.id, one.at and one.at.microsecond) for one in first["items"]] == [
        (1, 123456),
        (2, None),
        None,
    ]
    assert math.isnan(first.m.pop("a"))
    assert first.m == {"b": 2.5, "c": -1.0}
    assert first.s == (-1, Decimal("1.25"))
    assert (empty["items"], empty.m, empty.s) == (None, None, None)
    assert list(reasons.values()) == [
        "does not fit: items array<struct<id:bigint,at:timestamp>> (given: array of object)",
        "does not fit: items array<struct<id:bigint,at:timestamp>> (given: array of object)",
        "does not fit: m map<string,double> (given: object)",
        "does not fit: s.a tinyint (given: number out of range)",
        "does not fit: s.p decimal(5,2) (given: string)",
        "does not fit: s.p decimal(5,2) (given: number with too many digits)",
    ]
    assert counts == {"unknown_fields": 0, "cut_times": 1}
    types = decoding.good(decoding.read(messages(spark), "")).schema
    assert types["items"].dataType.simpleString() == "array<struct<id:bigint,at:timestamp>>"
    assert types["m"].dataType.simpleString() == "map<string,double>"
    assert types["s"].dataType.simpleString() == "struct<a:tinyint,p:decimal(5,2)>"


def test_the_json_decoding_accepts_a_byte_order_mark_and_counts_unknown_fields(
    spark: SparkSession,
) -> None:
    """Fields of good messages that the schema does not name are counted, and nothing else is.

    Names are case-sensitive, and the last of two equal ones is taken.
    """
    decoding = JsonDecoding.from_ddl("id BIGINT NOT NULL, n STRUCT<a: INT>")
    data = [
        b'\xef\xbb\xbf{"id": 1, "x": 2, "ID": 3}',
        b' {"id": "2", "y": {"id": 1}} \n',
        b'{"id": 9, "id": 3, "n": {"a": 1}}',
        b'{"x": 1}',
        b"\xef\xbb\xbf",
    ]
    good, reasons, counts = decoded(spark, decoding, *data)
    assert [row.id for row in good] == [1, 2, 3]
    assert reasons == {b'{"x": 1}': "missing: id", b"\xef\xbb\xbf": "not one JSON value"}
    assert counts == {"unknown_fields": 3, "cut_times": 0}


def test_the_json_decoding_names_the_fields_outside_the_schema_by_their_paths(
    spark: SparkSession,
) -> None:
    """Objects in objects are looked into; arrays and maps are not."""
    ddl = "id BIGINT, n STRUCT<a: INT, `b c`: STRUCT<d: INT>>, m MAP<STRING, INT>"
    decoding = JsonDecoding.from_ddl(f"{ddl}, l ARRAY<STRUCT<a: INT>>")
    value = {"x": 1, "n": {"a": 1, "y.z": 2, "b c": {"d": 1, "e": 2}}, "m": {"k": 1}, "l": [{}]}
    data = [json.dumps(value).encode(), b'{"n": null}', b'{"q": 1, "id": "x"}', b"[]"]
    unknown = decoding.unknown()
    assert unknown is not None
    rows = messages(spark, *data)
    found = decoding.read(rows, "batch").select(unknown.alias("names")).collect()
    assert [row.names for row in found] == [["x", "n.y.z", "n.b c.e"], [], None, None]


def test_the_reason_of_a_bad_row_has_the_path_and_the_types_of_each_value(
    spark: SparkSession,
) -> None:
    """The wanted type comes first. A text that is no JSON variant has no path."""
    ddl = "id BIGINT, n STRUCT<a: INT, b: STRUCT<c: DATE>>, l ARRAY<INT>, m MAP<STRING, INT>"
    decoding = JsonDecoding.from_ddl(f"{ddl}, p DECIMAL(3, 1)")
    reasons = {
        b'{"n": {"a": "x", "b": {"c": 5}}}': "n.a int (given: string), n.b.c date (given: number)",
        b'{"n": 5, "id": {}}': "id bigint (given: object), n struct (given: number)",
        b'{"n": {"b": [1]}}': "n.b struct (given: array of number)",
        b'{"l": ["x"], "p": "1,5"}': "l array<int> (given: array of string), "
        "p decimal(3,1) (given: string)",
        b'{"l": {"a": 1}, "m": {"a": true}}': "l array<int> (given: object), "
        "m map<string,int> (given: object)",
        b'{"id": true, "n": null}': "id bigint (given: boolean)",
    }
    told = {data: f"does not fit: {text}" for data, text in reasons.items()}
    told[b'{"id": "x", "id": "y"}'] = "a value does not fit the schema"
    _, found, _ = decoded(spark, decoding, *told)
    assert found == told


REASONS = {
    b"": "empty",
    b"not json": "not one JSON value",
    b'{"id": 1} and more': "not one JSON value",
    b'{"id": 1}{"id": 2}': "not one JSON value",
    b'{"id": 1}, {"id": 2}': "not one JSON value",
    b'{"id": 1}, "": {"id": 2}': "not one JSON value",
    b'{"id": 1}] and more': "not one JSON value",
    b'{"id": 1}} and more': "not one JSON value",
    b'{"id": "1"}} and more': "not one JSON value",
    # Forms that readers of JSON often accept, in a column and outside the schema.
    b"{'id': 21}": "not one JSON value",
    b'{"id": 1, "x": \'y\'}': "not one JSON value",
    b"{id: 21}": "not one JSON value",
    b'{"id": 021}': "not one JSON value",
    b'{"id": +1}': "not one JSON value",
    b'{"id": 1, "x": .5}': "not one JSON value",
    b'{"id": 1, "x": NaN}': "not one JSON value",
    b'{"id": 1, "x": -Infinity}': "not one JSON value",
    b'{"id": 1, "country": "a\tb"}': "not one JSON value",
    b'{"id": 1, "x": "a\nb"}': "not one JSON value",
    b'{"id": 1, "x": "\\q"}': "not one JSON value",
    b'{"id": 1,}': "not one JSON value",
    b'{"id": 1, "x": [1,]}': "not one JSON value",
    b'{"id": 1 /* one */}': "not one JSON value",
    b'{"id": 1, "country": "\xff"}': "not UTF-8",
    b'[{"id": 1}]': "not a JSON object",
    b"null": "not a JSON object",
    b'{"id": "x", "country": []}': "does not fit: id bigint (given: string)",
    b'{"country": "DE"}': "missing: id",
    None: "empty",
}


def test_the_json_decoding_tells_why_a_message_is_bad_and_keeps_its_data(
    spark: SparkSession,
) -> None:
    """Each malformed message has one reason."""
    decoding = JsonDecoding.from_ddl("id BIGINT NOT NULL, country STRING")
    good, reasons, _ = decoded(spark, decoding, *REASONS)
    assert (good, reasons) == ([], REASONS)


def test_the_event_range_makes_messages_bad_that_are_far_from_their_publish_time(
    spark: SparkSession,
) -> None:
    """The range includes its ends; local times and dates count as UTC, and null is in range."""
    decoding = JsonDecoding.from_ddl(
        "t TIMESTAMP, n TIMESTAMP_NTZ, d DATE, other TIMESTAMP",
        event_range=30 * DAY,
        event_columns=("t", "n", "d", "pubsub_publish_time"),
    )
    near = [
        {"t": "2026-10-28T00:00:00Z", "n": "2026-12-27T00:00:00", "d": "2026-10-28"},
        {"other": "1970-01-01T00:00:00Z"},
        {},
    ]
    far = [
        ({"t": "2026-10-27T23:59:59.999999Z"}, "t"),
        ({"t": "9999-12-31T23:59:59Z"}, "t"),
        ({"n": "2026-12-27T00:00:00.000001"}, "n"),
        ({"d": "2026-12-28", "n": "0001-01-01"}, "n, d"),
    ]
    data = [json.dumps(one).encode() for one in (*near, *(one for one, _ in far))]
    for zone in ("Pacific/Auckland", "America/Los_Angeles"):
        with session_zone(spark, zone):
            read = decoding.read(messages(spark, *data), "")
            assert decoding.good(read).count() == len(near)
            told = [row.reason for row in decoding.bad(read).select("reason").collect()]
        prefix = "more than 30 days from the publish time: "
        assert told == [f"{prefix}{names}" for _, names in far]


def test_the_text_decoding_makes_one_column_and_refuses_other_encodings(
    spark: SparkSession,
) -> None:
    """Text that is not UTF-8 is bad. All other data, an empty one included, is kept as it is."""
    texts = ["", "ä\n", "\ufeffx", '{"id": 1}']
    decoding = TextDecoding()
    good, reasons, counts = decoded(spark, decoding, *(text.encode() for text in texts), b"\xff")
    assert [row.text for row in good] == texts
    assert reasons == {b"\xff": "not UTF-8"}
    assert counts == {}
    names = ["text", "pubsub_message_id", "pubsub_publish_time", "pubsub_batch"]
    assert good[0].__fields__ == names
    assert decoding.required == set(names)


def test_decoded_tables_have_the_names_of_message_and_batch_or_none_of_them(
    spark: SparkSession,
) -> None:
    """Every row names its batch. Without metadata, only the bad rows do.

    An undecoded table has the columns of the source, and each of them keeps its name.
    """
    for with_metadata, without in (
        (JsonDecoding.from_ddl("id INT"), JsonDecoding.from_ddl("id INT", metadata=False)),
        (TextDecoding(), TextDecoding(metadata=False)),
    ):
        data = [b'{"id": 1}', b"\xff"]
        own = {"pubsub_message_id": "0", "pubsub_publish_time": PUBLISHED, "pubsub_batch": BATCH}
        (row,), _, _ = decoded(spark, with_metadata, *data)
        told = row.asDict()
        assert told.pop("pubsub_publish_time").astimezone(timezone.utc) == PUBLISHED
        assert told.pop("pubsub_batch") == str(BATCH)
        assert told.pop("pubsub_message_id") == "0"
        assert len(told) == 1
        (row,), _, _ = decoded(spark, without, *data)
        assert row.asDict() == told
        for decoding in (with_metadata, without):
            read = decoding.read(messages(spark, *data), str(BATCH))
            (bad,) = decoding.bad(read).collect()
            assert set(bad.asDict()) == {"data", "reason", *own}
            assert bad.pubsub_batch == str(BATCH)
    undecoded = Undecoded()
    read = undecoded.read(messages(spark, b"x"), str(BATCH))
    assert undecoded.good(read).columns == ["message_id", "data", "publish_time"]


# ---- tables --------------------------------------------------------------------------------------


def table(folder: Path, decoding: Decoding, rows: DataFrame) -> tuple[TableTarget, TableTarget]:
    """Return open tables of Parquet files for good and for bad rows."""
    read = decoding.read(rows, "")
    targets = []
    for name, columns in (("rows", decoding.good(read)), ("bad", decoding.bad(read))):
        target = TableTarget(FileTable(str(folder / name), (), {}))
        target.open(rows.sparkSession, arrow_schema(columns.schema, decoding.required))
        targets.append(target)
    return targets[0], targets[1]


def test_a_schema_with_hundreds_of_not_null_columns_is_written_with_its_bad_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hundreds of conditions do not exhaust Java's stack, neither for good rows nor for reasons."""
    columns = 400
    kinds = ("BIGINT", "STRING", "TIMESTAMP", "DOUBLE")
    names = [f"c{number}" for number in range(columns)]
    ddl = ", ".join(f"{name} {kinds[int(name[1:]) % 4]} NOT NULL" for name in names)
    decoding = JsonDecoding.from_ddl(ddl)
    values = ("1", "x", "2026-11-27T00:00:00.123456789Z", "1.5")
    whole = {name: values[int(name[1:]) % 4] for name in names}
    partial = {
        name: value for name, value in whole.items() if name not in ("c1", f"c{columns - 1}")
    }
    unfit = whole | {"c0": "x", f"c{columns - 2}": "never"}
    data = [json.dumps(one).encode() for one in (whole, partial, unfit)]
    rows = messages(spark, *data)
    target, bad = table(tmp_path, decoding, rows)
    handler = BatchHandler(decoding, target, bad, name=lambda number: BatchName("a" * 16, number))
    handler(rows, 0)
    assert handler.totals == Totals(
        batches=1, rows=3, bytes=sum(map(len, data)), bad=2, unknown_fields=0, cut_times=1
    )
    (row,) = ds.dataset(target.place).to_table().to_pylist()
    assert len([name for name in names if row[name] is not None]) == columns
    assert row["pubsub_batch"] == str(BatchName("a" * 16, 0))
    reasons = ds.dataset(bad.place).to_table().column("reason").to_pylist()
    assert reasons == [
        f"missing: c1, c{columns - 1}",
        f"does not fit: c0 bigint (given: string), c{columns - 2} timestamp (given: string)",
    ]


def test_a_table_warns_once_about_batches_with_more_than_a_hundred_partitions(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names the table and the number, and comes at the first such batch only."""
    fields = (PartitionField("identity", "id", 0, "id"),)
    target = TableTarget(FileTable(str(tmp_path / "rows"), fields, {}))
    rows = spark.range(100).coalesce(1)
    target.open(spark, arrow_schema(rows.schema, {"id"}))
    with caplog.at_level(logging.WARNING, "pullstream.spark"):
        target.write(rows, BatchName("a", 0))
        assert caplog.messages == []
        for number in (1, 2):
            target.write(spark.range(101).coalesce(1), BatchName("a", number))
    (told,) = caplog.messages
    assert told.startswith(f"a batch of {tmp_path / 'rows'} has 101 partitions")


def test_the_ingest_command_decodes_with_zone_range_and_without_metadata(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """The options reach the table, and the report has what was left out and cut."""
    subscribed(broker)
    now = datetime.fromtimestamp(int(SYSTEM_CLOCK.now()), timezone.utc).replace(tzinfo=None)
    records = [
        {"id": "1", "at": f"{now.isoformat()}.123456789", "more": 1},
        {"id": 2, "at": "2001-01-01T00:00:00Z"},
    ]
    with TopicAdminClient(endpoint=broker.endpoint) as topics:
        topics.publish(TOPIC, [{"data": json.dumps(one).encode()} for one in records])
    result = pullstream(
        *("ingest", "--subscription", SUBSCRIPTION, "--endpoint", broker.endpoint),
        *("--to", str(tmp_path / "rows"), "--available-now", "--decode", "json"),
        *("--schema", "id BIGINT, at TIMESTAMP", "--partition-by", "day(at)"),
        *("--time-zone", "+01:00", "--event-range", "30d", "--no-metadata"),
        *("--option", "drainWaitMs=300", "--option", "lingerMs=50", "--json"),
    )
    assert result.code == 0, result.stderr
    told = result.objects[-1]
    assert (told["messages"], told["bad"], told["unknownFields"], told["cutTimes"]) == (2, 1, 1, 1)
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert found.columns == ["id", "at", "at_day"]
    ((at,),) = found.select(F.unix_micros("at")).collect()
    utc = now.replace(tzinfo=timezone.utc) - timedelta(hours=1)
    assert at == round(utc.timestamp()) * 1_000_000 + 123456
    (bad,) = spark.read.parquet(str(tmp_path / "rows-deadletter")).collect()
    assert bad.reason == "more than 30 days from the publish time: at"


def test_the_ingest_command_partitions_decoded_text_by_the_day_of_publication(
    spark: SparkSession, broker: Emulator, tmp_path: Path
) -> None:
    """The publish time has the name `pubsub_publish_time` in a decoded table."""
    subscribed(broker)
    with TopicAdminClient(endpoint=broker.endpoint) as topics:
        topics.publish(TOPIC, [{"data": b"one"}, {"data": b"\xff"}])
    for name, column, decode in (
        ("decoded", "pubsub_publish_time", ("--decode", "text")),
        ("plain", "publish_time", ()),
    ):
        result = pullstream(
            *("ingest", "--subscription", SUBSCRIPTION, "--endpoint", broker.endpoint),
            *("--to", str(tmp_path / name), "--available-now", *decode),
            *("--partition-by", f"day({column})"),
            *("--option", "drainWaitMs=300", "--option", "lingerMs=50", "--json"),
        )
        assert result.code == 0, result.stderr
        if decode:
            (row,) = spark.read.parquet(str(tmp_path / name)).collect()
            assert row.text == "one"
            assert row[f"{column}_day"] == row[column].date()
            with TopicAdminClient(endpoint=broker.endpoint) as topics:
                topics.publish(TOPIC, [{"data": b"two"}])
        else:
            (row,) = spark.read.parquet(str(tmp_path / name)).collect()
            assert (bytes(row.data), row.publish_time_day) == (b"two", row.publish_time.date())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"decode": "text", "schema": "id INT"}, "schema is given, but decode is 'text'"),
        ({"metadata": False}, "metadata is False, but decode is missing"),
        ({"time_zone": "Europe/Berlin"}, "time_zone is 'Europe/Berlin', but only decode='json'"),
        ({"decode": "text", "event_range": DAY}, "event_range is the distance of partition_by's"),
        (
            {"decode": "json", "schema": "t TIMESTAMP", "event_range": DAY},
            "it needs decode='json', and day(COLUMN) or hour(COLUMN) in partition_by",
        ),
        (
            {
                "decode": "json",
                "schema": "t TIMESTAMP",
                "event_range": DAY,
                "partition_by": ("day(pubsub_publish_time)",),
            },
            "with a column of the schema",
        ),
        (
            {
                "decode": "json",
                "schema": "t TIMESTAMP",
                "event_range": 0.0,
                "partition_by": ("day(t)",),
            },
            "event_range is 0.0; it must be more than 0 seconds",
        ),
        (
            {
                "decode": "json",
                "schema": "t TIMESTAMP",
                "event_range": math.inf,
                "partition_by": ("day(t)",),
            },
            "event_range is inf; it must be",
        ),
    ],
)
def test_the_ingest_job_refuses_decoding_options_without_an_effect(
    arguments: dict[str, Any], text: str
) -> None:
    """Each refusal names the option, its value, and what it needs."""
    with pytest.raises(ValueError, match=re.escape(text)):
        IngestJob(subscription=SUBSCRIPTION, to="/data/rows", **arguments)


def test_the_ingest_command_refuses_no_metadata_without_decoding(tmp_path: Path) -> None:
    """An undecoded row is the message itself."""
    told = usage_error(
        *("ingest", "--subscription", SUBSCRIPTION, "--to", str(tmp_path), "--no-metadata")
    )
    assert "--no-metadata is given, but --decode is missing" in told


def test_a_replayed_batch_keeps_the_decoding_that_decides_which_rows_are_good() -> None:
    """Zone and range are among the values that must not change before a replay."""
    job = IngestJob(
        subscription=SUBSCRIPTION,
        to="/data/rows",
        decode="json",
        schema="t TIMESTAMP",
        partition_by=("day(t)",),
        event_range=30 * DAY,
        time_zone="+02:00",
    )
    assert job.reading == {
        "decode": "json",
        "schema": "t TIMESTAMP",
        "time_zone": "+02:00",
        "event_range": "2592000.0 s",
    }
