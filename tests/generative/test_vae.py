"""Both estimators: shapes, units, seeds, files, errors."""

import copy
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from generative_cases import SMALL, two_arcs
from sklearn.base import clone as sklearn_clone
from sklearn.exceptions import NotFittedError

import sigmax.training as loop
from sigmax.errors import InvalidArgumentError, InvalidDataError, ModelFileError, TrainingError
from sigmax.experts.rows import duplicate_groups
from sigmax.features import Standardizer
from sigmax.generative import VAE, CombVAE, fit_together, vae
from sigmax.generative.vae import VAESettings, as_history, create_stages, split_rows
from sigmax.random import named_generator

X = two_arcs(200, seed=0)
MODELS: dict[str, Any] = {
    "normal": VAE(**SMALL),
    "student": VAE("student", **SMALL),
    "comb": CombVAE(**SMALL),
}


def clone(model: Any) -> Any:
    return sklearn_clone(model)


@pytest.fixture(scope="module")
def fitted():
    """Every model, fitted when it is first asked for."""
    models = {}

    def get(name):
        if name not in models:
            models[name] = clone(MODELS[name]).fit(X)
        return models[name]

    return get


@pytest.mark.parametrize("name", MODELS)
def test_everything_has_its_shape_and_is_finite(fitted, name):
    model, rows = fitted(name), X
    codes = model.encode_dist(rows[:7])
    assert codes.shape == (7, 2) and (codes.std > 0).all()
    dist = model.decode_dist(codes.mean)
    assert dist.shape == (7, 4)
    np.testing.assert_array_equal(model.reconstruct(rows[:7]), dist.mean)
    for values in (dist.variance, model.elbo(rows), model.sample(5)):
        assert values.dtype == np.float64 and np.isfinite(values).all()
    assert model.elbo(rows[:7]).shape == (7,) and model.sample(5).shape == (5, 4)
    assert model.history_["step"] == [100, 200]
    assert model.history_["log_likelihood"][-1] > model.history_["log_likelihood"][0]


@pytest.mark.parametrize("name", ["normal", "comb"])
def test_a_saved_model_is_the_same_model(fitted, name, tmp_path):
    model, rows = fitted(name), X
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model")
    assert again.get_params() == model.get_params() and again.history_ == model.history_
    np.testing.assert_array_equal(again.log_prob(rows[:9], 10), model.log_prob(rows[:9], 10))
    np.testing.assert_array_equal(again.sample(3, random_state=1), model.sample(3, random_state=1))
    other = CombVAE if name == "normal" else VAE
    with pytest.raises(ModelFileError, match=f"holds a {type(model).__name__}"):
        other.load(tmp_path / "model")


@pytest.mark.parametrize("part", ["decoder.networks", "encoder.networks[0].bias", "scaling"])
def test_a_saved_model_whose_arrays_do_not_fit_each_other_is_damaged(fitted, tmp_path, part):
    model = copy.copy(fitted("normal"))
    if part == "scaling":
        scaling = Standardizer(np.zeros(3), np.ones(3))
        model.model_ = dataclasses.replace(model.model_, scaling=scaling)
    else:
        whole = model.model_.autoencoder
        if part == "decoder.networks":  # one is missing
            changed = eqx.tree_at(lambda a: a.decoder.networks, whole, whole.decoder.networks[:1])
        else:  # three latent dimensions instead of two
            changed = eqx.tree_at(lambda a: a.encoder.networks[0].bias, whole, jnp.zeros(3))
        model.model_ = dataclasses.replace(model.model_, autoencoder=changed)
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=r"damaged, .* do not fit a VAE: "):
        VAE.load(tmp_path / "model")


def test_settings_may_change_between_fit_and_save(fitted, tmp_path):
    model = copy.copy(fitted("normal")).set_params(n_latent=3)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(VAE.load(tmp_path / "model").encode(X), model.encode(X))


def test_samples_repeat_with_the_seed(fitted):
    model = fitted("normal")
    first = model.sample(4, random_state=3)
    np.testing.assert_array_equal(first, model.sample(4, random_state=3))
    assert (first != model.sample(4, random_state=4)).any()
    assert (first != model.sample(4, with_noise=False, random_state=3)).any()


def test_fits_repeat_with_the_seed(fitted):
    model = fitted("normal")
    np.testing.assert_array_equal(clone(model).fit(X).encode(X), model.encode(X))
    other = clone(model).set_params(random_state=1).fit(X)
    assert (other.encode(X) != model.encode(X)).any()


@pytest.mark.parametrize("name", ["normal", "comb"])
def test_densities_are_those_of_X_as_given(fitted, name):
    model, factor = fitted(name), np.array([1.0, 10.0, 1e-3, 2.0])
    scaled = clone(model).fit(X * factor + 5)
    shift = np.log(factor).sum()
    expected = model.log_prob(X[:50], 20) - shift
    np.testing.assert_allclose(scaled.log_prob(X[:50] * factor + 5, 20), expected, atol=0.02)
    assert scaled.history_["elbo"][-1] == pytest.approx(
        model.history_["elbo"][-1] - shift, abs=0.02
    )
    np.testing.assert_allclose(
        scaled.reconstruct(X[:5] * factor + 5), model.reconstruct(X[:5]) * factor + 5, rtol=1e-3
    )


def test_a_floor_is_in_the_units_of_X():
    constant = np.column_stack([X[:, :3], np.full(len(X), 3.0)])
    model = VAE(**SMALL, min_std=0.7).fit(constant)
    assert model.decode_dist(model.encode(constant)).std.min() >= 0.7 * (1 - 1e-6)


def test_models_fitted_together_end_as_if_alone(fitted):
    second = two_arcs(200, seed=1)
    models = [clone(MODELS["normal"]).set_params(random_state=seed) for seed in (0, 1, 2)]
    fit_together(models, [X, second, X])
    assert models[2].model_.scaling is models[0].model_.scaling
    alone = fitted("normal")
    np.testing.assert_allclose(models[0].encode(X), alone.encode(X), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(models[0].elbo(X), alone.elbo(X), rtol=5e-3, atol=5e-3)
    other = clone(models[1]).fit(second)
    np.testing.assert_allclose(models[1].elbo(second), other.elbo(second), rtol=5e-3, atol=5e-3)


def test_models_with_other_settings_are_not_fitted_together():
    with pytest.raises(InvalidArgumentError, match="same class and settings"):
        fit_together([VAE(**SMALL), VAE("shared", **SMALL)], [X, X])
    with pytest.raises(InvalidArgumentError, match="same class and settings"):
        fit_together([VAE(**SMALL)], [X, X])
    with pytest.raises(InvalidArgumentError, match="same shape"):
        fit_together([VAE(**SMALL)] * 2, [X, X[:50]])


def test_early_stopping_keeps_the_best_checkpoint():
    settings = SMALL | {"n_steps": 3000, "learning_rate": 0.03, "warm_up": 0.05}
    model = VAE(**settings, validation_fraction=0.3, patience=2).fit(X)
    held_out = model.history_["held_out_elbo"]
    assert len(held_out) < 30
    assert int(np.argmax(held_out[2:])) == len(held_out[2:]) - 3  # then two that were no better


def test_without_patience_all_steps_are_trained_and_the_best_is_kept():
    settings = SMALL | {"n_steps": 1000, "learning_rate": 0.05, "warm_up": 0.1}
    noise = np.random.default_rng(0).normal(size=(40, 5))  # learned by heart, on any machine
    never = [VAE(**settings, validation_fraction=0.5, patience=p).fit(noise) for p in (0, None)]
    history = never[0].history_["held_out_elbo"]
    assert len(history) == 10 and never[1].history_ == never[0].history_
    assert np.argmax(history[1:]) < 8  # or the best would be the last, and this would say nothing
    np.testing.assert_array_equal(never[0].encode(noise), never[1].encode(noise))


def test_patience_has_no_effect_without_validation_rows(fitted):
    model = clone(MODELS["normal"]).set_params(patience=1).fit(X)
    np.testing.assert_array_equal(model.encode(X), fitted("normal").encode(X))


def held_out_of(rows, fraction, seed=0):
    return split_rows(len(rows), duplicate_groups(rows), fraction, jax.random.key(seed))


def test_equal_rows_are_held_out_together():
    rng = np.random.default_rng(0)
    different = rng.normal(size=(60, 3)).astype(np.float32)
    copies = rng.permutation(np.r_[np.arange(60), np.repeat(np.arange(20), 2), [5] * 60])
    rows = different[copies]  # 40 rows once, 19 three times, one more often than are held out
    for seed in range(20):
        learned, held_out = held_out_of(rows, 0.2, seed)
        assert (len(learned), len(held_out)) == (128, 32)
        shared = set(copies[learned]) & set(copies[held_out])
        assert shared <= {5}
    pairs = np.repeat(different, 2, axis=0)
    learned, held_out = held_out_of(pairs, 0.125)  # 15 rows, one less than eight pairs
    assert (len(learned), len(held_out)) == (105, 15)
    assert len(np.unique(held_out)) == 15 and not set(learned // 2) & set(held_out // 2)
    learned, held_out = held_out_of(np.ones((10, 2), dtype=np.float32), 0.3)
    assert sorted([*learned, *held_out]) == list(range(10)) and len(held_out) == 3


def test_distinct_rows_are_held_out_in_shuffled_order():
    learned, held_out = held_out_of(X, 0.3)
    order = named_generator(jax.random.key(0), "folds 0").permutation(200)
    np.testing.assert_array_equal(held_out, np.sort(order[:60]))
    np.testing.assert_array_equal(learned, np.sort(order[60:]))


@pytest.mark.parametrize("name", ["normal", "comb"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_fit_that_is_interrupted_leaves_the_model_as_it_was(name, error, fitted, monkeypatch):
    model, fresh = copy.copy(fitted(name)), clone(MODELS[name])
    before, settings = dict(vars(model)), dict(vars(fresh))
    chunk, calls = loop.train_chunk, []

    def interrupt(*arguments):
        calls.append(arguments)
        if len(calls) % 2 == 0:
            raise error
        return chunk(*arguments)

    monkeypatch.setattr(loop, "train_chunk", interrupt)
    for one in (model, fresh):
        with pytest.raises(error):
            one.fit(5 + 10 * X)
    assert len(calls) == 4  # both were in the middle
    assert vars(model).keys() == before.keys() and vars(fresh) == settings
    assert all(vars(model)[k] is before[k] for k in before)
    with pytest.raises(NotFittedError):
        fresh.encode(X)


def test_no_model_changes_when_one_of_several_breaks_down(fitted, monkeypatch):
    model, fresh = copy.copy(fitted("normal")), clone(MODELS["normal"]).set_params(random_state=1)
    before = dict(vars(model))
    train = vae.train

    def break_second(*arguments):
        trained, histories = train(*arguments)
        histories[1]["kl"][-1] = np.nan
        return trained, histories

    monkeypatch.setattr(vae, "train", break_second)
    with pytest.raises(TrainingError, match="broke down"):
        fit_together([model, fresh], [X, X])
    assert all(vars(model)[k] is before[k] for k in before) and not hasattr(fresh, "model_")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"likelihood": "cauchy"}, "`likelihood` must be one of normal"),
        ({"scaling": "log"}, "`scaling` must be one of none, standard"),
        ({"n_latent": 0}, "`n_latent` must be a whole number"),
        ({"hidden_sizes": 64}, "`hidden_sizes` must be a list"),
        ({"hidden_sizes": (8, 0)}, "`hidden_sizes` must be a whole number"),
        ({"n_steps": 0}, "`n_steps`"),
        ({"warm_up": 1.5}, "`warm_up` must be a finite number"),
        ({"min_std": 0.0}, "`min_std` must be a finite number"),
        ({"patience": -1}, "`patience` must be a whole number of at least 0"),
        ({"patience": 1.5}, "`patience` must be a whole number of at least 0"),
        ({"validation_fraction": 0.6}, r"`validation_fraction` must be a finite .* \(0, 0.5\)"),
        ({"validation_fraction": -0.1}, r"`validation_fraction` must be a finite .* \(0, 0.5\)"),
    ],
)
def test_bad_settings_raise_an_error(settings, message):
    with pytest.raises(InvalidArgumentError, match=message):
        VAE(**(SMALL | settings)).fit(X)


def test_bad_settings_of_the_comb_vae_raise_an_error():
    for name in ("n_inducing", "n_secondary", "n_neighbors"):
        with pytest.raises(InvalidArgumentError, match=f"`{name}` must be a whole number"):
            clone(MODELS["comb"]).set_params(**{name: 0}).fit(X)


def test_verbose_shows_a_bar_and_silence_is_the_default(capsys):
    X = two_arcs(60, 0)
    VAE(**{**SMALL, "n_steps": 5}).fit(X)
    assert capsys.readouterr().out == ""
    VAE(**{**SMALL, "n_steps": 5}, verbose=1).fit(X)
    shown = capsys.readouterr().out
    assert "━━━" in shown and "ELBO" in shown


def test_without_hidden_layers_an_autoencoder_is_linear():
    X = two_arcs(60, 0)
    vae = VAE("shared", **{**SMALL, "hidden_sizes": (), "n_steps": 5}).fit(X)
    z = np.array([[-1.0, 0.5], [0.0, 0.0], [1.0, -0.5]])
    mean = vae.decode_dist(z).mean
    np.testing.assert_allclose(mean[0] + mean[2], 2 * mean[1], atol=1e-5)


def test_a_training_that_breaks_down_says_so():
    stage = create_stages(VAESettings(n_steps=300), 200, 0)[0]
    kl = np.ones(3, np.float32)
    sound = {"log_likelihood": np.array([-3.0, np.nan, -2.0]), "kl": kl}
    np.testing.assert_allclose(as_history(sound, stage, 0.5)["elbo"], [-4.5, np.nan, -3.5])
    with pytest.raises(TrainingError, match="before step 200: use a smaller `learning_rate`"):
        as_history({"log_likelihood": np.array([-3.0, np.nan, np.nan]), "kl": kl}, stage, 0.5)


def test_bad_rows_raise_an_error(fitted):
    with pytest.raises(ValueError, match="NaN"):
        VAE(**SMALL).fit(np.where(X > 2, np.nan, X))
    with pytest.raises(ValueError, match="features"):
        fitted("normal").encode(X[:, :3])
    with pytest.raises(InvalidDataError, match=r"`z` must be an array of shape \(n, 2\)"):
        fitted("normal").decode_dist(np.zeros((3, 5)))
    with pytest.raises(InvalidDataError, match="`z` cannot be used: Input z contains NaN"):
        fitted("normal").decode_dist([[np.nan, 0.0]])
    with pytest.raises(NotFittedError):
        VAE().encode(X)
    with pytest.raises(NotFittedError):
        CombVAE().sample(3)
