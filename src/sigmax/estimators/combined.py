"""The paper's method, all four ideas together, and each of them a switch."""

from typing import final

from sigmax.estimators.variance_base import AbstractVarianceNetworkRegressor

__all__ = ["CombinedRegressor"]


@final
class CombinedRegressor(AbstractVarianceNetworkRegressor):
    """Regression with a variance to rely on: Detlefsen, Jørgensen and Hauberg's "Combined".

    Four ideas, each a switch: batches of neighbours with Horvitz-Thompson weights (`locality`),
    mean and variance never trained in the same step (`split`), a Student-t predictive from an
    inverse-Gamma variance (`inverse_gamma`), and a variance that tends to that of y away from the
    data (`extrapolate`). Several members are trained at once; the prediction is their mixture.

    Every setting left at None comes from the preset: ``None`` is the best we have, ``"fast"`` a
    cheaper one, ``"paper"`` the paper's own setting. `recipe` shows what is in force. Pairs are
    (for the mean, for the variance).

    Parameters
    ----------
    preset : None, "fast" or "paper"
    n_members : int
        Networks in the mixture; 1 is a single network. By default ten with fewer than 200 rows.
    locality, split, inverse_gamma, extrapolate : bool
        The four ideas.
    min_concentration : float
        With `inverse_gamma`, the least α, above 1: half the degrees of freedom of the Student-t.
    hidden_sizes : tuple of int
        Units of the hidden layers of each network.
    activation : "relu", "silu" or "tanh"
    n_steps : int
        Training steps in all.
    warmup_fraction : float
        Share of the steps that train the mean alone, at first.
    variance_steps : int
        With `split`, variance steps after each mean step.
    batch_size : int
        Rows of a batch in the warm-up and without `locality`.
    n_primary, n_secondary, n_neighbors : pair of int
        Centres of a locality batch, neighbours drawn of each, and neighbours to draw from.
    learning_rate, weight_decay : pair of float
    decay_rate : bool
        Let the step sizes fall to 0 along half a cosine.
    n_inducing : int
        Inducing points of the extrapolation gate, at most.
    gate_scale : float
        Initial width of the gate in standardised units; the default takes it from the data.
    gate_learning_rate : float
    prior_variance : float
        Variance far from the data, in units of Var(y).
    shrink_mean : bool
        Let the mean tend to the mean of y away from the data, too.
    validation_fraction : float
        Share of rows that each member holds out to choose its best snapshot; 0 keeps the last one.
        Rows of equal X are held out together. By default a tenth, and of fewer than 200 rows 20
        rows or 40 %.
    patience : int
        Scorings without a better snapshot before training stops; 0 never stops early.
    recalibrate : bool
        Widen all scales by the one factor that suits the members' held-out rows best. With fewer
        than 200 rows these also decide how far predictions are taken back to the mean and the
        variance of y.
    random_state : int, RandomState, Generator or None
    verbose : int
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
        learning_rate=None,
        weight_decay=None,
        decay_rate=None,
        n_inducing=None,
        gate_scale=None,
        gate_learning_rate=None,
        prior_variance=None,
        shrink_mean=None,
        validation_fraction=None,
        patience=None,
        recalibrate=None,
        random_state=None,
        verbose=0,
    ):
        self.preset = preset
        self.n_members = n_members
        self.locality = locality
        self.split = split
        self.inverse_gamma = inverse_gamma
        self.extrapolate = extrapolate
        self.min_concentration = min_concentration
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.n_steps = n_steps
        self.warmup_fraction = warmup_fraction
        self.variance_steps = variance_steps
        self.batch_size = batch_size
        self.n_primary = n_primary
        self.n_secondary = n_secondary
        self.n_neighbors = n_neighbors
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.decay_rate = decay_rate
        self.n_inducing = n_inducing
        self.gate_scale = gate_scale
        self.gate_learning_rate = gate_learning_rate
        self.prior_variance = prior_variance
        self.shrink_mean = shrink_mean
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.recalibrate = recalibrate
        self.random_state = random_state
        self.verbose = verbose
