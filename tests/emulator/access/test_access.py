"""Access control with tokens, principals and projects, and the texts of refusals."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from pullstream_emulator.access import (
    ALL_PROJECTS,
    Access,
    AccessError,
    Principal,
    Tls,
    auth_file,
    exposure_warning,
)
from pullstream_emulator.access.options import access_from
from pullstream_emulator.access.request_projects import RESOURCE_FIELDS, projects_of
from pullstream_protocol.errors import PermissionDenied, Unauthenticated
from pullstream_protocol.messages import pubsub_pb2 as pubsub
from pullstream_protocol.messages import schema_pb2 as schema
from pullstream_protocol.rpcs import RPCS
from tests.emulator.certificates import new_identity

CI = Principal("ci", frozenset({"test", "dev"}))
ROOT = Principal("root")


@pytest.fixture
def access() -> Access:
    return Access({"t-ci": CI, "t-ci-2": CI, "t-root": ROOT})


# ---- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "principal"),
    [("Bearer t-ci", CI), ("bearer t-ci-2", CI), ("Bearer  t-root ", ROOT)],
)
def test_a_token_tells_who_calls(access: Access, header: str, principal: Principal) -> None:
    """The token is in the header that every client uses."""
    assert access.authenticate(header) is principal


@pytest.mark.parametrize("header", [None, ""])
def test_a_call_without_token_is_refused(access: Access, header: str | None) -> None:
    """The error says that the token is missing."""
    with pytest.raises(Unauthenticated, match="missing required authentication"):
        access.authenticate(header)


@pytest.mark.parametrize(
    "header",
    [
        *("Bearer", "Bearer ", "Bearer t-c", "Bearer t-ci3", "Bearer T-CI", "Bearer t-ci t-ci"),
        *("t-ci", "Basic t-ci", "Bearer \udcff", "Bearer ü"),
    ],
)
def test_a_wrong_token_is_refused(access: Access, header: str) -> None:
    """The error text is the same for all wrong tokens, and contains no token."""
    with pytest.raises(Unauthenticated) as refused:
        access.authenticate(header)
    assert refused.value.message == "Request had invalid authentication credentials."


# ---- projects ------------------------------------------------------------------------------------


@pytest.mark.parametrize("projects", [(), ("test",), ("test", "dev")])
def test_a_principal_may_use_its_projects(access: Access, projects: tuple[str, ...]) -> None:
    """One call may name several of them."""
    access.check("Bearer t-ci", *projects)


@pytest.mark.parametrize(
    "projects", [("prod",), ("test", "prod"), ("TEST",), ("",), (ALL_PROJECTS,)]
)
def test_and_no_others(
    access: Access, projects: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the reason; the caller does not get it."""
    with (
        caplog.at_level(logging.INFO, "pullstream.emulator"),
        pytest.raises(PermissionDenied) as refused,
    ):
        access.check("Bearer t-ci", *projects)
    assert refused.value.message == "User not authorized to perform this action."
    assert caplog.messages == [f"ci was refused access to: {', '.join(projects)}"]


def test_tokens_by_themselves_open_everything() -> None:
    """This includes operations on the whole broker."""
    access = access_from(["one", "two"], None)
    assert access is not None
    access.check("Bearer one", "any", "other")
    access.check("Bearer two", ALL_PROJECTS)
    with pytest.raises(Unauthenticated):
        access.check("Bearer three", "any")


# ---- projects of a request -----------------------------------------------------------------------


@pytest.mark.parametrize("rpc", RPCS, ids=lambda rpc: rpc.method)
def test_every_request_names_its_project(rpc: Any) -> None:
    """Each field with a resource name counts, including those of RPCs that are added later."""
    for path in RESOURCE_FIELDS[rpc.request.DESCRIPTOR.name]:
        request = rpc.request()
        name_resource(request, path, "projects/p1/things/x")
        assert projects_of(request) == ["p1"]


def name_resource(request: Any, path: str, name: str) -> None:
    """Set a field to a name.

    In a list set the first item; in a map set the key, if there is one.
    """
    *parents, field = path.split(".")
    for parent in parents:
        value = getattr(request, parent)
        request = value if isinstance(value, Message) else value.add()
    if isinstance(getattr(request, field), str):
        setattr(request, field, name)
    else:
        getattr(request, field)[name].SetInParent()


def test_a_subscription_touches_all_the_projects_that_it_names() -> None:
    """They are the projects of the subscription, its topic, and its dead-letter topic."""
    request = pubsub.Subscription(name="projects/a/subscriptions/s", topic="projects/b/topics/t")
    request.dead_letter_policy.dead_letter_topic = "projects/c/topics/t"
    assert projects_of(request) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("name", "projects"),
    [
        ("projects/p", ["p"]),
        ("projects/p/schemas/s@abc", ["p"]),
        ("projects//schemas/s", [""]),
        ("", []),
        ("schemas/s", []),
        ("x/projects/p", []),
        ("projects", []),
    ],
)
def test_a_project_is_read_where_names_have_it(name: str, projects: list[str]) -> None:
    """A text that is no resource name has no project."""
    assert projects_of(schema.GetSchemaRequest(name=name)) == projects


# ---- the token file ------------------------------------------------------------------------------

GOOD = {
    "principals": {
        "ci": {"tokens": ["t-ci", "t-ci-2"], "projects": ["test", "dev"]},
        "root": {"tokens": ["t-root"], "projects": ["*"]},
    }
}


def written(folder: Path, content: Any, name: str = "auth.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["auth.json", "auth.yaml", "auth.yml", "auth"])
def test_a_file_says_whose_each_token_is(tmp_path: Path, name: str) -> None:
    """The file is JSON or YAML. JSON is a subset of YAML."""
    read = auth_file.read(written(tmp_path, GOOD, name))
    assert read == {"t-ci": CI, "t-ci-2": CI, "t-root": Principal("root", frozenset({"*"}))}


def test_yaml_is_read_as_people_write_it(tmp_path: Path) -> None:
    """The YAML has no quotes and braces."""
    text = "principals:\n  ci:\n    tokens: [t-ci]\n    projects:\n      - test\n      - dev\n"
    assert auth_file.read(written(tmp_path, text, "auth.yaml")) == {"t-ci": CI}


def test_the_example_of_the_guide_is_such_a_file(tmp_path: Path) -> None:
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
def test_a_bad_file_is_refused(tmp_path: Path, content: Any, text: str) -> None:
    """The error names the file and the position, and no token."""
    path = written(tmp_path, content)
    with pytest.raises(AccessError, match=r"auth\.json") as refused:
        auth_file.read(path)
    assert f"{path}: {text}" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_bad_yaml_is_refused_without_quoting_it(tmp_path: Path) -> None:
    """The text of the YAML error would show the line."""
    path = written(tmp_path, "principals:\n  ci: {tokens: [s3cret\n  : :", "auth.yaml")
    with pytest.raises(AccessError, match=r"auth\.yaml: not YAML, at line 3") as refused:
        auth_file.read(path)
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
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
def test_a_principal_stands_in_a_file_once(
    tmp_path: Path, name: str, text: str, twice: str
) -> None:
    """Of two entries a parser would drop the first one with its tokens."""
    entries = [json.dumps({"tokens": [token], "projects": ["p"]}) for token in ("one", "s3cret")]
    with pytest.raises(AccessError, match=twice) as refused:
        auth_file.read(written(tmp_path, text % tuple(entries), name))
    assert "s3cret" not in str(refused.value)


def test_the_tables_of_yaml_may_be_merged(tmp_path: Path) -> None:
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
def test_an_empty_file_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(AccessError, match="the file is empty: write the key 'principals'"):
        auth_file.read(written(tmp_path, text, name))


# ---- options -------------------------------------------------------------------------------------


def test_tokens_and_a_file_may_be_given_together(tmp_path: Path) -> None:
    """Tokens of the command line allow everything. Tokens of the file allow what the file says."""
    access = access_from(["t-admin"], written(tmp_path, GOOD))
    assert access is not None
    access.check("Bearer t-admin", ALL_PROJECTS)
    access.check("Bearer t-ci", "test")
    with pytest.raises(PermissionDenied):
        access.check("Bearer t-ci", "prod")


def test_a_token_opens_everything_or_what_the_file_says(tmp_path: Path) -> None:
    """One token cannot be both, because a principal with few projects would get access to all."""
    with pytest.raises(AccessError, match=r"auth\.json: one of its tokens is also") as refused:
        access_from(["t-ci"], written(tmp_path, GOOD))
    assert "t-ci" not in str(refused.value)


def test_without_options_there_is_nothing_to_check() -> None:
    """There is no object that could make calls slower."""
    assert access_from([], None) is None


@pytest.mark.parametrize("token", ["", "  "])
def test_an_empty_token_is_refused(token: str) -> None:
    """It may come from a variable that was not set."""
    with pytest.raises(AccessError, match="must not be empty"):
        access_from(["good", token], None)


# ---- exposure ------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1", "nowhere.invalid"])
def test_this_machine_needs_no_warning(host: str) -> None:
    """An address on which nothing can listen needs none either."""
    assert exposure_warning.warning(host, None, None) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", ""])
def test_other_machines_do(host: str, tmp_path: Path, access: Access) -> None:
    """The warning names the missing protection. With tokens and TLS there is no warning."""
    certificate, key = new_identity("broker").write(tmp_path)
    tls, mutual = Tls(certificate, key), Tls(certificate, key, certificate)
    warnings = {
        "neither": exposure_warning.warning(host, None, None) or "",
        "tls": exposure_warning.warning(host, tls, None) or "",
        "access": exposure_warning.warning(host, None, access) or "",
    }
    said = {k: ("without TLS" in w, "without tokens" in w) for k, w in warnings.items()}
    assert said == {"neither": (True, True), "tls": (False, True), "access": (True, False)}
    assert exposure_warning.warning(host, tls, access) is None
    assert exposure_warning.warning(host, mutual, None) is None
