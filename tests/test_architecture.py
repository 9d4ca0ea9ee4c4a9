"""The house: data flow down the list of rooms, imports only go up it."""

import ast
import graphlib
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import sigmax

SOURCE = Path(sigmax.__file__).parent

ROOMS = [
    {"errors", "version", "random"},
    {"checks", "compilation", "files"},
    {"scaling", "inputs"},
    {"features"},
    {"settings"},
    {"distributions"},
    {"metrics", "sample_distances"},
    {"scorers", "calibration"},
    {"neighbors"},
    {"sampling"},
    {"networks"},
    {"training"},
    {"estimators"},
    {"active_learning"},
    {"generative"},
    {"data"},
    {"plots"},
    {"paper"},
    {"cli"},
    {"__main__"},
]
FLOOR = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}


def imported_modules(path: Path) -> set[str]:
    """The modules of ours that a file imports from, also inside functions and for type checkers."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            modules.add(node.module or "")
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return {name for name in modules if name.startswith("sigmax.")}


def imported_rooms(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imported_modules(path)}


@pytest.mark.parametrize("room", ["paper", "data"])
def test_modules_of_a_room_do_not_import_each_other_in_a_circle(room):
    paths = (SOURCE / room).glob("[!_]*.py")
    graph = {f"sigmax.{room}.{path.stem}": imported_modules(path) for path in paths}
    graphlib.TopologicalSorter(graph).prepare()


def test_imports_only_go_up_the_list_of_rooms():
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).with_suffix("").parts[0]
        if room == "__init__":
            continue
        assert room in FLOOR, f"{room} has no place in the house"
        for other in imported_rooms(path) - {room}:
            assert FLOOR[other] < FLOOR[room], f"{path.relative_to(SOURCE)} imports {other}"


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_module_imports_itself_by_a_detour():
    """Also none that is imported inside a function, which hides a cycle and does not end it."""
    paths = {module_of(path): path for path in SOURCE.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        if module == "sigmax" or module.startswith("sigmax.experiments"):
            continue  # the first imports when asked, the others are not part of the library
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names |= {node.module or ""} | {f"{node.module}.{a.name}" for a in node.names}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        graph[module] = (names & paths.keys()) - {"sigmax"}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_every_room_on_the_list_exists():
    for room in FLOOR:
        assert (SOURCE / room).is_dir() or (SOURCE / f"{room}.py").is_file(), room


def test_no_file_holds_more_than_one_idea():
    for path in SOURCE.rglob("*.py"):
        n_lines = len(path.read_text(encoding="utf-8").splitlines())
        assert n_lines <= 400, f"{path.relative_to(SOURCE)} has {n_lines} lines"


def test_import_loads_neither_jax_nor_scikit_learn():
    code = "import sys, sigmax; sys.exit('jax' in sys.modules or 'sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_all_public_names_can_be_reached():
    for name in sigmax.__all__:
        assert getattr(sigmax, name) is not None
    assert set(sigmax.__all__) <= set(dir(sigmax))
