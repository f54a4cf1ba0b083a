"""Other names for the fields in an error."""

from __future__ import annotations

import pytest

from pullstream.runtime.field_names import with_names

NAMES = {"to": "--to", "decode": "--decode", "catalog": "--catalog", "merge_on": "mergeOn"}


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("`decode` and merge_on exclude each other", "--decode and mergeOn exclude each other"),
        ("to is missing; it must be given", "--to is missing; it must be given"),
        ("decode='json' needs a schema", "--decode json needs a schema"),
        ("decode='a b' is wrong", "--decode 'a b' is wrong"),
        ("catalog={'uri': 'x', 'type': 'sql'}", "--catalog uri=x --catalog type=sql"),
    ],
)
def test_the_fields_of_an_error_get_their_other_names(text: str, renamed: str) -> None:
    assert with_names(text, NAMES) == renamed


@pytest.mark.parametrize(
    "text",
    [
        "go to the folder",
        "'merge_on' is no column",
        "projects/p/subscriptions/merge_on",
        "the decode is wrong",
        "--merge_on and merge_on_x",
    ],
)
def test_words_values_and_names_of_resources_stay_as_they_are(text: str) -> None:
    assert with_names(text, NAMES) == text
