"""Tokens, principals and projects are read from the file of `--auth-file`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pullstream_emulator.access import AccessError, Principal, auth_file
from tests.emulator.access.principals import CI, GOOD, written


@pytest.mark.parametrize("name", ["auth.json", "auth.yaml", "auth.yml", "auth"])
def test_an_auth_file_maps_each_token_to_its_principal(tmp_path: Path, name: str) -> None:
    """The file is JSON or YAML. JSON is a subset of YAML."""
    read = auth_file.read(written(tmp_path, GOOD, name))
    assert read == {"t-ci": CI, "t-ci-2": CI, "t-root": Principal("root", frozenset({"*"}))}


def test_an_auth_file_may_be_block_style_yaml(tmp_path: Path) -> None:
    """The YAML has no quotes and braces."""
    text = "principals:\n  ci:\n    tokens: [t-ci]\n    projects:\n      - test\n      - dev\n"
    assert auth_file.read(written(tmp_path, text, "auth.yaml")) == {"t-ci": CI}


def test_the_auth_file_example_of_the_security_guide_is_valid(tmp_path: Path) -> None:
    """The example is in docs/security.md."""
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    tokens = auth_file.read(written(tmp_path, example, "principals.yaml"))
    assert {principal.name for principal in tokens.values()} == {"ci", "operator"}
    assert tokens["4f9c2b7a61d0"].projects == {"test", "staging"}


def entry(**changes: Any) -> Any:
    return {"principals": {"ci": {"tokens": ["s3cret"], "projects": ["test"], **changes}}}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "not JSON, at line 1"),
        ("[]", "must have one key, 'principals'"),
        ({}, "must have one key, 'principals'"),
        ({"principals": {}}, "must have one key, 'principals'"),
        ({**entry(), "more": 1}, "must have one key, 'principals'"),
        ({"principals": {"ci": None}}, "principals.ci must have the keys"),
        (entry(extra=1), "principals.ci must have the keys"),
        ({"principals": {"ci": {"tokens": ["s3cret"]}}}, "principals.ci must have the keys"),
        (entry(tokens="s3cret"), "principals.ci.tokens must be a list"),
        (entry(tokens=[]), "principals.ci.tokens must be a list"),
        (entry(tokens=["s3cret", ""]), "principals.ci.tokens: no item may be empty"),
        (entry(tokens=["s3cret two"]), "principals.ci.tokens: each item must be text in ASCII"),
        (entry(tokens=["s3cretü"]), "principals.ci.tokens: each item must be text in ASCII"),
        (entry(tokens=[1]), "principals.ci.tokens: each item must be text in ASCII"),
        (entry(tokens=["s3cret", "s3cret"]), "principals.ci.tokens: a token occurs twice"),
        (entry(projects=[]), "principals.ci.projects must be a list"),
        (entry(projects=[7]), "principals.ci.projects: each item must be text"),
    ],
)
def test_the_broker_refuses_an_invalid_auth_file(tmp_path: Path, content: Any, text: str) -> None:
    """The error names the file and the position, and no token."""
    path = written(tmp_path, content)
    with pytest.raises(AccessError, match=r"auth\.json") as refused:
        auth_file.read(path)
    assert f"{path}: {text}" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_the_error_for_an_auth_file_with_invalid_yaml_contains_no_token(tmp_path: Path) -> None:
    """The text of the YAML error would show the line."""
    path = written(tmp_path, "principals:\n  ci: {tokens: [s3cret\n  : :", "auth.yaml")
    with pytest.raises(AccessError, match=r"auth\.yaml: not YAML, at line 3") as refused:
        auth_file.read(path)
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_the_broker_refuses_an_unreadable_auth_file(tmp_path: Path) -> None:
    """The file may not exist, or may not be text."""
    with pytest.raises(AccessError, match=r"none\.json: No such file"):
        auth_file.read(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(AccessError, match=r"binary\.json: not UTF-8"):
        auth_file.read(tmp_path / "binary.json")


@pytest.mark.parametrize(
    ("name", "text", "twice"),
    [
        ("a.json", '{"principals": {"ci": %s, "ci": %s}}', "the key 'ci' is given twice"),
        ("a.json", '{"principals": {"ci": %s}, "principals": {"x": %s}}', "the key 'principals'"),
        ("a.yaml", "principals:\n  ci: %s\n  ci: %s\n", "the key 'ci' is given twice"),
        # Two different keys of YAML, but the same name.
        ("a.yaml", 'principals:\n  7: %s\n  "7": %s\n', "the principal '7' is given twice"),
    ],
)
def test_the_broker_refuses_an_auth_file_with_a_duplicate_principal(
    tmp_path: Path, name: str, text: str, twice: str
) -> None:
    """Of two entries a parser would drop the first one with its tokens."""
    entries = [json.dumps({"tokens": [token], "projects": ["p"]}) for token in ("one", "s3cret")]
    with pytest.raises(AccessError, match=twice) as refused:
        auth_file.read(written(tmp_path, text % tuple(entries), name))
    assert "s3cret" not in str(refused.value)


def test_yaml_merge_keys_in_an_auth_file_are_resolved(tmp_path: Path) -> None:
    """A key may replace a merged one."""
    text = (
        "principals:\n"
        "  ci: &ci {tokens: [t-ci], projects: [test, dev]}\n"
        "  cd: {<<: *ci, tokens: [t-cd]}\n"
    )
    read = auth_file.read(written(tmp_path, text, "auth.yaml"))
    assert read == {"t-ci": CI, "t-cd": Principal("cd", CI.projects)}


@pytest.mark.parametrize("name", ["auth.json", "auth.yaml"])
@pytest.mark.parametrize("text", ["", " \n"])
def test_the_broker_refuses_an_empty_auth_file(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(AccessError, match="the file is empty: write the key 'principals'"):
        auth_file.read(written(tmp_path, text, name))
