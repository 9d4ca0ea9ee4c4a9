"""Gates of the members of an ensemble of networks."""

from functools import partial
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from sigmax.compilation import by_blocks, compiled


def mean_gates(networks: Any, X: Any) -> Float[np.ndarray, " rows"]:
    """Gate at every row, averaged over the ensemble members, which have a ``gate_value``."""
    return by_blocks(partial(predict_gates, networks), X, axis=1).mean(axis=0)


@compiled
def predict_gates(networks: Any, X: Any) -> Float[Array, "members rows"]:
    axes = (eqx.if_array(0), None)
    return eqx.filter_vmap(lambda network, X: network.gate_value(X), in_axes=axes)(networks, X)
