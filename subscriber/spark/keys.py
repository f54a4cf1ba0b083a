"""What stands for a message's id in tables of hundreds of thousands."""

from __future__ import annotations

from collections.abc import Sequence

# The number that an id is, if nothing else is written so; else the id.
Key = int | str


def key_of(message_id: str) -> Key:
    """The key of one id."""
    if message_id.isdigit() and message_id.isascii() and not message_id.startswith("0"):
        try:
            return int(message_id)
        except ValueError:
            # Python reads no number of more than some thousand digits.
            pass
    return message_id


def keys_of(message_ids: Sequence[str]) -> list[Key]:
    """`key_of` of each, much faster where all are numbers, as Google's are.

    A number takes half of the memory. And numbers that follow one another stand side by side in a
    set or a dict, where each text is somewhere else in memory: to look up the next costs nothing.
    """
    # A line break before each id: 0 behind one is written first, and there are no others.
    text = "\n".join(("", *message_ids))
    digits = text.replace("\n", "")
    alone = len(digits) + len(message_ids) == len(text)
    if alone and digits.isdigit() and digits.isascii() and "\n0" not in text:
        try:
            return list(map(int, message_ids))
        except ValueError:
            # One is empty, or too long.
            pass
    return [key_of(message_id) for message_id in message_ids]
