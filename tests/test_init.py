"""``import sigmax`` alone: every public module is there, and nothing is paid for before its use."""

import ast
import subprocess
import sys
from pathlib import Path

import sigmax

SOURCE = Path(sigmax.__file__)
PRIVATE = {"__init__", "__main__", "checks", "cli", "files", "paper", "random", "scaling"}
"""Not for users of the library: the floor under it, and what the command line runs."""

MODULES = sorted({path.stem for path in SOURCE.parent.iterdir() if path.name[:2] != "__"} - PRIVATE)
MODULES.remove("version")  # its one name is `sigmax.__version__`
MODULES.remove("py")  # py.typed


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_public_module_is_an_attribute_after_a_plain_import():
    """Each begins from a package without any other module, so that none is there by chance."""
    code = f"""
import sys
for name in {MODULES!r}:
    for loaded in [m for m in sys.modules if m == "sigmax" or m.startswith("sigmax.")]:
        del sys.modules[loaded]
    import sigmax
    assert not [m for m in sys.modules if m.startswith("sigmax.")], "import is not lazy"
    assert name in dir(sigmax), name
    assert getattr(sigmax, name).__name__ == "sigmax." + name
    print(name)
"""
    assert run(code).split() == MODULES


def test_all_names_modules_and_stubs_agree():
    assert {*MODULES, *sigmax.HOMES} == set(sigmax.__all__)
    block = next(n for n in ast.parse(SOURCE.read_text()).body if isinstance(n, ast.If))
    aliases = [a for n in block.body if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names]
    assert sorted(alias.asname or alias.name for alias in aliases) == sorted(sigmax.__all__)


def test_the_import_is_light():
    heavy = ("jax", "sklearn", "numpy", "scipy", "matplotlib")
    code = f"import sys, sigmax; dir(sigmax); print([m for m in {heavy} if m in sys.modules])"
    assert run(code).strip() == "[]"


def test_an_unknown_name_is_an_attribute_error():
    code = """
import sigmax
try:
    sigmax.no_such_module
except AttributeError as error:
    print(error)
"""
    assert run(code).strip() == "module 'sigmax' has no attribute 'no_such_module'"
