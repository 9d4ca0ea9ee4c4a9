"""Compiled programs are forgotten in time, those of others never, and models go on working."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sigmax import MeanVarianceRegressor
from sigmax.compilation import (
    AUTOTUNING,
    MAPS,
    clear_if_full,
    compiled,
    has_autotuning,
    is_untuned,
    on_device,
)

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory maps are Linux's")


def count_maps() -> int:
    return MAPS.read_bytes().count(b"\n")


@linux
def test_programs_are_forgotten_when_there_are_many_and_not_before():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    model = MeanVarianceRegressor(hidden_sizes=(8,), n_steps=40, random_state=0)
    model.set_settings(warmup_fraction=0.0).fit(X, y)
    before, mean = count_maps(), model.predict(X)
    assert not clear_if_full(share=1.0)
    assert clear_if_full(share=0.0)
    assert count_maps() < before
    np.testing.assert_array_equal(model.predict(X), mean)


traces: list[str] = []


@compiled
def ours(x, exponent, names=()):
    traces.append("ours")
    return {"power": x**exponent, "names": names, "function": jnp.sin}


@jax.jit
def theirs(x):
    traces.append("theirs")
    return 2 * x


@linux
def test_only_our_own_programs_are_forgotten():
    x = jnp.arange(3.0)
    traces.clear()

    def call_both():
        ours(x, 2)
        theirs(x)

    call_both()
    call_both()
    assert traces == ["ours", "theirs"]
    assert clear_if_full(share=0.0)
    call_both()
    assert traces == ["ours", "theirs", "ours"]


def test_arrays_are_traced_and_all_else_is_static():
    traces.clear()
    found = ours(np.arange(3.0, dtype=np.float32), 2, names=("a", "b"))
    np.testing.assert_array_equal(found["power"], [0.0, 1.0, 4.0])
    assert found["names"] == ("a", "b") and found["function"] is jnp.sin
    ours(jnp.ones(3), 2, names=("a", "b"))
    assert len(traces) == 1  # other values, same shape
    ours(jnp.ones(3), 3, names=("a", "b"))
    ours(jnp.ones(4), 2, names=("a", "b"))
    assert len(traces) == 3
    slope = jax.grad(lambda x: ours(x, 3)["power"])(jnp.asarray(2.0))
    assert slope == pytest.approx(12.0)


def test_elsewhere_there_is_nothing_to_forget(monkeypatch, tmp_path):
    monkeypatch.setattr("sigmax.compilation.LIMIT", tmp_path / "missing")
    assert not clear_if_full(share=0.0)


def test_arrays_reach_the_device_without_a_program():
    compilations: list[str] = []

    def note(event: str, duration_secs: float, **_: object) -> None:
        compilations.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    found = on_device(np.ones((3, 1, 17)), np.float32)
    assert isinstance(found, jax.Array) and found.dtype == np.float32
    assert not [event for event in compilations if "backend_compile" in event]


@compiled
def square(x):
    return x**2


def test_on_a_gpu_nothing_is_autotuned_unless_asked_for(monkeypatch):
    """The option is one that XLA knows, also on a CPU; parts of other programs have no options."""
    monkeypatch.setenv("XLA_FLAGS", "")
    assert not is_untuned([jnp.ones(3)])
    assert has_autotuning()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert is_untuned([jnp.ones(3)])
    assert square(jnp.full((), 3.0)) == 9
    assert jax.grad(square)(3.0) == 6 and jax.jit(lambda x: square(x) + 1)(3.0) == 10
    monkeypatch.setenv("XLA_FLAGS", f"--{AUTOTUNING}=4")
    assert not is_untuned([jnp.ones(3)])
