"""A user's files may have the names of this repository's folders."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import pullstream
from tests.completed import run_command

# Files that have broken real projects. Each raises when it is imported.
FILES = (
    "subscriber.py",
    "protocol.py",
    "emulator.py",
    "subscriber/__init__.py",
    "protocol/__init__.py",
    "emulator/__init__.py",
    "tests/subscriber/__init__.py",
)
USERS = 'WHOSE = "the user\'s"\n'

PROGRAM = """
import pullstream
import pullstream_emulator
import pullstream_protocol.errors
import pullstream.cli.program
import {module}

assert {module}.WHOSE == "the user's"
with pullstream_emulator.Emulator() as broker:
    with pullstream.TopicAdminClient(endpoint=broker.endpoint) as topics:
        topics.create_topic(name="projects/my-project/topics/orders")
"""

TEST = """
from pullstream import SubscriberClient


def test_the_broker_is_there(pubsub_emulator):
    with SubscriberClient(endpoint=pubsub_emulator.endpoint) as client:
        assert list(client.list_subscriptions(project="projects/my-project")) == []
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return run_command(command, cwd=folder)


@pytest.fixture(params=FILES)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """Return a user's project with one such file, and its import name."""
    file: str = request.param
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(USERS, encoding="utf-8")
    return tmp_path, file.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")


def test_a_script_beside_files_named_like_modules_of_the_sdk_can_import_the_sdk(
    project: tuple[Path, str],
) -> None:
    """The folder of a script comes first on sys.path."""
    folder, module = project
    (folder / "main.py").write_text(PROGRAM.format(module=module), encoding="utf-8")
    result = run(folder, "main.py")
    assert (result.returncode, result.stderr) == (0, "")


def test_pytest_starts_in_a_folder_with_files_named_like_modules_of_the_sdk(
    project: tuple[Path, str],
) -> None:
    """`python -m pytest` puts the current folder on sys.path before plugins are loaded."""
    folder, _ = project
    (folder / "test_it.py").write_text(TEST, encoding="utf-8")
    result = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("package", ["pullstream", "pullstream_emulator"])
def test_the_sdk_and_the_emulator_package_can_be_run_with_python_m(
    package: str, tmp_path: Path
) -> None:
    """`python -m` runs their commands."""
    result = run(tmp_path, "-m", package, "--help")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Usage: pullstream")


@pytest.mark.parametrize("module", ["message", "futures", "scheduler", "exceptions", "types"])
def test_each_module_of_the_official_client_has_a_counterpart_in_the_pullstream_package(
    module: str, tmp_path: Path
) -> None:
    """`google.cloud.pubsub_v1.subscriber` becomes `pullstream.subscriber`."""
    program = (
        f"import pullstream as pubsub_v1, pullstream.subscriber.{module} as counterpart\n"
        f"assert pubsub_v1.subscriber.{module} is counterpart"
    )
    result = run(tmp_path, "-c", program)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_version_attribute_of_a_package_equals_its_installed_version() -> None:
    """Reports of problems name it."""
    assert pullstream.__version__ == version("pullstream")
