"""The house: data flow down the list of rooms, imports only go up it, and modules have no cycle."""

import ast
import graphlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import sigmax

SOURCE = Path(sigmax.__file__).parent

ROOMS = [
    {"errors", "version", "random", "compilation_cache"},
    {"checks", "compilation", "files"},
    {"settings", "scaling", "inputs", "ray_session"},
    {"tables"},
    {"features"},
    {"distributions"},
    {"targets"},
    {"metrics", "sample_distances"},
    {"scorers", "calibration", "monitoring"},
    {"neighbors", "forests"},
    {"sampling"},
    {"networks"},
    {"training"},
    {"estimators"},
    {"active_learning"},
    {"integrations"},
    {"generative"},
    {"data"},
    {"plots"},
    {"runs"},
    {"report"},
    {"paper"},
    {"commands"},
    {"serve"},
    {"cli"},
    {"__main__"},
]
FLOOR = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}

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
    """The module that defines what is imported, be it through the contents page of a package."""
    if name is None:
        return module
    if f"{module}.{name}" in MODULES:
        return f"{module}.{name}"
    if MODULES[module].name == "__init__.py":
        for node in ast.walk(parse(module)):
            if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
                return home(node.module or "", name)
    return module


def room_of(module: str) -> str:
    return module.split(".")[1]


def is_contents_page(module: str) -> bool:
    return MODULES[module].name == "__init__.py"


def test_imports_only_go_up_the_list_of_rooms():
    for module in MODULES.keys() - {"sigmax"}:
        assert room_of(module) in FLOOR, f"{room_of(module)} has no place in the house"
        for other, name in imports(module):
            source = home(other, name)
            if source != "sigmax" and room_of(source) != room_of(module):
                assert FLOOR[room_of(source)] < FLOOR[room_of(module)], f"{module} imports {source}"


def test_modules_have_no_cycle_also_not_through_imports_inside_functions():
    graph = {
        module: {home(*what) for what in imports(module)} - {module}
        for module in MODULES
        if not is_contents_page(module)
    }
    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises at a cycle
    assert set(graph) <= set(order)


def test_a_class_is_abstract_or_final():
    """Errors are the exception: people catch them by their families."""
    for module in MODULES.keys() - {"sigmax.errors"}:
        for node in ast.walk(parse(module)):
            if isinstance(node, ast.ClassDef):
                is_final = any(ast.unparse(mark) == "final" for mark in node.decorator_list)
                is_abstract = node.name.startswith("Abstract")
                assert is_final != is_abstract, f"{node.name} of {module} is neither, or both"


def test_a_class_has_one_home():
    homes: dict[str, str] = {}
    for module in MODULES:
        for node in ast.walk(parse(module)):
            if isinstance(node, ast.ClassDef):
                first = homes.setdefault(node.name, module)
                assert first == module, f"{node.name} is defined in {first} and in {module}"


def test_every_room_on_the_list_exists():
    for room in FLOOR:
        assert (SOURCE / room).is_dir() or (SOURCE / f"{room}.py").is_file(), room


def test_no_file_holds_more_than_one_idea():
    for module, path in MODULES.items():
        n_lines = len(path.read_text(encoding="utf-8").splitlines())
        assert n_lines <= 800, f"{module} has {n_lines} lines"


def test_import_loads_neither_jax_nor_scikit_learn():
    code = "import sys, sigmax; sys.exit('jax' in sys.modules or 'sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_all_public_names_can_be_reached():
    for name in sigmax.__all__:
        assert getattr(sigmax, name) is not None
    assert set(sigmax.__all__) <= set(dir(sigmax))
