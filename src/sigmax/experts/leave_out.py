r"""Rows left out in closed form, by methods that are linear in the targets.

Given the hyper-parameters, such a method has Normal targets, with a covariance C that is the one of
a function plus independent noise. Duplicates share the value of the function, and are left out
together. A group of them is equivalent to one measurement, their mean $\bar y$ weighted by
precision, with the noise variance $1/P$, where P is the sum of their precisions. With
$a = 1^\top [C^{-1}]_{gg} 1$ and $b = 1^\top [C^{-1} y]_g$, the function at the group given all
other rows has the mean $\bar y - b/a$ and the variance $1/a - 1/P$ (Rasmussen and Williams, 2006,
section 5.4.2).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from jaxtyping import Bool, Float, Int

from sigmax.distributions import Mixture, Normal, StudentT
from sigmax.experts.rows import Rows, split_large_groups

LEAST_DF = 2.5
"""Degrees of freedom of left-out densities at least, which matters where hardly any other row is
left: below 2 there is no variance."""
SMALLEST = 1e-9
"""Share of a precision or of a sum of squares, at least, that is left without a group: less is
rounding."""


@final
@dataclass(frozen=True, eq=False)
class DuplicateGroups:
    """Rows that are left out together: those of equal X, unless they are most rows.

    Examples
    --------
    >>> groups = DuplicateGroups.create(np.array([0, 1, 0, 2, 3]))
    >>> groups.size, groups.sum(np.arange(5.0))
    (array([2, 1, 1, 1]), array([2., 1., 3., 4.]))
    """

    label: Int[np.ndarray, " rows"]
    """Group of every row, from 0."""
    order: Int[np.ndarray, " rows"]
    """Rows, group by group."""
    first: Int[np.ndarray, " groups"]
    """Position in this order where each group begins."""

    @classmethod
    def create(cls, label: Int[np.ndarray, " rows"]) -> "DuplicateGroups":
        """A group of more than half of the rows becomes as many groups as it has rows."""
        label = split_large_groups(label, max(1, len(label) // 2))
        label = np.unique(label, return_inverse=True)[1].reshape(-1)
        order = np.argsort(label, kind="stable")
        return cls(label, order, np.searchsorted(label[order], np.arange(label.max() + 1)))

    @classmethod
    def of(cls, rows: Rows) -> "DuplicateGroups":
        """Groups of training rows: duplicates, and rows of the groups that the user gave."""
        return cls.create(rows.given.duplicate_group)

    def several(self) -> list[Int[np.ndarray, " _"]]:
        """Rows of every group that has more than one."""
        parts = np.split(self.order, self.first[1:])
        return [part for part in parts if len(part) > 1]

    def folds(
        self, order: Int[np.ndarray, " rows"], n_folds: int
    ) -> list[Bool[np.ndarray, " rows"]]:
        """Masks of folds of whole groups, which are taken in the order of their first rows."""
        _, first = np.unique(self.label[order], return_index=True)
        fold = np.argsort(np.argsort(first)) % n_folds
        masks = (fold[self.label] == k for k in range(n_folds))
        return [mask for mask in masks if mask.any() and not mask.all()]

    @property
    def size(self) -> Int[np.ndarray, " groups"]:
        return np.bincount(self.label)

    def sum(self, values: Float[np.ndarray, "*batch rows"]) -> Float[np.ndarray, "*batch groups"]:
        return np.add.reduceat(values[..., self.order], self.first, axis=-1)


@final
class LeftOut(NamedTuple):
    """Density of every row given the rows of all other groups."""

    mean: Float[np.ndarray, "draws rows"]
    latent: Float[np.ndarray, "draws rows"]
    """Variance of the function, or the squared scale of its Student-t."""
    noise: Float[np.ndarray, "draws rows"]
    """Variance of the noise of the row itself, or its part of the squared scale."""
    df: Float[np.ndarray, "draws rows"]
    """Degrees of freedom; infinite for a Normal density."""


def leave_groups_out(
    groups: DuplicateGroups,
    y: Float[np.ndarray, " rows"],
    noise: Float[np.ndarray, "draws rows"],
    precision: Float[np.ndarray, "draws groups"],
    residual: Float[np.ndarray, "draws groups"],
    df: float = math.inf,
) -> LeftOut:
    r"""Densities of rows that are left out together with their duplicates.

    If ``df`` is finite, the covariance has an unknown factor $s^2$ that was integrated out, and is
    given at the squared scale of the resulting Student-t densities. Without a group of k rows, of
    squared Mahalanobis length q given the others, they have k degrees of freedom less, and
    the squared scale is (df - q) / (df - k) times as large. ``precision`` and ``residual`` are a
    and b of the module's formula, under each of several draws of the hyper-parameters.
    """
    of_rows = 1 / noise
    total = groups.sum(of_rows)
    center = groups.sum(of_rows * y) / total
    precision = np.clip(precision, SMALLEST * total, total)
    mean, latent = center - residual / precision, 1 / precision - 1 / total
    factor, left = np.ones_like(mean), np.full_like(mean, df)
    if math.isfinite(df):
        squares = groups.sum(of_rows * (y - center[:, groups.label]) ** 2) + residual**2 / precision
        left = np.maximum(left - groups.size, LEAST_DF)
        factor = np.maximum(df - squares, SMALLEST * df) / left
    at = groups.label
    return LeftOut(mean[:, at], (factor * latent)[:, at], factor[:, at] * noise, left[:, at])


def inverse_blocks(
    groups: DuplicateGroups,
    factor: Float[np.ndarray, "rows directions"],
    share: Float[np.ndarray, " directions"],
    residual: Float[np.ndarray, " rows"],
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    r"""Residuals of rows, and diagonal of $M_{gg}^{-1}$, without the rows of their group.

    $M = I - F S F^\top$ turns targets into residuals; without the group g, which may have any X,
    these are $M_{gg}^{-1}$ times as large. Blocks that are larger than the number of directions are
    inverted by Woodbury's formula.
    """
    diagonal = 1 / np.maximum(1 - factor**2 @ share, SMALLEST)
    left_out = residual * diagonal
    for rows in groups.several():
        own = factor[rows]
        if len(rows) <= len(share):
            inverse = np.linalg.inv(np.eye(len(rows)) - (own * share) @ own.T)
            left_out[rows], diagonal[rows] = inverse @ residual[rows], np.diag(inverse)
        else:
            inner = np.diag(1 / np.maximum(share, SMALLEST)) - own.T @ own
            along = np.linalg.solve(inner, own.T)
            left_out[rows] = residual[rows] + own @ (along @ residual[rows])
            diagonal[rows] = 1 + np.sum(own * along.T, axis=1)
    return left_out, diagonal


def total_density(
    mean: Float[np.ndarray, "draws rows outputs"],
    latent: Float[np.ndarray, "draws rows outputs"],
    noise: Float[np.ndarray, "draws rows outputs"],
    df: float | Float[np.ndarray, "draws rows outputs"],
) -> Mixture:
    """Mixture of the densities of measurements, Normal where ``df`` is infinite."""
    total = latent + noise
    if np.isinf(df).all():
        components = Normal(mean, np.sqrt(total))
    else:
        components = StudentT(mean, np.broadcast_to(df, mean.shape).copy(), np.sqrt(total))
    return Mixture(components, latent / total)
