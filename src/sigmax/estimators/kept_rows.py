"""The rows that a local model keeps, those that came after the fit among them."""

from typing import Any, NamedTuple, final

import jax
import numpy as np

from sigmax.inputs import Inputs

__all__ = ["KeptRows", "Memory"]


@final
class KeptRows(NamedTuple):
    """The training rows, in standardised units."""

    X: Inputs
    y: np.ndarray
    weight: np.ndarray
    indices: np.ndarray
    """Which of the rows given to `fit` these are; later rows are numbered on."""

    def __add__(self, others: Any) -> "KeptRows":
        """These rows and others after them."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), self, others)

    def since(self, first: int) -> "KeptRows":
        """The rows from number ``first`` on."""
        return jax.tree.map(lambda leaf: np.asarray(leaf)[first:], self)


@final
class Memory(NamedTuple):
    """What a model knows of its rows beside their content."""

    n_fitted: int
    """The first rows, which the networks learned from."""
    n_centers: int
    """The inducing points of the gate that are of the fit: the first ones."""
    weight_unit: float = 1.0
    """The mean sample weight of these."""
    factor: float = 1.0
    """On the scales of predictions that rest on later rows alone, off the data of the fit."""

    def facts(self) -> dict[str, Any]:
        """What a saved model keeps of it, as plain JSON."""
        return {"memory": self._asdict()}

    @classmethod
    def from_facts(cls, facts: dict[str, Any], n_fitted: int, n_centers: int) -> "Memory":
        """What `facts` was taken from; of a model without it, nothing came after the fit."""
        found = cls(**facts.get("memory", {"n_fitted": n_fitted, "n_centers": n_centers}))
        is_sound = found.n_fitted == n_fitted and 0 < found.n_centers <= n_centers
        if not (is_sound and found.weight_unit > 0 and found.factor >= 1):
            raise ValueError(f"memory is {found}")
        return found
