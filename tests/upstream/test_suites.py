"""Google's suites are found in their source trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from .suites import SAMPLES, SUITES, SYSTEM, Suite, find


def lay_out(package: Path, *files: str) -> None:
    """Make a source tree of google-cloud-pubsub with these files in it."""
    (package / "google" / "pubsub_v1").mkdir(parents=True)
    for file in files:
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).touch()


@pytest.mark.parametrize("root", [".", "unpacked", "packages/google-cloud-pubsub"])
def test_upstream_test_suites_are_found_in_a_tree_of_the_package_or_of_its_repository(
    tmp_path: Path, root: str
) -> None:
    """The tree is unpacked, cloned, or a part of the repository of all packages."""
    lay_out(tmp_path / root, SYSTEM)
    assert [(each.suite.name, each.path) for each in find(tmp_path)] == [
        ("system", tmp_path / root / SYSTEM)
    ]


def test_upstream_test_suites_are_collected_from_several_source_trees(tmp_path: Path) -> None:
    """The source package has no samples, and the repository's releases differ. Both are used."""
    lay_out(tmp_path / "package", SYSTEM)
    lay_out(tmp_path / "repository", f"{SAMPLES}/iam_test.py", f"{SAMPLES}/schema_test.py")
    assert [each.suite.name for each in find(tmp_path)] == ["system", "schema", "iam"]


def test_the_search_for_googles_pubsub_test_suites_ignores_other_google_packages(
    tmp_path: Path,
) -> None:
    """Every package of Google's has a tests/system.py."""
    (tmp_path / "storage" / "tests").mkdir(parents=True)
    (tmp_path / "storage" / SYSTEM).touch()
    assert find(tmp_path) == []


def suite(name: str) -> Suite:
    (found,) = (each for each in SUITES if each.name == name)
    return found


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("system", "test_publish_messages[rest]"),
        ("system", "test_subscriber_not_leaking_open_sockets[grpc-rest]"),
        ("subscriber", "test_create_bigquery_subscription"),
        ("subscriber", "test_create_cloudstorage_subscription"),
    ],
)
def test_upstream_test_cases_that_need_more_than_a_broker_are_skipped_with_a_reason(
    name: str, case: str
) -> None:
    """The table gives the reason."""
    assert suite(name).reason(f"x.py::{case}")


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("system", "test_publish_messages[grpc]"),
        ("system", "TestStreamingPull::test_streaming_pull_max_messages[grpc-grpc]"),
        ("subscriber", "test_create_push_subscription"),
        ("schema", "test_create_avro_schema"),
    ],
)
def test_upstream_test_cases_that_need_only_a_broker_are_run(name: str, case: str) -> None:
    """No case is left out because it fails."""
    assert suite(name).reason(f"x.py::{case}") is None
