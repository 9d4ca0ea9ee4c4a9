"""Active learning: which rows to label next.

The model may be any with ``predict_dist(X)``, as all of sigmax, or with
``predict(X, return_std=True)``, as scikit-learn's Gaussian process and pipelines that end in one.
`choose` is for people who go away and measure, `active_learning_rounds` for simulations in which
all labels are known, `expected_gain` says when to stop, and `split_for_active_learning` gives the
paper's rows for a simulation.

An acquisition says how much each row of the pool is wanted. By name:

``"variance"``
    The total predictive variance, noise included: the paper's.
``"epistemic"``
    The part of the variance that more data would take away.
``"information"``
    The log of the total over the aleatoric standard deviation: for a Normal, what a label is
    expected to tell.
``"joint-information"``
    What the labels of the whole batch tell about the function, greedily: a row that is like one
    already taken tells little more. See `JointUncertainty`.
``"clusters"``
    One row from each of ``n`` clusters of k-means in the learned metric (other models: in
    standardised columns), rows weighted by their epistemic variance.
``"random"``
    A uniform number: the control that the others have to beat.

With several outputs a row's score is the sum of theirs, variances being counted in units of each
output's variance in the labelled rows. An acquisition of one's own is a function
``(model, X_pool, rng) -> scores (n,)``, larger being more wanted.
"""

from sigmax.active_learning.choosing import ACQUISITIONS, choose
from sigmax.active_learning.joint import JointUncertainty, expected_gain
from sigmax.active_learning.rounds import (
    Round,
    active_learning_rounds,
    split_for_active_learning,
)

__all__ = [
    "ACQUISITIONS",
    "JointUncertainty",
    "Round",
    "active_learning_rounds",
    "choose",
    "expected_gain",
    "split_for_active_learning",
]
