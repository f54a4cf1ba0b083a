"""The packages can be imported on Windows, which has neither POSIX's modules nor fork."""

import subprocess
import sys

import pytest

from tests.completed import run_command

# Imports every module twice. The first time loads the other packages, which must see the real
# platform. The second time, the platform is Windows for our modules.
PROGRAM = """
import builtins, importlib, os, pkgutil, sys, types

PACKAGES = ("pullstream_protocol", "pullstream", "pullstream_emulator")
POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}

def names():
    for package in PACKAGES:
        yield package
        for module in pkgutil.walk_packages([package_path(package)], package + "."):
            if module.name.rpartition(".")[2] != "__main__" and not is_spark(module.name):
                yield module.name

def package_path(package):
    return os.path.dirname(importlib.util.find_spec(package).origin)

def is_spark(name):
    # PySpark's workers need POSIX.
    return name.startswith("pullstream.spark")

def is_ours(name):
    return name.partition(".")[0] in PACKAGES

wanted = list(names())
for name in wanted:
    importlib.import_module(name)
for name in [name for name in sys.modules if is_ours(name) and not name.endswith("_pb2")]:
    del sys.modules[name]

real_import = builtins.__import__
def windows_import(name, globals=None, *rest):
    if name in POSIX_ONLY and is_ours((globals or {}).get("__name__", "")):
        raise ModuleNotFoundError(f"No module named {name!r}")
    return real_import(name, globals, *rest)

builtins.__import__ = windows_import
sys.platform = "win32"
sys.modules["msvcrt"] = types.ModuleType("msvcrt")
for missing in ("fork", "register_at_fork", "getuid", "getpgid", "killpg", "uname"):
    delattr(os, missing)
for name in wanted:
    importlib.import_module(name)
print(len(wanted))
"""


def imported(program: str) -> subprocess.CompletedProcess[str]:
    return run_command([sys.executable, "-c", program])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows needs no imitation")
def test_no_module_imports_a_posix_only_module_at_import_time() -> None:
    done = imported(PROGRAM)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300


@pytest.mark.skipif(sys.platform == "win32", reason="Windows needs no imitation")
@pytest.mark.parametrize("line", ["import fcntl", "import os; os.register_at_fork"])
def test_the_platform_check_finds_a_posix_only_import(line: str) -> None:
    planted = f"""
exec({line!r}, {{"__name__": "pullstream.planted"}})
"""
    done = imported(PROGRAM + planted)
    assert done.returncode == 1
    assert "fcntl" in done.stderr or "register_at_fork" in done.stderr
