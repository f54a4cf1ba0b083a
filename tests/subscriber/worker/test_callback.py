"""Finding the callback by its name, and the errors if there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from pullstream.worker.callback import UnusableCallback, load_callback, sources_of

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Yield a function that writes importable modules, which are removed after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("worker_app", "worker_package", "worker_package.tasks"):
        # Set first, so that monkeypatch removes the imported module.
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        del sys.modules[name]

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_a_worker_callback_is_imported_by_its_module_and_function_name(write: Write) -> None:
    """The source of the callback is the module's file."""
    path = write("worker_app.py", "def handle(message): return 'handled'\n")
    assert load_callback("worker_app:handle")(None) == "handled"
    assert sources_of("worker_app:handle") == [str(path)]


def test_the_module_and_function_names_of_a_worker_callback_may_contain_dots(write: Write) -> None:
    """The source of a package's module is the whole package."""
    write("worker_package/__init__.py", "")
    path = write(
        "worker_package/tasks.py",
        "class Orders:\n    @staticmethod\n    def handle(message): return 'handled'\n",
    )
    assert load_callback("worker_package.tasks:Orders.handle")(None) == "handled"
    assert sources_of("worker_package.tasks:Orders.handle") == [str(path.parent)]


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("", "worker_app", "must be of the form module:function"),
        ("", "worker_app:", "must be of the form module:function"),
        ("", "worker-app:handle", "must be of the form module:function"),
        ("", "no_such_module:handle", "No module named 'no_such_module'. Start the worker in"),
        ("", "worker_app:handle", "module 'worker_app' has no attribute 'handle'. Check the name"),
        ("handle = 3", "worker_app:handle", "worker_app:handle is 3, which cannot be called"),
        ("import no_such_one", "worker_app:handle", "worker_app.py, line 1). Importing worker_app"),
        ("\n\n1 / 0", "worker_app:handle", "ZeroDivisionError: division by zero ("),
        ("\n\n1 / 0", "worker_app:handle", "worker_app.py, line 3)"),
        ("def handle(:", "worker_app:handle", "SyntaxError: invalid syntax"),
        ("raise SystemExit(1)", "worker_app:handle", "SystemExit: 1"),
    ],
)
def test_the_error_for_an_unusable_worker_callback_states_the_reason_in_one_line(
    text: str, name: str, says: str, write: Write
) -> None:
    """The line also has the remedy."""
    write("worker_app.py", text)
    with pytest.raises(UnusableCallback) as caught:
        load_callback(name)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
