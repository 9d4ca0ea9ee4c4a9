"""Architecture: a layer imports only from the layers above it, and modules have no cycle."""

import ast
import graphlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import sigmax

SOURCE = Path(sigmax.__file__).parent

LAYERS = [
    {"errors", "version", "values", "compilation_cache"},
    {"atomic", "compilation", "random", "ray_session", "settings"},
    {"documents", "files", "inputs"},
    {"saving", "tables"},
    {"distributions"},
    {"features"},
    {"metrics"},
    {"calibration", "monitoring", "scorers"},
    {"neighbors"},
    {"sampling"},
    {"extrapolation"},
    {"networks"},
    {"training"},
    {"ray_training"},
    {"experts", "model"},
    {"estimators"},
    {"active_learning"},
    {"integrations"},
    {"generative"},
    {"data"},
    {"table_model"},
    {"report"},
    {"plots"},
    {"runs"},
    {"paper"},
    {"serve"},
    {"cli"},
    {"__main__"},
]
"""Folders and modules of the package; each imports only from layers above its own."""

LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}

SHARED_LAYER = {"experts", "model"}
"""A model holds a fitted expert, and adding rows to one makes a new model: these two import each
other's modules, without a cycle of modules."""

MODULES = {
    ".".join(("sigmax", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in SOURCE.rglob("*.py")
}


@cache
def parse(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imports(module: str) -> set[tuple[str, str | None]]:
    """Modules and, where there is one, names that a module imports, also inside functions."""
    found: set[tuple[str, str | None]] = set()
    for node in ast.walk(parse(module)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            found |= {(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, None) for alias in node.names}
    return {(name, what) for name, what in found if name.split(".")[0] == "sigmax"}


def home(module: str, name: str | None) -> str:
    """Module that defines an imported name, also if a package exports it."""
    if name is None:
        return module
    if f"{module}.{name}" in MODULES:
        return f"{module}.{name}"
    if MODULES[module].name == "__init__.py":
        for node in ast.walk(parse(module)):
            if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
                return home(node.module or "", name)
    return module


def part_of(module: str) -> str:
    """Folder or module directly below the package."""
    return module.split(".")[1]


def is_package(module: str) -> bool:
    return MODULES[module].name == "__init__.py"


def test_layers_import_only_from_layers_above():
    for module in MODULES.keys() - {"sigmax"}:
        part = part_of(module)
        assert part in LEVEL, f"{part} is in no layer"
        for other, name in imports(module):
            source = home(other, name)
            if source != "sigmax" and part_of(source) != part:
                shared = {part, part_of(source)} == SHARED_LAYER
                assert shared or LEVEL[part_of(source)] < LEVEL[part], f"{module} imports {source}"


def test_modules_have_no_import_cycle_inside_functions_included():
    graph = {
        module: {home(*what) for what in imports(module)} - {module}
        for module in MODULES
        if not is_package(module)
    }
    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises at a cycle
    assert set(graph) <= set(order)


def test_a_class_is_abstract_or_final():
    """Errors are the exception: callers catch them by their base classes."""
    for module in MODULES.keys() - {"sigmax.errors"}:
        for node in ast.walk(parse(module)):
            if isinstance(node, ast.ClassDef):
                is_final = any(ast.unparse(mark) == "final" for mark in node.decorator_list)
                is_abstract = node.name.startswith("Abstract")
                assert is_final != is_abstract, f"{node.name} of {module} is neither, or both"


def test_a_class_name_is_defined_once():
    homes: dict[str, str] = {}
    for module in MODULES:
        for node in ast.walk(parse(module)):
            if isinstance(node, ast.ClassDef):
                first = homes.setdefault(node.name, module)
                assert first == module, f"{node.name} is defined in {first} and in {module}"


def test_every_part_of_a_layer_exists():
    for part in LEVEL:
        assert (SOURCE / part).is_dir() or (SOURCE / f"{part}.py").is_file(), part


def test_import_loads_neither_jax_nor_scikit_learn():
    code = "import sys, sigmax; sys.exit('jax' in sys.modules or 'sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_all_public_names_can_be_imported():
    for name in sigmax.__all__:
        assert getattr(sigmax, name) is not None
    assert set(sigmax.__all__) <= set(dir(sigmax))
