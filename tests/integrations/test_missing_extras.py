"""Without its package, a module of integrations says in one sentence which one to install."""

import importlib
import sys

import pytest

from sigmax.errors import MissingExtraError


@pytest.mark.parametrize(
    ("module", "package", "named"),
    [
        ("skpro", "skpro", "skpro"),
        ("torch", "torch", "PyTorch"),
        ("mlflow", "mlflow", "MLflow"),
    ],
)
def test_a_missing_package_is_named(monkeypatch, module, package, named):
    loaded = [name for name in sys.modules if name.split(".")[0] == package]
    for name in (package, *loaded):
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.startswith("sigmax.integrations.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError) as caught:
        importlib.import_module(f"sigmax.integrations.{module}")
    message = f'sigmax.integrations.{module} needs {named}: pip install "sigmax[{module}]".'
    assert str(caught.value) == message
