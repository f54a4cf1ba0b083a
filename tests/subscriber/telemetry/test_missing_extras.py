"""The SDK does without both extras, and says which one to install where it cannot."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.subscriber.program import ROOT, STRICT


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh Python."""
    command = [sys.executable, *STRICT, "-c", program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", ["prometheus_client", "opentelemetry"])
def test_importing_the_subscriber_imports_neither(package: str) -> None:
    """Nor does the package of the adapters, which is a list of names only."""
    program = f"import sys, subscriber, subscriber.telemetry; assert {package!r} not in sys.modules"
    result = run(program)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("package", "module"),
    [("prometheus_client", "prometheus"), ("opentelemetry", "opentelemetry")],
)
def test_a_missing_extra_says_what_to_install(package: str, module: str) -> None:
    """The last line of the traceback is the command; None in sys.modules stands for missing."""
    program = f"import sys; sys.modules[{package!r}] = None; import subscriber.telemetry.{module}"
    last = run(program).stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert last.endswith(f"pip install 'pullstream[{module}]'")
