"""Names of levels as points: names that share runs of letters are near each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.utils.extmath import randomized_svd

from sigmax.files import take_array

__all__ = ["TextMap"]

N_HASHES = 2048
N_COMPONENTS = 16
"""Coordinates of a name, at most."""


@final
@dataclass(frozen=True, eq=False)
class TextMap:
    """Character n-grams, hashed and weighted by rarity, on their principal directions."""

    directions: NDArray[np.float32]
    """Of shape (N_HASHES, components): what n-grams are multiplied by."""

    @classmethod
    def fit(cls, names: Sequence[str], weight: NDArray[np.float64]) -> "TextMap":
        """From the names of all levels and how often they stand in the table."""
        grams = count_grams(names)
        rarity = np.log((1 + len(names)) / (1 + np.asarray((grams > 0).sum(axis=0)).ravel())) + 1
        weighted = grams.multiply(rarity[None]).tocsr()
        root = np.sqrt(weight / weight.sum())
        n_components = min(N_COMPONENTS, len(names) - 1)
        _, _, rows = randomized_svd(
            weighted.multiply(root[:, None]).tocsr(), n_components, random_state=0
        )
        return cls((rarity[:, None] * rows.T).astype(np.float32))

    @classmethod
    def from_directions(cls, directions: NDArray[Any]) -> "TextMap":
        """What a saved model kept of it, refused if it is of another shape."""
        n_components = directions.shape[-1]
        return cls(
            take_array(
                {"directions": directions}, "directions", (N_HASHES, n_components), np.float32
            )
        )

    @property
    def n_components(self) -> int:
        return self.directions.shape[1]

    def __call__(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Coordinates of names, also of new ones."""
        return np.asarray(count_grams(names) @ self.directions, dtype=np.float32)


def count_grams(names: Sequence[str]) -> Any:
    """Hashed n-grams of names, every name of length 1."""
    vectorizer = HashingVectorizer(
        analyzer="char_wb", ngram_range=(2, 4), n_features=N_HASHES, alternate_sign=False
    )
    return vectorizer.transform(list(names))
