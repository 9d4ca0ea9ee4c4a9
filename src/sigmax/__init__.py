"""sigmax: predictive distributions you can trust.

Names and modules, which ``__init__.pyi`` lists, are imported when they are first used, so that
``import sigmax`` itself costs nothing.
"""

import ast as _ast
from importlib import import_module as _import_module
from pathlib import Path as _Path

_ORIGIN = {
    alias.name: node.module
    for node in _ast.parse(_Path(__file__).with_suffix(".pyi").read_text("utf-8")).body
    if isinstance(node, _ast.ImportFrom)
    for alias in node.names
}
"""Module of every public name; None for public modules."""

__all__ = sorted(_ORIGIN)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _ORIGIN:
        raise AttributeError(f"No sigmax attribute {name}")
    module = _import_module(f"sigmax.{_ORIGIN[name] or name}")
    globals()[name] = value = getattr(module, name) if _ORIGIN[name] else module
    return value


def __dir__() -> list[str]:
    return __all__
