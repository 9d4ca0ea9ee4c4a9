"""A fit that fails or is interrupted leaves the estimator as it was."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from sklearn.base import BaseEstimator

from sigmax.compilation import clear_if_full

__all__ = ["atomic_fit"]

Model = TypeVar("Model", bound=BaseEstimator)


@contextmanager
def atomic_fit(models: Sequence[Model]) -> Iterator[list[Model]]:
    """Copies of the models without what these have learned, to be fitted in their place.

    When the block ends, each model takes over what its copy has learned, in one assignment. When it
    raises, be it a Ctrl-C, every model is as it was before. Where compiled programs are too many,
    those of earlier fits are dropped first.
    """
    clear_if_full()
    copies = [unfitted(model) for model in models]
    yield copies
    for model, fitted in zip(models, copies, strict=True):
        model.__dict__ = fitted.__dict__


def unfitted(model: Model) -> Model:
    """A copy that shares the settings."""
    copy = object.__new__(type(model))
    settings = {name: value for name, value in vars(model).items() if not name.endswith("_")}
    copy.__dict__ = settings
    return copy
