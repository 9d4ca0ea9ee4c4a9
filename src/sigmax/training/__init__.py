"""Training of ensemble members: data, stages and networks in, trained networks out."""

from sigmax.training.loop import (
    AbstractStage,
    Batch,
    Fold,
    Graph,
    Part,
    Phase,
    Stage,
    Supply,
    TrainingData,
    name_keys,
    over_members,
    train_stage,
    validate_members,
)
from sigmax.training.ray import on_ray

__all__ = [
    "AbstractStage",
    "Batch",
    "Fold",
    "Graph",
    "Part",
    "Phase",
    "Stage",
    "Supply",
    "TrainingData",
    "name_keys",
    "on_ray",
    "over_members",
    "train_stage",
    "validate_members",
]
