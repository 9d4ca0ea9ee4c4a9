"""``import sigmax`` alone: every public module is there, and nothing is paid for before its use."""

import ast
import subprocess
import sys
from pathlib import Path

import sigmax

SOURCE = Path(sigmax.__file__)
PRIVATE = set(
    "atomic cli compilation compilation_cache documents extrapolation features files inputs model"
    " paper random ray_session ray_training report runs saving serve settings table_model values"
    " version".split()
)
"""Not for users of the library: what it stands on, and what the command line runs."""

FOUND = {path.stem for path in SOURCE.parent.iterdir() if path.is_dir() or path.suffix == ".py"}
MODULES = sorted(name for name in FOUND - PRIVATE if not name.startswith("__"))


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
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


def test_public_names_are_the_modules_the_classes_and_two_functions():
    classes = set(sigmax.__all__) - {*MODULES, "__version__", "fit_parquet", "on_ray"}
    assert classes >= {"CombinedRegressor", "LocalRegressor", "LocalitySampler", "VAE"}
    assert all(isinstance(getattr(sigmax, name), type) for name in classes)
    assert callable(sigmax.on_ray) and callable(sigmax.fit_parquet)


def test_type_checkers_see_every_public_name_as_exported():
    """In a stub, a name is exported if it is imported as itself."""
    imports = ast.parse(SOURCE.with_suffix(".pyi").read_text(encoding="utf-8")).body
    aliases = [a for node in imports if isinstance(node, ast.ImportFrom) for a in node.names]
    assert sorted(a.name for a in aliases if a.asname == a.name) == sorted(sigmax.__all__)


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
    assert run(code).strip() == "No sigmax attribute no_such_module"
