"""Rows on the device, padded to a few sizes, and which of them each member learns from.

Everything in `TrainingData` has a leading axis of groups: one group for an ordinary fit, one per
split when the splits of a cross-validation are trained together. A member says in which group it
lives, so data are held once per group and not once per member.
"""

from collections.abc import Mapping, Sequence
from typing import final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sigmax.compilation import on_device
from sigmax.inputs import Inputs
from sigmax.padding import bucket_size, pad_rows
from sigmax.sampling import neighbor_counts


def stack_groups(groups: Sequence[np.ndarray]) -> Array:
    return on_device(groups[0][None] if len(groups) == 1 else np.stack(groups))


@final
class Graph(eqx.Module):
    """Neighbour lists, and in how many of them each row stands."""

    neighbors: Int[Array, "groups slots k"]
    counts: Float[Array, "groups slots"]

    @property
    def n_neighbors(self) -> int:
        """The length of a list."""
        return self.neighbors.shape[-1]

    @classmethod
    def create(cls, graphs: Sequence[np.ndarray], n_slots: int) -> "Graph":
        """From one array of neighbour lists per group."""
        counts = [neighbor_counts(graph).astype(np.float32) for graph in graphs]
        return cls(
            stack_groups([pad_rows(graph.astype(np.int32), n_slots) for graph in graphs]),
            stack_groups([pad_rows(count, n_slots, fill=1.0) for count in counts]),
        )


@final
class TrainingData(eqx.Module):
    """The rows of every group, standardised and padded, and the graphs that batches walk on."""

    X: Inputs
    """Leaves (groups, slots, ...)."""
    y: Float[Array, "groups slots outputs"]
    own_center: Int[Array, "groups slots"]
    weight: Float[Array, "groups slots"]
    """Sample weights, 1 on average, and 0 for padding."""
    n_rows: Int[Array, " groups"]
    graphs: dict[str, Graph]

    @classmethod
    def create(
        cls,
        X: Sequence[Inputs],
        y: Sequence[np.ndarray],
        own_center: Sequence[np.ndarray],
        graphs: Mapping[str, Sequence[np.ndarray]],
        weight: Sequence[np.ndarray] | None = None,
        n_slots: int = 0,
    ) -> "TrainingData":
        """From lists with one entry per group; ``graphs`` has such a list for every name.

        There are ``n_slots`` at least.
        """
        n_slots = max(n_slots, bucket_size(max(len(rows) for rows in X)))
        weight = [np.ones(len(rows)) for rows in X] if weight is None else weight
        relative = [(own / own.mean()).astype(np.float32) for own in weight]
        return cls(
            jax.tree.map(lambda *own: stack_groups([pad_rows(o, n_slots) for o in own]), *X),
            stack_groups([pad_rows(rows.astype(np.float32), n_slots) for rows in y]),
            stack_groups([pad_rows(rows.astype(np.int32), n_slots) for rows in own_center]),
            stack_groups([pad_rows(own, n_slots) for own in relative]),
            on_device([len(rows) for rows in X], np.int32),
            {name: Graph.create(lists, n_slots) for name, lists in graphs.items()},
        )

    @property
    def n_slots(self) -> int:
        return self.y.shape[1]

    def rows(
        self,
        group: Int[Array, ""],
        index: Int[Array, " batch"],
        weight: Float[Array, " batch"],
        key: PRNGKeyArray | None = None,
        n_learned: Float[Array, ""] | None = None,
    ) -> "Batch":
        """The rows ``index`` of one group."""
        X, y, own_center = self.X[group, index], self.y[group, index], self.own_center[group, index]
        return Batch(X, y, own_center, group, index, weight, key, n_learned)


@final
class Batch(eqx.Module):
    """Some rows: what an objective sees. It may look up others of its ``group`` by ``index``.

    ``key`` is there for the objective of a phase that `Phase.is_random`, fresh in every step, and
    ``n_learned``, the number of rows that the member learns from, for every objective of a step.
    """

    X: Inputs
    """Leaves (batch, ...)."""
    y: Float[Array, "batch outputs"]
    own_center: Int[Array, " batch"]
    group: Int[Array, ""]
    index: Int[Array, " batch"]
    weight: Float[Array, " batch"]
    key: PRNGKeyArray | None = None
    n_learned: Float[Array, ""] | None = None


@final
class Fold(eqx.Module):
    """What one member learns from and what it is judged on.

    ``weight`` is the share of each row in the training objective: 0 for held-out rows and padding,
    summing to 1. ``validation`` are held-out rows, ``validation_weight`` 0 for padding, summing
    to 1, or all 0 when nothing is held out.
    """

    group: Int[Array, "*members"]
    weight: Float[Array, "*members slots"]
    validation: Int[Array, "*members held_out"]
    validation_weight: Float[Array, "*members held_out"]
    n_learned: Float[Array, "*members"]
    """How many rows have a weight."""

    @classmethod
    def create(
        cls,
        sample_weights: Sequence[np.ndarray],
        held_out: Sequence[np.ndarray],
        groups: Sequence[int],
        n_slots: int,
        duplicate_group: Sequence[np.ndarray] | None = None,
        n_held_out: int = 1,
    ) -> "Fold":
        """One fold per member, from the sample weights of its group and its held-out rows.

        By the labels ``duplicate_group`` held-out rows of equal X share the weight of one: new
        rows are like those that stand alone, and copies of one row are one test. There is room for
        ``n_held_out`` rows of each member at least.
        """
        n_held_out = max(n_held_out, *(len(rows) for rows in held_out))
        n_held_out = bucket_size(n_held_out, smallest=32)
        weight = np.zeros((len(groups), n_slots), dtype=np.float32)
        validation = np.zeros((len(groups), n_held_out), dtype=np.int32)
        validation_weight = np.zeros((len(groups), n_held_out), dtype=np.float32)
        for member, (group, rows) in enumerate(zip(groups, held_out, strict=True)):
            share = sample_weights[group].astype(np.float64)
            if len(rows):
                judged = share[rows]
                if duplicate_group is not None:
                    judged = (
                        judged / np.bincount(duplicate_group[group])[duplicate_group[group][rows]]
                    )
                validation[member, : len(rows)] = rows
                validation_weight[member, : len(rows)] = judged / judged.sum()
            learned = share.copy()
            learned[rows] = 0
            weight[member, : len(learned)] = learned / learned.sum()
        n_learned = np.sum(weight > 0, axis=1).astype(np.float32)
        group = np.asarray(groups, dtype=np.int32)
        of_members = group, weight, validation, validation_weight, n_learned
        return cls(*map(on_device, of_members))
