"""The SDK works without both extras, and names the extra to install where it does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.completed import run_command
from tests.subscriber.program import ROOT, STRICT


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new Python process."""
    command = [sys.executable, *STRICT, "-c", program]
    return run_command(command, cwd=ROOT)


@pytest.mark.parametrize("package", ["prometheus_client", "opentelemetry"])
def test_importing_pullstream_imports_neither_prometheus_client_nor_opentelemetry(
    package: str,
) -> None:
    """The package of the adapters, which has only names, imports neither as well."""
    program = f"import sys, pullstream, pullstream.telemetry; assert {package!r} not in sys.modules"
    result = run(program)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("package", "module", "extra"),
    [
        ("prometheus_client", "prometheus", "prometheus"),
        ("prometheus_client", "job_metrics", "prometheus"),
        ("opentelemetry", "opentelemetry", "opentelemetry"),
    ],
)
def test_the_error_for_a_missing_telemetry_package_contains_the_install_command(
    package: str, module: str, extra: str
) -> None:
    """The last line of the traceback is the command. None in sys.modules means missing."""
    program = f"import sys; sys.modules[{package!r}] = None; import pullstream.telemetry.{module}"
    last = run(program).stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert last.endswith(f"pip install 'pullstream[{extra}]'")
