"""Settings of a model by Optuna, each chosen by the expected improvement of our predictions."""

import math

import optuna

from sigmax.integrations.optuna import SigmaxSampler

optuna.logging.set_verbosity(optuna.logging.WARNING)


def loss(trial):
    """A stand-in for a training: best with "adam" at a rate of 1e-3 and a depth of 5."""
    rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
    depth = trial.suggest_int("depth", 1, 9)
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam"])
    return (math.log10(rate) + 3) ** 2 + 0.1 * (depth - 5) ** 2 + (optimizer == "sgd")


study = optuna.create_study(sampler=SigmaxSampler(seed=1))
study.optimize(loss, n_trials=20)

print("trials:", len(study.trials), "optimizer:", study.best_params["optimizer"])
random = min(trial.values[0] for trial in study.trials[:10])
print(f"smallest loss of 10 random trials {random:.2f}, of all {study.best_value:.2f}")
