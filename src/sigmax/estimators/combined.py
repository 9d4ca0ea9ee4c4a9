"""The paper's method, all four ideas together, and each of them a switch."""

from typing import final

from sigmax.estimators.variance_base import AbstractVarianceNetworkRegressor
from sigmax.settings import store

__all__ = ["CombinedRegressor"]


@final
class CombinedRegressor(AbstractVarianceNetworkRegressor):
    """Regression with a variance to rely on: Detlefsen, Jørgensen and Hauberg's "Combined".

    Four ideas, each a switch: batches of neighbours with Horvitz-Thompson weights (`locality`),
    mean and variance never trained in the same step (`split`), a Student-t predictive from an
    inverse-Gamma variance (`inverse_gamma`), and a variance that tends to that of y away from the
    data (`extrapolate`). Several members are trained at once; the prediction is their mixture.

    `recipe` shows the settings in force.

    Parameters
    ----------
    preset : None, "fast" or "paper"
        None is the best we have, "fast" a cheaper one, "paper" the paper's own setting. Every
        setting left at None comes from it.
    n_members : int, default 5 (2 in "fast", 1 in "paper")
        Networks trained at once, of which the prediction is the equal mixture; ten with fewer than
        200 rows unless this is given or 1.
    locality : bool, default True
        Draw batches with the locality sampler (LS) instead of uniformly.
    split : bool, default True
        Never train mean and variance in the same step (MV).
    inverse_gamma : bool, default True
        Give the variance an inverse-Gamma distribution (IG): a Student-t predictive.
    extrapolate : bool, default True
        Let the variance tend to `prior_variance` away from the data (EX).
    min_concentration : float, default 3.0 (1.1 in "paper")
        With `inverse_gamma`, the least α: half the degrees of freedom of the Student-t. Near 1 the
        tails may be so heavy that the variance, which follows from them, means nothing.
    hidden_sizes : tuple of int, default (128, 128) ((64, 64) in "fast", (50,) in "paper")
        Units of the hidden layers of each network.
    activation : "relu", "silu" or "tanh", default "silu" ("relu" in "paper")
        Activation of the hidden layers.
    n_steps : int, default 4000 (1500 in "fast", 10000 in "paper")
        Training steps in all, of the mean and of the variance together.
    warmup_fraction : float, default 0.3 (0.5 in "paper")
        Share of the steps that train the mean alone, at first.
    variance_steps : int, default 1
        With `split`, variance steps after each step of the mean.
    batch_size : int, default 256
        Rows of a batch in the warm-up and without `locality`.
    n_primary : int, default 16 (3 in "paper")
        Centres of a locality batch of the mean.
    n_secondary : int, default 16 (40 in "paper")
        Neighbours drawn of each of these centres.
    n_neighbors : int, default 32 (50 in "paper")
        Nearest neighbours that these are drawn from.
    variance_n_primary : int, default 16 (1 in "paper")
        Centres of a locality batch of the variance.
    variance_n_secondary : int, default 16 (10 in "paper")
        Neighbours drawn of each of these centres.
    variance_n_neighbors : int, default 32 (10 in "paper")
        Nearest neighbours that these are drawn from.
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
    n_inducing : int, default 100 (500 in "paper")
        Inducing points of the extrapolation gate, at most; all rows if there are fewer.
    gate_scale : float, default None (1.5 in "paper")
        Initial width of the paper's gate, in standardised units; None takes both the width and a
        margin, within which the gate is closed, from the data.
    gate_learning_rate : float, default 0.001
        Step size of Adam for inducing points and gate width.
    prior_variance : float, default 1.0
        Variance far from the data, in units of Var(y).
    shrink_mean : bool, default True (False in "paper")
        Let the mean tend to the mean of y away from the data, too.
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
    >>> from sigmax import CombinedRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (200, 1))
    >>> y = 3 * X[:, 0] + rng.normal(0, 1 + X[:, 0])
    >>> model = CombinedRegressor(preset="fast", n_steps=300, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [9.0]], return_std=True)
    >>> bool(std[0] < std[1])
    True
    """

    def __init__(
        self,
        preset=None,
        *,
        n_members=None,
        locality=None,
        split=None,
        inverse_gamma=None,
        extrapolate=None,
        min_concentration=None,
        hidden_sizes=None,
        activation=None,
        n_steps=None,
        warmup_fraction=None,
        variance_steps=None,
        batch_size=None,
        n_primary=None,
        n_secondary=None,
        n_neighbors=None,
        variance_n_primary=None,
        variance_n_secondary=None,
        variance_n_neighbors=None,
        learning_rate=None,
        variance_learning_rate=None,
        weight_decay=None,
        variance_weight_decay=None,
        decay_rate=None,
        n_inducing=None,
        gate_scale=None,
        gate_learning_rate=None,
        prior_variance=None,
        shrink_mean=None,
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
