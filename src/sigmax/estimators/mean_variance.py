"""The plain mean-variance network: the paper's NN and, with several members, its Ens-NN."""

from typing import final

from sigmax.estimators.recipe import PLAIN, PLAIN_PRESETS
from sigmax.estimators.variance_base import AbstractVarianceNetworkRegressor
from sigmax.settings import store

__all__ = ["MeanVarianceRegressor"]


@final
class MeanVarianceRegressor(AbstractVarianceNetworkRegressor):
    """A mean network and a variance network, trained together on the Gaussian likelihood.

    Nix and Weigend's network: none of the four ideas of `CombinedRegressor`, the same engine,
    settings and presets otherwise. With ``n_members=5`` it is the Deep Ensemble of
    Lakshminarayanan et al., scored as the mixture that it is.

    Parameters
    ----------
    preset : None, "fast" or "paper"
        As in `CombinedRegressor`. Every setting left at None comes from it.
    n_members : int, default 1
        Networks trained at once, of which the prediction is the equal mixture; ten with fewer than
        200 rows unless this is given or 1.
    loss : "beta", "faithful" or "likelihood", default "likelihood"
        Without `split`: the plain likelihood; β-NLL with β = ½ (Seitzer et al.); or the squared
        error for the mean and the likelihood around it for the variance (Stirn et al.).
    hidden_sizes : tuple of int, default (128, 128) ((64, 64) in "fast", (50,) in "paper")
        Units of the hidden layers of each network.
    activation : "relu", "silu" or "tanh", default "silu" ("relu" in "paper")
        Activation of the hidden layers.
    n_steps : int, default 4000 (1500 in "fast", 10000 in "paper")
        Training steps in all, of the mean and of the variance together.
    warmup_fraction : float, default 0.3 (0.5 in "paper")
        Share of the steps that train the mean alone, at first.
    batch_size : int, default 256
        Rows of a batch in the warm-up and without `locality`.
    learning_rate : float, default 0.003 (0.01 in "paper")
        Step size of Adam for the mean.
    variance_learning_rate : float, default 0.001 (0.01 in "paper")
        Step size of Adam for the variance.
    weight_decay : float, default 0.0001 (0.0 in "paper")
        Decoupled weight decay of the mean network.
    variance_weight_decay : float, default 0.0001 (0.0 in "paper")
        Decoupled weight decay of the variance networks.
    decay_rate : bool, default True (False in "paper")
        Let the step sizes fall to 0 along half a cosine.
    validation_fraction : float, default 0.1 (0.0 in "paper")
        Share of rows that each member holds out to choose its best snapshot; 0 keeps the last one.
        Rows of equal X are held out together. Of fewer than 200 rows, 20 rows or 40 % are held out
        unless this is given.
    patience : int, default 15 (0 in "paper")
        Scorings without a better snapshot before training stops; 0 never stops early.
    recalibrate : bool, default True (False in "paper")
        Widen all scales by the one factor that suits the members' held-out rows best. With fewer
        than 200 rows these also decide how far predictions are taken back to the mean and the
        variance of y.
    target_map : "auto", "none" or "normal-scores", default "none"
        What the networks learn: y itself, or a monotone function of it that makes its distribution
        Normal; "auto" lets held-out rows decide. Of fewer than 200 different rows, y itself is
        learned, whatever is asked.
    support : "auto" or (low, high), default "auto" ((None, None) in "paper")
        Least and greatest possible value of y, of which either may be None: densities and intervals
        end there. "auto" is (0, None) if no y is negative and many are near 0 or the distribution
        is skewed, and otherwise no bound.
    categorical_features : list of str or int, optional
        Columns of ``X`` to read as categories, whatever their type says. Text, truth values and
        pandas' categories are read so anyway, but for text that is a date throughout.
    numeric_features : list of str or int, optional
        Columns of ``X`` to read as numbers, whatever their type says.
    random_state : int, RandomState, Generator or None
        Seed of all draws.
    verbose : int, default 0
        1 shows a progress bar.

    Examples
    --------
    >>> import numpy as np
    >>> from sigmax import MeanVarianceRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (200, 1))
    >>> y = 3 * X[:, 0] + rng.normal(0, 1 + X[:, 0])
    >>> model = MeanVarianceRegressor(preset="fast", n_steps=300, random_state=0).fit(X, y)
    >>> model.predict_interval([[1.0], [9.0]], coverage=0.9).shape
    (2, 2)
    """

    default_recipe = PLAIN
    presets = PLAIN_PRESETS

    def __init__(
        self,
        preset=None,
        *,
        n_members=None,
        loss=None,
        hidden_sizes=None,
        activation=None,
        n_steps=None,
        warmup_fraction=None,
        batch_size=None,
        learning_rate=None,
        variance_learning_rate=None,
        weight_decay=None,
        variance_weight_decay=None,
        decay_rate=None,
        validation_fraction=None,
        patience=None,
        recalibrate=None,
        target_map=None,
        support=None,
        categorical_features=None,
        numeric_features=None,
        random_state=None,
        verbose=0,
    ):
        store(self, locals())
