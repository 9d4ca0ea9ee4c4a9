"""The methods that the experiments compare, by the names of the command line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from sigmax.estimators import (
    BayesianRegressor,
    CombinedRegressor,
    GPRegressor,
    LocalRegressor,
    MCDropoutRegressor,
    MeanVarianceRegressor,
    SparseGPRegressor,
)
from sigmax.estimators.gaussian_process import LARGEST_EXACT

__all__ = ["METHODS", "SIX_METHODS", "Method"]


@final
@dataclass(frozen=True)
class Method:
    """A method to compare: its title in tables, and a model for a seed."""

    title: str
    create: Callable[[int], Any]
    is_network: bool = True
    """Whether several can be trained in one call."""
    largest: int | None = None
    """The most rows it takes, if there is a limit."""
    own_settings: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Data set -> what the method sets differently there, as JSON has it."""


PAPER_UNITS = {name: {"hidden_sizes": [100]} for name in ("protein", "year")}
"""One hidden layer of 100 units; of 50 on all other sets, as the preset has it."""


METHODS = {
    "gp": Method(
        "GP", lambda seed: GPRegressor(random_state=seed), is_network=False, largest=LARGEST_EXACT
    ),
    "sgp": Method("SGP", lambda seed: SparseGPRegressor(random_state=seed), is_network=False),
    "nn": Method("NN", lambda seed: MeanVarianceRegressor(random_state=seed)),
    "bnn": Method("BNN", lambda seed: BayesianRegressor(random_state=seed)),
    "mc-dropout": Method("MC-Dropout", lambda seed: MCDropoutRegressor(random_state=seed)),
    "ens-nn": Method("Ens-NN", lambda seed: MeanVarianceRegressor(n_members=5, random_state=seed)),
    "nn-paper": Method(
        "NN (paper)",
        lambda seed: MeanVarianceRegressor(preset="paper", random_state=seed),
        own_settings=PAPER_UNITS,
    ),
    "combined-paper": Method(
        "Combined (paper)",
        lambda seed: CombinedRegressor(preset="paper", random_state=seed),
        own_settings=PAPER_UNITS,
    ),
    "combined": Method("Combined", lambda seed: CombinedRegressor(random_state=seed)),
    "local-fast": Method(
        "Local (fast)", lambda seed: LocalRegressor(preset="fast", random_state=seed)
    ),
    "local": Method("Local", lambda seed: LocalRegressor(random_state=seed)),
}

SIX_METHODS = ("gp", "nn", "bnn", "mc-dropout", "ens-nn", "combined")
"""What the paper's smaller experiments compare."""
