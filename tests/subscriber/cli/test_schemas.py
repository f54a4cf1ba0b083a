"""`pullstream schemas`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pullstream_protocol import names
from tests.subscriber.command_line import failure, pullstream

pytestmark = pytest.mark.usefixtures("broker")

SCHEMA = names.schema_path("test-project", "order")


def definition(folder: Path, *fields: str) -> str:
    """Write an Avro schema and return the file's path."""
    content = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": each, "type": "int", "default": 0} for each in fields],
    }
    path = folder / f"{'-'.join(fields)}.avsc"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def test_the_schemas_command_commits_rolls_back_and_deletes_revisions(tmp_path: Path) -> None:
    """Each revision has an id, which a name may end with."""
    first, second = definition(tmp_path, "id"), definition(tmp_path, "id", "cents")
    avro = ("--type", "avro", "--file")
    assert pullstream("schemas", "create", "order", *avro, first).lines == [f"{SCHEMA} created"]
    (old,) = [each["revisionId"] for each in pullstream("schemas", "list", "--json").objects]
    (committed,) = pullstream("schemas", "commit", "order", *avro, second, "--json").objects
    assert committed["revisionId"] != old
    described = pullstream("schemas", "describe", "order", "--json").objects[0]
    assert "cents" in described["definition"]
    assert "cents" not in pullstream("schemas", "describe", f"order@{old}").stdout.decode()
    (rolled,) = pullstream("schemas", "rollback", "order", "--revision", old, "--json").objects
    found = [
        each["revisionId"] for each in pullstream("schemas", "revisions", "order", "--json").objects
    ]
    assert found == [rolled["revisionId"], committed["revisionId"], old]
    pullstream("schemas", "delete", f"order@{old}")
    assert len(pullstream("schemas", "revisions", "order").lines) == 2
    assert pullstream("schemas", "delete", "order").lines == [f"{SCHEMA} deleted"]
    assert pullstream("schemas", "list").lines == []


def test_the_schemas_command_validates_schema_definitions_and_messages(tmp_path: Path) -> None:
    """Nothing is stored or published. The error is the server's."""
    good = definition(tmp_path, "id")
    validate = ("schemas", "validate", "--type", "avro", "--file")
    assert pullstream(*validate, good).lines == ["valid"]
    assert "INVALID_ARGUMENT" in failure(*validate, "-", stdin=b"{")
    assert pullstream(*validate, "-", stdin=b"\xff").code == 2
    assert pullstream("schemas", "list").lines == []
    pullstream("schemas", "create", "order", "--type", "avro", "--file", good)
    check = ("schemas", "validate-message", "order", "--file", "-")
    assert pullstream(*check, stdin=b'{"id": 1}').lines == ["valid"]
    assert pullstream(*check, stdin=b'{"id": "one"}').code == 1
    assert pullstream(
        *check,
        "--encoding",
        "binary",
        stdin=b"\x02",
    ).lines == ["valid"]
