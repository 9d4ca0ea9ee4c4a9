"""The stages of a training: chunks, warm-up and what a step trains."""

from typing import Any

import numpy as np
import pytest

from sigmax.generative.vae import CombVAESettings, VAESettings, VAEStage, create_stages


def make_stages(*, apart=False, **settings: Any) -> tuple[VAEStage, ...]:
    kind = CombVAESettings if apart else VAESettings
    settings = {"n_steps": 1000} | settings
    return create_stages(kind(**settings), 1000, 0)


def steps_of_chunks(**settings) -> list[str]:
    return [stage.step for stage in make_stages(**settings) for _ in range(stage.n_chunks)]


@pytest.mark.parametrize(
    ("n_steps", "n_chunks", "length"), [(1, 1, 1), (100, 1, 100), (250, 3, 84)]
)
def test_chunks_have_one_length_and_cover_all_steps(n_steps, n_chunks, length):
    stages = make_stages(n_steps=n_steps)
    assert sum(stage.n_chunks for stage in stages) == n_chunks
    assert {stage.steps_per_chunk for stage in stages} == {length}
    assert stages[0].one_chunk().steps_per_chunk == length


def test_a_longer_run_has_the_same_chunks():
    longer, shorter = make_stages(n_steps=20_000, patience=3), make_stages(warm_up=0.1)
    assert {stage.one_chunk() for stage in (*longer, *shorter)} == {longer[0].one_chunk()}


def test_mean_and_variance_are_trained_apart_after_the_warm_up():
    assert steps_of_chunks(apart=True) == ["mean"] * 5 + ["split"] * 5
    assert steps_of_chunks() == ["joint"] * 10


def test_validation_scores_count_after_the_warm_up():
    warm_up, rest = make_stages(patience=3)
    assert (warm_up.n_chunks, warm_up.patience) == (5, 0)
    assert (rest.n_chunks, rest.patience, rest.first_chunk) == (5, 3, 5)


def test_the_weight_of_the_divergence_grows_over_the_warm_up():
    warm_up, rest = make_stages()
    clocks = [stage.clock(i) for stage in (warm_up, rest) for i in range(5)]
    weights = np.concatenate([rest.divergence_weights(*clock) for clock in clocks])
    np.testing.assert_allclose(weights, np.minimum(np.arange(1, 1001) / 500, 1), rtol=1e-6)


def test_the_variance_is_trained_in_at_least_one_chunk():
    assert steps_of_chunks(apart=True, warm_up=1.0) == ["mean"] * 9 + ["split"]
    assert steps_of_chunks(apart=True, n_steps=1, warm_up=1.0) == ["split"]


def test_a_short_run_has_its_warm_up_too():
    assert {stage.steps_per_chunk for stage in make_stages(apart=True, n_steps=10)} == {5}
    assert steps_of_chunks(apart=True, n_steps=10) == ["mean", "split"]
    assert steps_of_chunks(apart=True, n_steps=10, warm_up=0.0) == ["split"]


def test_batches_are_no_larger_than_the_data():
    settings = CombVAESettings(n_neighbors=20, n_steps=100)
    stage = create_stages(settings, 9, 3)[-1]
    assert (stage.batch_size, stage.n_primary, stage.n_secondary) == (9, 12, 12)
    assert stage.keep_best
    stage = create_stages(settings, 900, 0)[-1]
    assert (stage.batch_size, stage.n_primary, stage.n_secondary) == (512, 16, 20)
