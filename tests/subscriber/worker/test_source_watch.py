"""Detection of changed source files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pullstream.worker.source_watch import SourceWatch


def write(path: Path, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_the_first_check_of_a_source_file_watch_reports_no_changed_file(tmp_path: Path) -> None:
    """The first look is the reference."""
    write(tmp_path / "app.py")
    assert SourceWatch([str(tmp_path)]).changed() is None


def test_a_source_file_watch_reports_each_changed_file_only_once(tmp_path: Path) -> None:
    """Files in subfolders count as well."""
    write(tmp_path / "app.py")
    watch = SourceWatch([str(tmp_path)])
    changed = write(tmp_path / "app.py", "x = 1")
    assert (watch.changed(), watch.changed()) == (changed, None)
    added = write(tmp_path / "deep" / "down" / "more.py")
    assert (watch.changed(), watch.changed()) == (added, None)
    os.remove(added)
    assert (watch.changed(), watch.changed()) == (added, None)


def test_a_source_file_watch_reports_a_changed_file_even_if_its_size_is_the_same(
    tmp_path: Path,
) -> None:
    """The file's time shows the change."""
    path = write(tmp_path / "app.py", "x = 1")
    watch = SourceWatch([str(tmp_path)])
    os.utime(path, (1, 1))
    assert watch.changed() == path


@pytest.mark.parametrize("name", ["notes.txt", ".hidden/app.py", "__pycache__/app.py"])
def test_a_source_file_watch_ignores_changed_files_that_are_not_python_sources(
    name: str, tmp_path: Path
) -> None:
    """Only Python sources written by users are watched."""
    watch = SourceWatch([str(tmp_path)])
    write(tmp_path / name)
    assert watch.changed() is None


def test_a_source_file_watch_ignores_changes_inside_virtual_environments(tmp_path: Path) -> None:
    """An environment is large, and installing a package is no edit."""
    write(tmp_path / "environment" / "pyvenv.cfg")
    watch = SourceWatch([str(tmp_path)])
    write(tmp_path / "environment" / "lib" / "app.py")
    assert watch.changed() is None


def test_a_source_file_watch_reports_changes_in_paths_that_were_added_later(tmp_path: Path) -> None:
    """An addition is a folder or a single file, and does not count as a change."""
    here, package, module = tmp_path / "here", tmp_path / "package", tmp_path / "module.py"
    write(here / "app.py")
    watch = SourceWatch([str(here)])
    write(package / "tasks.py")
    write(module)
    watch.add([str(package), str(module)])
    assert watch.changed() is None
    assert (write(package / "tasks.py", "x = 1"), None) == (watch.changed(), watch.changed())
    assert (write(module, "x = 1"), None) == (watch.changed(), watch.changed())


def test_adding_a_path_to_a_source_file_watch_hides_no_change_of_other_files(
    tmp_path: Path,
) -> None:
    """Changes in files that were watched before are still reported."""
    path = write(tmp_path / "app.py")
    watch = SourceWatch([str(tmp_path)])
    write(tmp_path / "app.py", "x = 1")
    watch.add([path])
    assert watch.changed() == path
