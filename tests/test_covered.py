"""The folders of `make coverage`."""

from __future__ import annotations

import pytest

from tests.covered import FOLDERS, ROOT, own_tests


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_whose_coverage_is_measured_has_tests(folder: str) -> None:
    """Coverage measures nothing in a folder that does not exist, and reports no error."""
    assert any((ROOT / folder).rglob("*.py"))
    assert own_tests(folder)


def test_tests_that_do_not_exist_are_an_error_of_make_coverage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without paths, pytest would run all tests."""
    monkeypatch.setitem(FOLDERS, "somewhere", ("tests/nowhere",))
    with pytest.raises(FileNotFoundError, match="no tests tests/nowhere of somewhere"):
        own_tests("somewhere")
