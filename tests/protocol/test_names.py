"""Resource names: building, parsing, and validation by Google's rules."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pullstream_protocol import names
from pullstream_protocol.errors import InvalidArgument

BUILDERS: dict[str, Callable[[str, str], str]] = {
    "topics": names.topic_path,
    "subscriptions": names.subscription_path,
    "snapshots": names.snapshot_path,
    "schemas": names.schema_path,
}
PARTS = st.text(alphabet="abcXYZ019-_.~+%", min_size=1)


@pytest.mark.parametrize("collection", BUILDERS)
@given(project=PARTS, identifier=PARTS)
def test_a_resource_name_built_from_its_parts_is_parsed_into_the_same_parts(
    collection: str, project: str, identifier: str
) -> None:
    """The test covers every collection. The parser of another collection refuses the name."""
    path = BUILDERS[collection](project, identifier)
    singular = collection.removesuffix("s")
    assert names.parse(collection, path) == {"project": project, singular: identifier}
    assert names.short_id(path) == identifier
    assert names.project_of(path) == project
    assert not any(names.parse(other, path) for other in BUILDERS if other != collection)


@pytest.mark.parametrize(
    "path", ["", "projects", "projects/p/topics", "projects/p/topics/", "x/projects/p/topics/t"]
)
def test_a_malformed_resource_name_is_parsed_as_an_empty_dict(path: str) -> None:
    """Google's client does the same."""
    assert names.parse("topics", path) == {}


@pytest.mark.parametrize(
    "identifier", ["abc", "a" + "b" * 254, "Topic-1_2.3~4+5%", "goo-gle", "xgoog"]
)
def test_checking_a_valid_resource_name_returns_the_name_unchanged(identifier: str) -> None:
    """A name has 3 to 255 characters of a fixed set and begins with a letter."""
    path = f"projects/p/topics/{identifier}"
    assert names.validate("topics", path) == path


@pytest.mark.parametrize(
    "path",
    [
        *("", "abc", "projects/p/topics", "projects//topics/abc", "projects/p/topics/abc/d"),
        *("/projects/p/topics/abc", "projects/p/subscriptions/abc", "project/p/topics/abc"),
        *("projects/p/topics/ab", "projects/p/topics/a" + "b" * 255, "projects/p/topics/1ab"),
        *("projects/p/topics/goog", "projects/p/topics/google", "projects/p/topics/a b"),
        *("projects/p/topics/abc\n", "projects/p/topics/äbc", "projects/p/topics/a:c"),
    ],
)
def test_checking_an_invalid_resource_name_raises_an_error_with_googles_text(path: str) -> None:
    """The error has the value and the address of the rules."""
    with pytest.raises(InvalidArgument) as caught:
        names.validate("topics", path)
    assert caught.value.message.startswith(f"Invalid resource name given (name={path}).")
    assert "https://" in caught.value.message


def test_a_project_name_with_any_text_without_a_slash_is_valid() -> None:
    """Local brokers have project names that Google would refuse."""
    assert names.validate_project("projects/a") == "projects/a"
    assert names.project_path("a") == "projects/a"


@pytest.mark.parametrize("path", ["", "projects", "projects/", "projects/a/b", "topics/a"])
def test_checking_an_invalid_project_name_raises_an_error(path: str) -> None:
    """The text is the same as for other resources."""
    with pytest.raises(InvalidArgument, match="Invalid resource name given"):
        names.validate_project(path)
