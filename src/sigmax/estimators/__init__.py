"""Estimators: scikit-learn on the outside, one predictive distribution per row inside."""

from sigmax.estimators.base import AbstractRegressor
from sigmax.estimators.bayesian import BayesianRegressor
from sigmax.estimators.combined import CombinedRegressor
from sigmax.estimators.dropout import MCDropoutRegressor
from sigmax.estimators.gaussian_process import GPRegressor, SparseGPRegressor
from sigmax.estimators.joint_fit import fit_together
from sigmax.estimators.loading import find_class, load_estimator
from sigmax.estimators.local import LocalRegressor
from sigmax.estimators.mean_variance import MeanVarianceRegressor
from sigmax.estimators.members import AbstractNetworkRegressor
from sigmax.estimators.parquet_stream import fit_parquet
from sigmax.estimators.plain import LinearRegressor, MarginalRegressor
from sigmax.estimators.recipe import Recipe

__all__ = [
    "AbstractNetworkRegressor",
    "AbstractRegressor",
    "BayesianRegressor",
    "CombinedRegressor",
    "GPRegressor",
    "LinearRegressor",
    "LocalRegressor",
    "MCDropoutRegressor",
    "MarginalRegressor",
    "MeanVarianceRegressor",
    "Recipe",
    "SparseGPRegressor",
    "find_class",
    "fit_parquet",
    "fit_together",
    "load_estimator",
]
