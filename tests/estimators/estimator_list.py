"""The list of estimators that every contract test runs over, small enough to be quick."""

from sigmax import CombinedRegressor, MeanVarianceRegressor

SMALL = {"hidden_sizes": (16,), "n_steps": 400, "random_state": 0}

ESTIMATORS = [
    CombinedRegressor(n_members=2, **SMALL),
    MeanVarianceRegressor(n_members=2, **SMALL),
]
