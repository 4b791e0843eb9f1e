"""Imports point one way, as docs/ARCHITECTURE.md says; and reading a preset does not load torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sottovoce

PACKAGE = Path(sottovoce.__file__).parent
# From the ground up: a module imports only from its own level or from those before it.
LEVELS = (
    ("version", "errors", "randomness", "files", "reading", "limits", "memory", "lazy_names", "presets"),
    ("processes", "open_union", "extensions"),
    ("features", "distributed", "workers"),
    ("data",),
    ("optim", "model"),
    ("privacy",),
    ("central.central_options", "federated.federated_options", "federated.local_rules"),
    ("config",),
    ("evaluation",),
    ("runs",),
    ("central", "federated"),
    ("auditing", "bench", "boundary", "deploy", "estimate", "reports"),
    ("api",),
    ("cli",),
    ("__main__", "__init__"),
)


def level_of(module: str) -> int:
    """Return the level of a module of the package; the most specific name counts."""
    names = {name: level for level, names in enumerate(LEVELS) for name in names}
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if (found := names.get(".".join(parts[:length]))) is not None:
            return found
    raise AssertionError(f"{module} has no level: add it to LEVELS, and to docs/ARCHITECTURE.md")


def imports_of(path: Path) -> set[str]:
    """Return the modules of the package that a file imports, anywhere in it but under TYPE_CHECKING."""
    tree = ast.parse(path.read_text())
    only_types = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if node in only_types:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sottovoce"):
            inside = (node.module or "").removeprefix("sottovoce").lstrip(".")
            found |= {inside} if inside else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix("sottovoce.") for a in node.names if a.name.startswith("sottovoce.")}
    return found


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_one_way(path):
    own = level_of(name_of(path).removesuffix(".__init__"))
    above = {module for module in imports_of(path) if level_of(module) > own}
    assert above == set()


def test_few_modules_know_flower_and_two_of_them_its_inner_names():
    found = {
        name_of(path): {node.module for node in ast.walk(ast.parse(path.read_text())) if knows(node, "flwr")}
        for path in modules()
    }
    public = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}
    assert {name for name, names in found.items() if names and names <= public} == {
        "deploy.flower_apps",
        "deploy.flower_records",
    }
    assert {name for name, names in found.items() if names - public} == {
        "deploy.flower_connection",
        "deploy.flower_fleet",
    }


def knows(node: ast.AST, library: str) -> bool:
    """Return whether a statement imports a library."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    return any(name.partition(".")[0] == library for name in names)


def test_no_file_name_stands_for_two_things_in_two_rooms():
    names: dict[str, list[str]] = {}
    for path in modules():
        if path.name not in ("__init__.py", "base.py") and path.parent.name != "cli":
            names.setdefault(path.name, []).append(name_of(path))
    assert {name: places for name, places in names.items() if len(places) > 1} == {}


def test_no_class_name_stands_for_two_things():
    places: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name_of(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import sottovoce; sottovoce.preset_names()",
        "import sottovoce.data, sottovoce.config; sottovoce.config.resolve('quick')",
        "import sottovoce.api, sottovoce.runs.folder, sottovoce.privacy.claims",
    ],
)
def test_reading_a_preset_or_asking_for_help_does_not_load_torch(code):
    heavy = "[name for name in ('torch', 'matplotlib', 'opacus', 'dp_accounting') if name in sys.modules]"
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print({heavy})"], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
