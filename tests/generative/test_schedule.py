"""The plan of a training: chunks, warm-up and phases."""

import pytest

from sigmax.generative.schedule import Plan


def make_plan(**settings) -> Plan:
    return Plan(
        **({"n_steps": 1000, "warm_up": 0.5, "batch_size": 8, "learning_rate": 1.0} | settings)
    )


@pytest.mark.parametrize(
    ("n_steps", "n_chunks", "length"), [(1, 1, 1), (100, 1, 100), (250, 3, 84)]
)
def test_chunks_have_one_length_and_cover_all_steps(n_steps, n_chunks, length):
    plan = make_plan(n_steps=n_steps)
    assert (plan.n_chunks, plan.steps_per_chunk) == (n_chunks, length)
    assert plan.one_chunk().steps_per_chunk == length


def test_a_longer_run_has_the_same_chunks():
    assert make_plan(n_steps=20_000, patience=3).one_chunk() == make_plan(warm_up=0.1).one_chunk()


def test_the_split_begins_after_the_warm_up():
    phases = [make_plan(splits=True).phase(chunk) for chunk in range(10)]
    assert phases == ["warm-up"] * 5 + ["split"] * 5
    assert {make_plan().phase(chunk) for chunk in range(10)} == {"joint"}


def test_the_variance_is_always_trained():
    plan = make_plan(splits=True, warm_up=1.0)
    assert plan.phase(8) == "warm-up" and plan.phase(9) == "split"
    assert make_plan(splits=True, n_steps=1, warm_up=1.0).phase(0) == "split"


def test_a_short_run_has_its_warm_up_too():
    plan = make_plan(splits=True, n_steps=10)
    assert (plan.n_chunks, plan.steps_per_chunk) == (2, 5)
    assert [plan.phase(chunk) for chunk in range(2)] == ["warm-up", "split"]
    assert make_plan(splits=True, n_steps=10, warm_up=0.0).n_chunks == 1
