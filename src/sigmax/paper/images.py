"""Images: autoencoders with four decoders on four sets, by their bounds, densities and spread."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigmax.data import IMAGE_SETS, ImageData, load_images
from sigmax.generative.base import AbstractVAE
from sigmax.paper.generative import (
    GENERATIVE_METHODS,
    LEAST_PIXEL_STD,
    RunSettings,
    create_generative,
    fit_generative,
    latent_map,
    score_generative,
)
from sigmax.paper.image_sheets import pack, tiled
from sigmax.paper.images_report import image_figures, image_tables
from sigmax.runs.records import Record, Task, describe_machine, done
from sigmax.runs.registry import Experiment, register

__all__ = ["run_images", "usual_settings"]

N_CODES = 1_000
"""Codes in a picture, at most."""
SHEET = np.linspace(-4, 4, 15)
"""Both axes of the sheet of samples over the latent plane."""
N_DRAWN = 6
"""Rows and columns of a sheet where the latent space is no plane."""


def usual_settings(dataset: str) -> dict[str, Any]:
    """The paper's for a set: two latent dimensions for grey images, ten for colours."""
    is_grey = len(IMAGE_SETS[dataset].shape) == 2
    return {"n_latent": 2 if is_grey else 10, "min_std": LEAST_PIXEL_STD, "scaling": "none"}


@lru_cache(maxsize=1)
def loaded(name: str) -> ImageData:
    """A set, kept for the next job, which is often on the same."""
    return load_images(name)


def run_images(job: Sequence[Task]) -> list[Record]:
    """Fit the seeds of a job together and score each on test images."""
    data, machine, run = loaded(job[0].dataset), describe_machine(), RunSettings.of(job[0])
    X_train, X_test = data.X_train[: run.n_train], data.X_test[: run.n_test]
    models = [create_generative(task, usual_settings(data.name)) for task in job]
    seconds = fit_generative(models, [X_train] * len(models))
    facts: dict[str, Any] = {
        "hash": data.content_hash,
        "note": data.note,
        "n_train": len(X_train),
        "n_test": len(X_test),
        "n_features": X_train.shape[1],
    }
    records = []
    for task, model in zip(job, models, strict=True):
        scores = score_generative(model, X_train, X_test, n_importance=run.n_importance)
        curves: dict[str, NDArray] = {}
        sheet: dict[str, Any] = {}
        if task.split == 0:
            sheet = {"sheet": pack(sample_sheet(model, data.shape, task.seed))}
            if model.n_latent == 2:
                curves = image_curves(model, X_train, X_test, data.y_test)
        parts = {"seconds": seconds, "data": {**facts, **sheet}, "machine": machine}
        records.append(done(task, scores=scores, curves=curves, **parts))
    return records


def image_curves(
    model: AbstractVAE, X_train: NDArray, X_test: NDArray, labels: NDArray
) -> dict[str, NDArray]:
    """What the maps show of a model with a latent plane, flat, to three decimals."""
    codes = model.encode(X_test[:N_CODES])
    rows = {"codes": codes, "labels": labels[: len(codes)], "variance": latent_map(model, X_train)}
    return {name: np.round(values.astype(float), 3).ravel() for name, values in rows.items()}


def sample_sheet(model: AbstractVAE, shape: tuple[int, ...], seed: int) -> NDArray:
    """Samples with noise in one picture: over the latent plane, or else from the prior."""
    if model.n_latent == 2:
        z1, z2 = np.meshgrid(SHEET, SHEET[::-1])  # the picture's upper end is the plane's
        dist = model.decode_dist(np.column_stack([z1.ravel(), z2.ravel()]))
        images = dist.sample(1, random_state=seed)[0]
    else:
        images = model.sample(N_DRAWN**2, random_state=seed)
    return tiled(np.clip(images, 0, 1).reshape(-1, *shape))


register(
    Experiment(
        name="images",
        about="generative models of images: bounds, densities and the spread of pixels",
        datasets=tuple(IMAGE_SETS),
        methods=tuple(GENERATIVE_METHODS),
        n_splits=3,
        n_rows=lambda dataset: IMAGE_SETS[dataset].n_train,
        known_methods=GENERATIVE_METHODS,
        quick={
            "n_steps": 300,
            "batch_size": 128,
            "n_train": 2_000,
            "n_test": 200,
            "n_importance": 50,
        },
        run=run_images,
        tables=image_tables,
        figures=image_figures,
    )
)
