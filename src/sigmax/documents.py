"""Values as JSON and named arrays, and back: any dataclass, by the types of its fields.

A value is written as nested JSON objects, one for every dataclass, with the shape of an array in
place of the array; the arrays themselves are named by their paths. Reading follows the declared
types of the fields: a file can only choose between subclasses of the declared class, and none of
its content is executed. A class may have a method ``check`` that raises ValueError if its fields do
not fit each other, and a method ``import_subclasses`` that imports those in other modules.
"""

import dataclasses
import math
import sys
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

import numpy as np
from jaxtyping import AbstractArray

from sigmax.values import AbstractValue, is_jax, make_value, tree_leaves

T = TypeVar("T")

KINDS = {"float": "f", "int": "iu", "uint": "u", "bool": "b"}


def encode(value: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """JSON and named arrays of a value.

    Examples
    --------
    >>> from sigmax.features import Standardizer
    >>> document, arrays = encode(Standardizer(np.zeros(2), np.ones(2)))
    >>> document, sorted(arrays)
    ({'class': 'Standardizer', 'mean': [2], 'scale': [2]}, ['mean', 'scale'])
    >>> decode(Standardizer, document, arrays).scale
    array([1., 1.])
    """
    arrays: dict[str, np.ndarray] = {}
    return encode_value(value, "", arrays), arrays


def encode_value(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    def inside(name: Any, part: Any) -> Any:
        return encode_value(part, join(path, name), arrays)

    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) or is_jax(value):
        arrays[path] = np.asarray(value)
        return list(value.shape)
    if dataclasses.is_dataclass(value):
        parts = {field: inside(field, getattr(value, field)) for field in field_types(type(value))}
        return {"class": type(value).__name__, **parts}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        names = type(value)._fields  # pyright: ignore[reportAttributeAccessIssue]
        return {name: inside(name, part) for name, part in zip(names, value, strict=True)}
    if isinstance(value, list | tuple):
        return [inside(number, part) for number, part in enumerate(value)]
    if isinstance(value, dict):
        return {str(name): inside(name, part) for name, part in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"{path or 'value'} is a {type(value).__name__}, which cannot be saved")


def decode(kind: type[T], document: Any, arrays: dict[str, np.ndarray]) -> T:
    """Value of a class that `encode` wrote.

    Types and shapes that the class does not declare, additional arrays, and fields that do not
    pass ``check`` raise ValueError.
    """
    left = dict(arrays)
    try:
        value = decode_value(kind, document, "", left)
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"{kind.__name__} cannot be read: {error!r}") from error
    if left:
        raise ValueError(f"the array {min(left)!r} does not belong to the model")
    return value


def decode_value(kind: Any, found: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    origin, choices = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if found is None and types.NoneType in choices:
            return None
        return decode_value(choice_of(choices, found), found, path, arrays)
    if is_array(kind):
        return decode_array(kind, found, path, arrays)
    if origin is tuple:
        check(isinstance(found, list), path, kind, found)
        if len(choices) == 2 and choices[1] is Ellipsis:
            choices = choices[:1] * len(found)
        check(len(choices) == len(found), path, kind, found)
        parts = zip(choices, found, strict=True)
        return tuple(
            decode_value(own, part, join(path, n), arrays) for n, (own, part) in enumerate(parts)
        )
    if origin in (dict, typing.Mapping) or getattr(origin, "__name__", "") == "Mapping":
        check(isinstance(found, dict), path, kind, found)
        return {n: decode_value(choices[1], v, join(path, n), arrays) for n, v in found.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(found)
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        hints = typing.get_type_hints(kind)
        check(isinstance(found, dict) and found.keys() == hints.keys(), path, kind, found)
        return kind(
            **{n: decode_value(own, found[n], join(path, n), arrays) for n, own in hints.items()}
        )
    is_ours = isinstance(kind, type) and kind.__module__.startswith("sigmax")
    if dataclasses.is_dataclass(kind) or (is_ours and kind.__subclasses__()):
        return decode_dataclass(kind, found, path, arrays)
    if kind is float and (found in ("inf", "-inf", "nan") or type(found) is int):
        return float(found)
    is_plain = kind in (bool, int, float, str, types.NoneType)
    check(is_plain and type(found) is kind, path, kind, found)
    return found


def decode_dataclass(kind: Any, found: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Value of a dataclass, or of its subclass that the document names."""
    check(isinstance(found, dict), path, kind, found)
    name = found["class"]
    known = {one.__name__: one for one in (kind, *all_subclasses(kind))}
    if name not in known and hasattr(kind, "import_subclasses"):
        kind.import_subclasses()
        known = {one.__name__: one for one in all_subclasses(kind)}
    if name not in known:
        raise ValueError(f"{path or 'value'} is a {name!r}, not a {kind.__name__}")
    fields = field_types(known[name])
    check(found.keys() == {"class", *fields}, path, known[name], found)
    parts = {n: decode_value(own, found[n], join(path, n), arrays) for n, own in fields.items()}
    equinox = sys.modules.get("equinox")  # of which networks are modules
    trees = AbstractValue if equinox is None else (AbstractValue, equinox.Module)
    is_tree = issubclass(known[name], trees)
    if is_tree and any(
        hasattr(part, "dtype") and part.dtype.kind == "f" and np.isnan(part).any()
        for part in tree_leaves([part for part in parts.values() if not isinstance(part, dict)])
    ):
        raise ValueError(f"an array of {path!r} holds NaN")
    value = make_value(known[name], parts) if is_tree else known[name](**parts)
    if hasattr(value, "check"):
        value.check()
    return value


def decode_array(kind: Any, shape: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """Array of NumPy, or of JAX where the annotation allows no other."""
    is_shape = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    check(is_shape, path, kind, shape)
    if path not in arrays:
        raise ValueError(f"the array {path!r} is missing")
    array = arrays.pop(path)
    if array.size != math.prod(shape):
        raise ValueError(f"the array {path!r} has the shape {array.shape}, not {tuple(shape)}")
    name = kind.__name__.split("[")[0].lower() if isinstance(kind, type) else ""
    if array.dtype.kind not in KINDS.get(name, "fiub"):
        raise ValueError(f"the array {path!r} is {array.dtype}, not {name}")
    array = array.reshape(shape)
    if not is_jax_array(kind):
        return array
    from sigmax.compilation import on_device

    return on_device(array)


def choice_of(choices: tuple[Any, ...], found: Any) -> Any:
    """Value of the first type of a union that matches a document."""
    others = [choice for choice in choices if choice is not types.NoneType]
    if isinstance(found, list):
        arrays = sorted((choice for choice in others if is_array(choice)), key=is_jax_array)
        others = arrays or [choice for choice in others if get_origin(choice) is tuple] or others
    elif isinstance(found, dict):
        name = found.get("class")
        named = [choice for choice in others if getattr(choice, "__name__", None) == name]
        others = named or others
    else:
        others = [choice for choice in others if choice is type(found)] or others
    return others[0]


def check(is_sound: bool, path: str, kind: Any, found: Any) -> None:
    if not is_sound:
        name, text = getattr(kind, "__name__", str(kind)), repr(found)
        text = text if len(text) < 60 else f"{text[:57]}..."
        raise ValueError(f"{path or 'value'} must be a {name}, got {text}")


def join(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)


def is_array(kind: Any) -> bool:
    """True if an annotation is an array: of NumPy, JAX or jaxtyping."""
    origin = get_origin(kind)
    origin = get_origin(getattr(origin, "__value__", None)) or origin  # an alias: NDArray
    if origin is np.ndarray or kind is np.ndarray or is_jax_array(kind):
        return True
    return isinstance(kind, type) and issubclass(kind, AbstractArray)


def is_jax_array(kind: Any) -> bool:
    return "jax" in sys.modules and getattr(kind, "array_type", kind) is sys.modules["jax"].Array


def all_subclasses(kind: type) -> list[type]:
    return [one for own in kind.__subclasses__() for one in (own, *all_subclasses(own))]


@cache
def field_types(kind: type) -> dict[str, Any]:
    """Declared types of the fields that the constructor of a dataclass takes."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}
