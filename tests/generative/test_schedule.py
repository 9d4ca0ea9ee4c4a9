"""The stages of a training: chunks, warm-up and what a step trains."""

import numpy as np
import pytest

from sigmax.generative.schedule import VAEStage, create_stages


def make_stages(**settings) -> tuple[VAEStage, ...]:
    defaults = {"n_steps": 1000, "warm_up": 0.5, "splits": False, "patience": 0, "keep_best": False}
    return create_stages(**(defaults | {"batch_size": 8, "learning_rate": 1.0} | settings))


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


def test_the_split_begins_after_the_warm_up():
    assert steps_of_chunks(splits=True) == ["mean"] * 5 + ["split"] * 5
    assert steps_of_chunks() == ["joint"] * 10


def test_held_out_scores_count_after_the_warm_up():
    warm_up, rest = make_stages(patience=3)
    assert (warm_up.n_chunks, warm_up.patience) == (5, 0)
    assert (rest.n_chunks, rest.patience, rest.first_chunk) == (5, 3, 5)


def test_the_weight_of_the_divergence_grows_over_the_warm_up():
    warm_up, rest = make_stages()
    clocks = [stage.clock(i) for stage in (warm_up, rest) for i in range(5)]
    weights = np.concatenate([rest.divergence_weights(*clock) for clock in clocks])
    np.testing.assert_allclose(weights, np.minimum(np.arange(1, 1001) / 500, 1), rtol=1e-6)


def test_the_variance_is_always_trained():
    assert steps_of_chunks(splits=True, warm_up=1.0) == ["mean"] * 9 + ["split"]
    assert steps_of_chunks(splits=True, n_steps=1, warm_up=1.0) == ["split"]


def test_a_short_run_has_its_warm_up_too():
    assert {stage.steps_per_chunk for stage in make_stages(splits=True, n_steps=10)} == {5}
    assert steps_of_chunks(splits=True, n_steps=10) == ["mean", "split"]
    assert steps_of_chunks(splits=True, n_steps=10, warm_up=0.0) == ["split"]
