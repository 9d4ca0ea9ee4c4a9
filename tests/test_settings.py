"""Signatures and docstrings of constructors follow from the declared settings."""

import inspect

import pytest

import sigmax
from sigmax.errors import InvalidArgumentError
from sigmax.settings import describe_settings

MODELS = [name for name in sigmax.__all__ if name.endswith(("Regressor", "VAE"))]
NO_SETTINGS = {
    "preset",
    "categorical_features",
    "numeric_features",
    "random_state",
    "verbose",
}


def presets_of(estimator: type) -> dict:
    """Other named sets of defaults, if the estimator has any."""
    return getattr(estimator, "presets", {})


def arguments(estimator: type) -> dict[str, inspect.Parameter]:
    """The arguments of the constructor that are settings."""
    found = inspect.signature(estimator).parameters
    return {name: argument for name, argument in found.items() if name not in NO_SETTINGS}


@pytest.mark.parametrize("name", MODELS)
def test_the_signature_has_declared_settings_only_and_their_defaults(name):
    estimator = getattr(sigmax, name)
    declared = estimator.default_recipe.declared()
    for argument in arguments(estimator).values():
        assert argument.name in declared
        default = getattr(estimator.default_recipe, argument.name)
        assert argument.default == (None if presets_of(estimator) else default)


@pytest.mark.parametrize("name", MODELS)
def test_the_docstring_has_every_setting_with_its_values_and_its_sentence(name):
    estimator = getattr(sigmax, name)
    expected = describe_settings(
        arguments(estimator), estimator.default_recipe, presets_of(estimator)
    )
    assert expected in estimator.__doc__, f"the docstring should say:\n{expected}"


@pytest.mark.parametrize("name", MODELS)
def test_every_default_passes_its_own_rule(name):
    estimator = getattr(sigmax, name)
    for recipe in (estimator.default_recipe, *presets_of(estimator).values()):
        values = {field: getattr(recipe, field) for field in recipe.declared()}
        assert recipe.override(values) == recipe


@pytest.mark.parametrize("name", MODELS)
def test_every_setting_refuses_what_is_no_value_of_its_own(name):
    recipe = getattr(sigmax, name).default_recipe
    for setting in recipe.declared():
        with pytest.raises(InvalidArgumentError, match=f"`{setting}` must be"):
            recipe.override({setting: object()})


def test_what_is_not_given_stays_and_what_is_no_setting_is_left_alone():
    recipe = sigmax.LocalRegressor.default_recipe
    assert recipe.override({"n_steps": None, "verbose": 3}) == recipe
    assert recipe.override({"n_steps": 7}).n_steps == 7


def test_none_is_refused_where_it_is_no_default():
    with pytest.raises(InvalidArgumentError, match="`n_restarts` must be"):
        sigmax.GPRegressor().set_params(n_restarts=None).fit([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(InvalidArgumentError, match="`n_latent` must be"):
        sigmax.VAE().set_params(n_latent=None).fit([[0.0], [1.0]])
