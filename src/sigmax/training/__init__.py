"""Data, sampler and networks in, trained ensemble members out: one compiled loop for all."""

from sigmax.training.data import Batch, Fold, Graph, TrainingData
from sigmax.training.loop import AbstractStage, Progress, Supply, judge_members, train_stage
from sigmax.training.member_axis import name_keys, over_members
from sigmax.training.ray import on_ray
from sigmax.training.schedule import Part, Phase, Stage

__all__ = [
    "AbstractStage",
    "Batch",
    "Fold",
    "Graph",
    "Part",
    "Phase",
    "Progress",
    "Stage",
    "Supply",
    "TrainingData",
    "judge_members",
    "name_keys",
    "on_ray",
    "over_members",
    "train_stage",
]
