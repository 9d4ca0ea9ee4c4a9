"""Data, sampler and module in, fitted members out: one compiled loop for everything."""

from sigmax.training.chunk import AbstractStage, judge_members
from sigmax.training.data import Batch, Fold, Graph, TrainingData, bucket_size, pad_rows
from sigmax.training.loop import Progress, train_stage
from sigmax.training.member_axis import name_keys, over_members
from sigmax.training.objective import (
    LeaveOneOut,
    beta_negative_log_likelihood,
    dropout_error,
    faithful_error,
    held_out_density,
    log_likelihood,
    mean_weights_log_likelihood,
    negative_elbo,
    negative_log_likelihood,
    negative_squared_error,
    squared_error,
)
from sigmax.training.ray_team import on_ray
from sigmax.training.schedule import Part, Phase, Stage

__all__ = [
    "AbstractStage",
    "Batch",
    "Fold",
    "Graph",
    "LeaveOneOut",
    "Part",
    "Phase",
    "Progress",
    "Stage",
    "TrainingData",
    "beta_negative_log_likelihood",
    "bucket_size",
    "dropout_error",
    "faithful_error",
    "held_out_density",
    "judge_members",
    "log_likelihood",
    "mean_weights_log_likelihood",
    "name_keys",
    "negative_elbo",
    "negative_log_likelihood",
    "negative_squared_error",
    "on_ray",
    "over_members",
    "pad_rows",
    "squared_error",
    "train_stage",
]
