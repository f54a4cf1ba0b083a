"""Spark's options: texts are converted, and wrong ones are explained."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pullstream.spark.option_parsing import (
    COUNT,
    DURATION,
    FLAG,
    MILLISECONDS,
    SIZE,
    TEXT,
    Kind,
    choice,
    read_options,
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (COUNT, "10", 10),
        (DURATION, "1.5h", 5400),
        (DURATION, " 500MS ", 0.5),
        (FLAG, "True", True),
        (MILLISECONDS, "250", 0.25),
        (SIZE, "64m", 64 * 2**20),
        (SIZE, "1 GiB", 2**30),
        (SIZE, "100", 100),
        (TEXT, " a b ", "a b"),
        (choice("files", "inline"), "INLINE", "inline"),
    ],
)
def test_texts_of_spark_options_are_parsed_into_values(kind: Kind, text: str, value: Any) -> None:
    """Upper and lower case, and space around the text, do not matter."""
    assert read_options({"someOption": kind}, {"SOMEOPTION": text}) == {"someOption": value}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (COUNT, "0"),
        (COUNT, "1.5"),
        (DURATION, "5"),
        (DURATION, "-1s"),
        (FLAG, "yes"),
        (MILLISECONDS, "-1"),
        (MILLISECONDS, "inf"),
        (MILLISECONDS, "nan"),
        (SIZE, "64x"),
        (TEXT, " "),
        (choice("files", "inline"), "file"),
    ],
)
def test_the_spark_data_source_refuses_invalid_texts_of_options(kind: Kind, text: str) -> None:
    """The error has the option, its text and the allowed form."""
    with pytest.raises(ValueError, match="option") as refused:
        read_options({"someOption": kind}, {"someOption": text})
    assert str(refused.value) == f"option 'someOption' is {text!r}; it must be {kind.form}"


def test_the_error_for_an_unknown_spark_option_names_a_similar_option() -> None:
    """A similar name is suggested, and credentials have a hint."""
    kinds = {"linger": COUNT, "tokenFile": TEXT}
    with pytest.raises(ValueError, match=r"did you mean 'linger'\?\); the options are"):
        read_options(kinds, {"lingr": "1"})
    with pytest.raises(ValueError, match="a broker's token is in 'tokenFile'"):
        read_options(kinds, {"credentialsFile": "key.json"})
