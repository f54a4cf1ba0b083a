"""The programs: the tools that each one needs, how it is built, and its command line."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
BUILD = FOLDER.parents[1] / "build" / "clients"

# The time limit of one build step, which may download packages, in seconds.
BUILD_TIMEOUT = 600.0


class CannotBuild(Exception):
    """A program cannot be built here. The text is the reason."""


@dataclass(frozen=True)
class Program:
    """A client's program.

    Attributes:
        tools: The commands that must be on the path.
        build: Builds it and returns its command line.
        admin: It can make administrative calls over HTTP, too.
        pipeline: It is a pipeline: it makes the runs of pipelines, and no others.
    """

    tools: Sequence[str]
    build: Callable[[], list[str]]
    admin: bool = False
    pipeline: bool = False

    def built(self) -> list[str]:
        """Build the program and return its command line.

        Raises:
            CannotBuild: A tool is missing, or a build step failed.
        """
        if absent := [tool for tool in self.tools if shutil.which(tool) is None]:
            raise CannotBuild(f"needs {' and '.join(absent)}")
        BUILD.mkdir(parents=True, exist_ok=True)
        return self.build()


def step(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotBuild(f"{command[0]} took longer than {BUILD_TIMEOUT:.0f} s") from error
    if done.returncode != 0:
        raise CannotBuild(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")


def build_go() -> list[str]:
    program = str(BUILD / "go-receiver")
    step(["go", "build", "-o", program, "."], FOLDER / "go")
    return [program]


def build_java() -> list[str]:
    return maven("java", "Receiver")


def build_beam() -> list[str]:
    return maven("beam", "Reader")


def maven(folder: str, main: str) -> list[str]:
    step(["mvn", "-q", "-B", "compile", "dependency:build-classpath"], FOLDER / folder)
    classpath = (BUILD / folder / "classpath.txt").read_text().strip()
    return ["java", "-cp", f"{BUILD / folder / 'classes'}:{classpath}", main]


def build_node() -> list[str]:
    # Node looks for packages beside the program.
    folder = BUILD / "node"
    folder.mkdir(exist_ok=True)
    for file in ("package.json", "receiver.js"):
        shutil.copy(FOLDER / "node" / file, folder)
    npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    step(npm, folder)
    return ["node", str(folder / "receiver.js")]


def build_python() -> list[str]:
    try:
        found = importlib.util.find_spec("google.cloud.pubsub_v1")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise CannotBuild("needs google-cloud-pubsub: pip install 'pullstream[interop]'")
    return [sys.executable, str(FOLDER / "receiver.py")]


PROGRAMS = {
    "go": Program(["go"], build_go),
    "java": Program(["java", "javac", "mvn"], build_java, admin=True),
    "node": Program(["node", "npm"], build_node),
    "python": Program([], build_python),
    "beam": Program(["java", "javac", "mvn"], build_beam, pipeline=True),
}
