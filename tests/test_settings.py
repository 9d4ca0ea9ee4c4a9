"""Signatures and docstrings of constructors follow from the declared settings."""

import inspect

import pytest

import sigmax
from sigmax.errors import InvalidArgumentError
from sigmax.settings import describe_settings

REGRESSORS = [name for name in sigmax.__all__ if name.endswith("Regressor")]
NO_SETTINGS = {"preset", "random_state", "verbose"}


def arguments(estimator: type) -> dict[str, inspect.Parameter]:
    """The arguments of the constructor that are settings."""
    found = inspect.signature(estimator).parameters
    return {name: argument for name, argument in found.items() if name not in NO_SETTINGS}


@pytest.mark.parametrize("name", REGRESSORS)
def test_the_signature_has_declared_settings_only_and_their_defaults(name):
    estimator = getattr(sigmax, name)
    declared = estimator.default_recipe.declared()
    for argument in arguments(estimator).values():
        assert argument.name in declared
        default = getattr(estimator.default_recipe, argument.name)
        assert argument.default == (None if estimator.presets else default)


@pytest.mark.parametrize("name", REGRESSORS)
def test_the_docstring_has_every_setting_with_its_values_and_its_sentence(name):
    estimator = getattr(sigmax, name)
    expected = describe_settings(arguments(estimator), estimator.default_recipe, estimator.presets)
    assert expected in estimator.__doc__, f"the docstring should say:\n{expected}"


@pytest.mark.parametrize("name", REGRESSORS)
def test_every_default_passes_its_own_rule(name):
    estimator = getattr(sigmax, name)
    for recipe in (estimator.default_recipe, *estimator.presets.values()):
        values = {field: getattr(recipe, field) for field in recipe.declared()}
        assert recipe.override(values) == recipe


@pytest.mark.parametrize("name", REGRESSORS)
def test_every_setting_refuses_what_is_no_value_of_its_own(name):
    recipe = getattr(sigmax, name).default_recipe
    for setting in recipe.declared():
        with pytest.raises(InvalidArgumentError, match=f"`{setting}` must be"):
            recipe.override({setting: object()})


def test_what_is_not_given_stays_and_what_is_no_setting_is_left_alone():
    recipe = sigmax.LocalRegressor.default_recipe
    assert recipe.override({"n_steps": None, "verbose": 3}) == recipe
    assert recipe.override({"n_steps": 7}).n_steps == 7
