"""Short names are converted to Pub/Sub's resource names and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pullstream_emulator.rest.v0 import short_names

NAME = st.text("ab:1/é%& ", min_size=1, max_size=10)


@given(NAME)
def test_a_short_v0_topic_name_survives_the_conversion_to_a_topic_id_and_back(name: str) -> None:
    """A name that looks like an encoded one stands for the decoded name."""
    path = short_names.topic_path("p", name)
    assert path.startswith("projects/p/topics/")
    assert path.count("/") == 3
    assert short_names.topic_path("p", short_names.short(path)) == path
    if "%" not in name:
        assert short_names.short(path) == name
