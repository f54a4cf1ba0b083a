"""The Python of Spark's workers on this machine: it imports the installed pyspark."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

from . import source_process, worker_daemon
from .cached_program import cache_folder, write_program

PYTHON = "PYSPARK_PYTHON"
_DAEMON = "pullstream_worker_daemon"
_SOURCE = "pullstream_source_process"
_PROGRAM = """\
#!/bin/sh
# Spark puts pyspark.zip first on the path of its workers. Imports from the archive are compiled
# each time, which takes a second longer than imports from the installed folder.
if [ "$*" = "-m {runner}" ]; then
    # With the module's name as an argument, so that it stays in the list of processes.
    set -- -m {source} {runner}
elif [ "$1 $2" = "-m pyspark.daemon" ]; then
    # For the questions about a data source, Spark ignores the setting of the daemon.
    shift 2
    set -- -m {daemon} "$@"
fi
PYTHONPATH={packages}${{PYTHONPATH:+:$PYTHONPATH}} exec {python} "$@"
"""


def worker_settings() -> dict[str, str]:
    """Return the Spark settings of the workers, and set PYSPARK_PYTHON unless it is set.

    Otherwise the workers would run with the first `python3` on PATH, without our packages. A
    program that the user has chosen gets no settings.
    """
    try:
        program = _program()
    except OSError:
        # A cache that cannot be written costs a second for each worker.
        os.environ.setdefault(PYTHON, sys.executable)
        return {}
    if os.environ.setdefault(PYTHON, program) != program:
        return {}
    return {"spark.python.daemon.module": _DAEMON}


def _program() -> str:
    """Return a program that runs this interpreter with a few modules first on its path."""
    links = {
        f"{_DAEMON}.py": Path(worker_daemon.__file__).absolute(),
        f"{_SOURCE}.py": Path(source_process.__file__).absolute(),
    }
    for name in ("pyspark", "py4j"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            links[name] = Path(spec.origin).parent
    key = "\n".join([sys.executable, *map(str, links.values())])
    folder = cache_folder(f"workers-{hashlib.sha256(key.encode()).hexdigest()[:16]}")
    packages = folder / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    for name, place in links.items():
        # Another process may do the same.
        with suppress(FileExistsError):
            (packages / name).symlink_to(place)
    program = folder / "python"
    text = _PROGRAM.format(
        runner=source_process.RUNNER,
        source=_SOURCE,
        daemon=_DAEMON,
        packages=shlex.quote(str(packages)),
        python=shlex.quote(sys.executable),
    )
    write_program(program, text)
    return str(program)
