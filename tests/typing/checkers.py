"""The project installed from its wheel, as users have it, and type checkers for it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.completed import run_command

ROOT = Path(__file__).parents[2]
SHIPPED = ("protocol", "subscriber", "emulator", "pyproject.toml", "README.md", "LICENSE")

_MYPY_ERROR = re.compile(r"^[^:]+:(?P<line>\d+): error: .*\[(?P<rule>[\w-]+)\]$")


@dataclass(frozen=True, order=True)
class Finding:
    """An error that a checker found: line and rule."""

    line: int
    rule: str


def build_wheel(folder: Path) -> Path:
    """Return the project's wheel, built from a copy because a build adds files to its sources."""
    sources = folder / "sources"
    sources.mkdir()
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, sources / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, sources)
    offline = ("--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *offline, "-w", str(folder), str(sources), check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Make a virtual environment with the wheel and the current dependencies. Return its Python."""
    python = python_without_project(folder)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(_site(python))
    return python


def python_without_project(folder: Path) -> Path:
    """Make a virtual environment with all current packages but the project. Return its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", str(folder), check=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    # Comes after the environment's own folder, so the wheel's packages are found only there.
    (_site(python) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def _site(python: Path) -> Path:
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(run(str(python), "-c", purelib, check=True).stdout.strip())


def run(
    *command: str, cwd: Path | None = None, check: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    # PYTHONPATH would lead to the sources instead of the installed packages.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return run_command(
        command, cwd=cwd, env={**inherited, "PYTHONWARNINGS": "ignore", **environment}, check=check
    )


def mypy(python: Path, program: Path, cache: Path) -> list[Finding]:
    """Return the findings of `mypy --strict` for a program in the environment of `python`."""
    options = ("--strict", "--no-error-summary", "--no-pretty", "--config-file=")
    where = ("--python-executable", str(python), "--cache-dir", str(cache))
    # From the program's folder, because mypy also finds modules in the current folder.
    command = (sys.executable, "-m", "mypy", *options, *where, program.name)
    result = run(*command, cwd=program.parent)
    lines = [line for line in result.stdout.splitlines() if ": note: " not in line]
    matches = [_MYPY_ERROR.match(line) for line in lines]
    assert all(matches), result.stdout + result.stderr
    return sorted({Finding(int(match["line"]), match["rule"]) for match in matches if match})


def pyright(python: Path, *arguments: str) -> dict[str, Any]:
    """Return the report of pyright, run as if the environment of `python` were active."""
    path = os.pathsep.join((str(python.parent), os.environ.get("PATH", "")))
    command = (sys.executable, "-m", "pyright", "--outputjson", *arguments)
    result = run(*command, cwd=python.parent, PATH=path, PYRIGHT_PYTHON_IGNORE_WARNINGS="1")
    try:
        report: dict[str, Any] = json.loads(result.stdout)
    except json.JSONDecodeError as error:
        raise AssertionError(result.stdout + result.stderr) from error
    return report


def pyright_strict(python: Path, program: Path) -> list[Finding]:
    """Return the findings of strict pyright for a program in the environment of `python`."""
    config = program.parent / "pyrightconfig.json"
    config.write_text(json.dumps({"include": [program.name], "typeCheckingMode": "strict"}))
    report = pyright(python, "--project", str(config))
    assert report["summary"]["filesAnalyzed"] == 1, report
    return sorted(
        {
            Finding(found["range"]["start"]["line"] + 1, found.get("rule", found["message"]))
            for found in report["generalDiagnostics"]
        }
    )
