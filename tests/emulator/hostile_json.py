"""Random JSON that APIs must refuse."""

from __future__ import annotations

import json
import random
from typing import Any


class HostileJson:
    """Generates hostile request bodies. The same seed gives the same bodies.

    Args:
        fields: Names of object fields.
        texts: String values.
    """

    fields: tuple[str, ...]
    texts: tuple[str, ...]

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, depth: int = 4) -> Any:
        kinds = ["text", "number", "literal"] + ["list", "object"] * (depth > 0)
        match self.random.choice(kinds):
            case "text":
                return self.random.choice(self.texts)
            case "number":
                return self.random.choice([0, -1, 1.5, 1e300, 2**31, 2**63, 2**64, 10**400])
            case "literal":
                return self.random.choice([None, True, False])
            case "list":
                return [self.value(depth - 1) for _ in range(self.random.randrange(4))]
            case _:
                fields = self.random.sample(self.fields, self.random.randrange(6))
                return {field: self.value(depth - 1) for field in fields}

    def body(self) -> bytes:
        text = json.dumps(self.value()).encode()
        if self.random.random() < 0.2:
            return self.random.randbytes(self.random.randrange(50))
        if self.random.random() < 0.2:
            return text[: self.random.randrange(len(text) + 1)]
        return text
