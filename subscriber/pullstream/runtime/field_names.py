"""Other names for fields in the text of an error from Python, such as names of options."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping

# Forms in which a text names a field. Other words may be English.
_TOKEN = re.compile(
    r"""
    (?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")  # a value of the user
    | `(?P<quoted>\w+)`
    | (?<![-\w])(?P<given>[a-z_]+)=(?P<value>'[^']*'|\{[^}]*\})
    | (?<![-\w])(?<!the[ ])(?P<subject>[a-z_]+)(?=[ ](?:is|must)\b)
    | (?<![-\w/])(?P<long>[a-z]+(?:_[a-z]+)+)(?!\w)
    """,
    re.VERBOSE,
)


def with_names(text: str, names: Mapping[str, str]) -> str:
    """Return a text with other names for fields.

    A field is named in backticks, with a value (`decode='json'`), as a subject (`to is ...`), or by
    several words (`merge_on`).

    Args:
        text: The text.
        names: By field: the other name.
    """

    def replaced(found: re.Match[str]) -> str:
        name = names.get(found["quoted"] or found["given"] or found["subject"] or found["long"])
        if name is None or found["value"] is None:
            return name or found[0]
        value = ast.literal_eval(found["value"])
        if isinstance(value, dict):
            return " ".join(f"{name} {key}={one}" for key, one in value.items())
        return f"{name} {value if value == shlex.quote(value) else found['value']}"

    return _TOKEN.sub(replaced, text)
