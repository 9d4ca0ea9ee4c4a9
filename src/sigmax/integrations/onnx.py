"""ONNX: the parameters of the predictive density as a graph that other runtimes evaluate.

A module to import by its name, ``from sigmax.integrations.onnx import export``: it needs ONNX,
``pip install "sigmax[onnx]"``.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sigmax.errors import InvalidArgumentError
from sigmax.estimators import CombinedRegressor, LocalRegressor, MeanVarianceRegressor
from sigmax.integrations.onnx_graph import OnnxGraph, OnnxValue
from sigmax.integrations.onnx_networks import (
    OnnxInputs,
    OnnxMember,
    local_member,
    members_of,
    variance_member,
)
from sigmax.scaling import FARTHEST
from sigmax.version import __version__

__all__ = ["export", "to_onnx"]


def export(model: Any, path: str | Path) -> None:
    """Write a fitted model as an ONNX file: see `to_onnx`."""
    content = to_onnx(model).SerializeToString()
    Path(path).write_bytes(content)


def to_onnx(model: Any) -> Any:
    """A fitted model as a graph from features to the parameters of its predictive density.

    The density of a row is the mixture of K components, Student-t or Normal, in the units of y. The
    graph takes ``X`` of shape (rows, features), in double precision and original units, NaN for a
    gap. It gives ``loc``, ``scale``, ``weight`` and, of Student-t components, ``df``: of shape
    (rows, K), or (rows, outputs, K) of a model of several outputs.

    Parameters
    ----------
    model : CombinedRegressor, MeanVarianceRegressor or LocalRegressor
        Fitted to numbers without gaps, without a map of the target and, a `LocalRegressor`,
        without forests.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    InvalidArgumentError
        If the model is another; the message says what is in the way.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import MeanVarianceRegressor
    >>> from sigmax.integrations.onnx import to_onnx
    >>> X = np.linspace(0, 1, 60)[:, None]
    >>> model = MeanVarianceRegressor(n_steps=20, hidden_sizes=(4,), n_members=2, random_state=0)
    >>> graph = to_onnx(model.fit(X, X[:, 0])).graph
    >>> [entry.name for entry in graph.output]
    ['loc', 'scale', 'weight']
    """
    check_is_fitted(model)
    check_exportable(model)
    graph = OnnxGraph()
    X = graph.input("X", ["rows", model.n_features_in_])
    members = predicted_members(model, standardized(model, X))
    n_outputs = len(model.units_.scaling.mean)
    shape: list[int | str] = ["rows", n_outputs, n_components(model, members)]
    for name, value in in_target_units(model, graph, members).items():
        if model.is_single_output_:
            graph.output(name, value.reshape(0, shape[2]), [shape[0], shape[2]])  # pyright: ignore[reportArgumentType]
        else:
            graph.output(name, value, shape)
    metadata = {
        "sigmax": __version__,
        "estimator": type(model).__name__,
        "components": "Normal" if members[0].df is None else "StudentT",
    }
    return graph.model(type(model).__name__, metadata)


def check_exportable(model: Any) -> None:
    """Refuse what ONNX has no operators for."""
    name = type(model).__name__
    if not isinstance(model, CombinedRegressor | MeanVarianceRegressor | LocalRegressor):
        rule = "a CombinedRegressor, a MeanVarianceRegressor or a LocalRegressor"
        raise InvalidArgumentError(
            f"`model` must be {rule}, got a {name}: others predict by random draws of their"
            " networks or by solving triangular systems, for which ONNX has no operators."
        )
    if not model.features_.schema.is_plain:
        raise InvalidArgumentError(
            f"This {name} was fitted to categories, times or gaps, which are encoded outside of its"
            " networks: only models of numbers without gaps can be exported."
        )
    if model.units_.spline is not None:
        raise InvalidArgumentError(
            f"This {name} learned a monotone map of the target, so that its density has no location"
            ' and scale in the units of y: fit it with `target_map="none"`.'
        )
    if isinstance(model, LocalRegressor):
        if model.forests_ is not None:
            raise InvalidArgumentError(
                "This LocalRegressor has forests beside its networks, whose leaves name training"
                " rows: fit it with `n_trees=0`."
            )
        if model.predictor_.nearest is not None:
            raise InvalidArgumentError(
                "This LocalRegressor searches the nearest of its many training rows, for which ONNX"
                " has no operator: fit it to 32,768 rows at most."
            )


def standardized(model: Any, X: OnnxValue) -> OnnxInputs:
    """Rows as `Features.plain_inputs` gives them; networks of a local model see the rim."""
    features = model.features_
    mean, scale = (
        X.graph.constant(part, np.float64)
        for part in (features.scaling.mean, features.scaling.scale)
    )
    is_empty = X.apply("IsNaN")
    standard = (X.graph.node("Where", is_empty, mean, X) - mean) / scale
    ends = (X.graph.constant(end, np.float64) for end in (-FARTHEST, FARTHEST))
    numbers = X.graph.node("Clip", standard, *ends).cast(np.float32)
    highest = np.array(
        [[0.0 if column.high is None else column.high for column in features.schema]]
    )
    beyond = X.graph.constant(features.scaling(highest) + np.float32(features.reach))
    coordinates = X.graph.node("Where", is_empty, beyond, numbers)
    if isinstance(model, LocalRegressor):
        lower, upper = model._rim
        numbers = numbers.maximum(lower).minimum(upper)
    return OnnxInputs(numbers, coordinates)


def predicted_members(model: Any, inputs: OnnxInputs) -> list[OnnxMember]:
    """The density of every member."""
    n_members = len(model.networks_.factor)
    networks = members_of(model.networks_, n_members)
    if not isinstance(model, LocalRegressor):
        return [variance_member(network, inputs) for network in networks]
    rows = members_of(model.predictor_.training_sets, n_members)
    return [local_member(network, row, inputs) for network, row in zip(networks, rows, strict=True)]


def n_components(model: Any, members: list[OnnxMember]) -> int:
    """Of all members together."""
    if members[0].log_weight is None:
        return len(members)
    n_outputs = len(model.units_.scaling.mean)
    n_found = model.networks_.spread.biases[-1].shape[-1] // n_outputs
    return len(members) * (1 if n_found == 2 else n_found // 4)


def in_target_units(
    model: Any, graph: OnnxGraph, members: list[OnnxMember]
) -> dict[str, OnnxValue]:
    """Parameters of all components, in double precision and the units of y."""

    def together(values: Any) -> OnnxValue:
        return graph.concatenate([value.cast(np.float64) for value in values], axis=2)

    mean, scale = (
        graph.constant(np.reshape(part, (1, -1, 1)), np.float64)
        for part in (model.units_.scaling.mean, model.units_.scaling.scale)
    )
    found = {
        "loc": mean + scale * together(member.mean for member in members),
        "scale": scale * together(member.scale for member in members),
    }
    if members[0].df is not None:
        found["df"] = together(member.df for member in members)
    if members[0].log_weight is None:
        found["weight"] = found["loc"].filled(1 / len(members))
    else:
        less = graph.constant(math.log(len(members)), np.float64)
        found["weight"] = (together(m.log_weight for m in members) - less).apply("Exp")
    return found
