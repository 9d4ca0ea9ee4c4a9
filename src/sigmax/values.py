"""Immutable values of arrays: frozen dataclasses that are pytrees of JAX, where JAX is used.

JAX takes a second to import and is not needed for values of NumPy arrays. So the classes are
registered with JAX only once it is there, and code that may never run uses the names ``jax``,
``jnp`` and ``lax`` of this module, which import JAX with their first attribute.
"""

import sys
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, dataclass_transform, final

import numpy as np

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    import jax.scipy.special as jax_special
    from jax import lax
    from jax.typing import ArrayLike
else:
    ArrayLike = Any

    @final
    class LateModule:
        """Module that is imported when an attribute of it is first used."""

        def __init__(self, name: str):
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            module = import_module(self._name)
            register_values()
            return getattr(module, attribute)

    jax, jnp, lax = LateModule("jax"), LateModule("jax.numpy"), LateModule("jax.lax")
    jax_special = LateModule("jax.scipy.special")

AnyArray: TypeAlias = Any
"""Array of NumPy or JAX: of either, jaxtyping checks shape and dtype."""

STATIC = {"static": True}
"""Metadata of a field that is no part of the pytree, as a number of columns: it is hashable, and
functions are compiled for each of its values."""

UNREGISTERED: list[type["AbstractValue"]] = []
"""Classes that JAX does not know yet."""


@dataclass_transform(frozen_default=True)
class AbstractValue(ABC):  # noqa: B024 - the abstract methods are those of subclasses
    """Frozen dataclass whose fields are arrays, tuples, dicts, None, or values of such fields.

    Examples
    --------
    >>> class Point(AbstractValue):
    ...     x: np.ndarray
    >>> tree_map(lambda leaf: leaf + 1, Point(np.zeros(2))).x
    array([1., 1.])
    """

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        dataclass(frozen=True, eq=False)(cls)
        UNREGISTERED.append(cls)
        register_if_loaded()

    def __new__(cls, *arguments: Any, **parts: Any) -> Any:
        register_if_loaded()
        return super().__new__(cls)


def register_if_loaded() -> None:
    """Register classes if the user has imported JAX."""
    if UNREGISTERED and "jax.tree_util" in sys.modules:
        register_values()


def register_values() -> None:
    """Register all classes of values as pytrees of JAX."""
    from jax.tree_util import GetAttrKey, register_pytree_with_keys

    while UNREGISTERED:
        kind = UNREGISTERED.pop()
        names, static = field_names(kind)
        keys = [GetAttrKey(name) for name in names]

        def flatten(value: Any, names: Any = names, static: Any = static) -> Any:
            parts = vars(value)
            return [parts[name] for name in names], tuple(parts[name] for name in static)

        def flatten_with_keys(value: Any, keys: Any = keys, flatten: Any = flatten) -> Any:
            parts, fixed = flatten(value)
            return list(zip(keys, parts, strict=True)), fixed

        def restore(
            fixed: Any, parts: Any, kind: Any = kind, names: Any = names, static: Any = static
        ) -> Any:
            found = zip((*names, *static), (*parts, *fixed), strict=True)
            return make_value(kind, dict(found))

        register_pytree_with_keys(kind, flatten_with_keys, restore, flatten)


def field_names(kind: type) -> tuple[list[str], list[str]]:
    """Names of the fields that are parts of the pytree, and of the static ones."""
    static = [field.name for field in fields(kind) if field.metadata.get("static")]
    return [field.name for field in fields(kind) if field.name not in static], static


def make_value(kind: type, parts: dict[str, Any]) -> Any:
    """Value from its fields, without the constructor, which may check their shapes."""
    value = object.__new__(kind)
    vars(value).update(parts)
    return value


def tree_map(
    function: Callable[..., Any], value: Any, *others: Any, leaves: tuple[type, ...] = ()
) -> Any:
    """Apply a function to all leaves of a value, and of others of the same structure.

    As `jax.tree.map`, but for values, tuples, lists and dicts alone, and without JAX. Values of the
    classes ``leaves`` are leaves, too.
    """

    def inside(*parts: Any) -> Any:
        return tree_map(function, *parts, leaves=leaves)

    if value is None:
        return None
    trees = value, *others
    if isinstance(value, AbstractValue) and not isinstance(value, leaves):
        names, static = field_names(type(value))
        parts = {name: getattr(value, name) for name in static}
        parts |= {name: inside(*(getattr(tree, name) for tree in trees)) for name in names}
        return make_value(type(value), parts)
    if isinstance(value, list | tuple):
        parts = [inside(*own) for own in zip(*trees, strict=True)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {name: inside(*(tree[name] for tree in trees)) for name in value}
    return function(*trees)


def tree_leaves(value: Any) -> list[Any]:
    """All leaves of a value, as `jax.tree.leaves`."""
    found: list[Any] = []
    tree_map(found.append, value)
    return found


def namespace(*values: Any) -> Any:
    """Module of the functions of arrays: ``jax.numpy`` if any value is of JAX, else ``numpy``."""
    return jnp if any(is_jax(value) for value in values) else np


def is_jax(value: Any) -> bool:
    """True for arrays of JAX, also while a function is traced."""
    return "jax" in sys.modules and isinstance(value, sys.modules["jax"].Array)
