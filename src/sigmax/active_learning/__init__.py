"""Active learning: which rows to label next.

Models need ``predict_dist(X)``, as all of sigmax, or ``predict(X, return_std=True)``, as
scikit-learn's Gaussian process and pipelines that end in one. `choose` selects the next rows,
`active_learning_rounds` simulates active learning where all labels are known, `expected_gain`
tells when to stop, and `split_for_active_learning` is the paper's split for a simulation.

An acquisition gives each row of the pool a score; rows with high scores are labelled first. By
name:

``"variance"``
    Total predictive variance, including noise, as in the paper.
``"epistemic"``
    Epistemic variance, which more data would reduce.
``"information"``
    Log of the ratio of total to aleatoric standard deviation: for a Normal, the expected
    information gain of a label.
``"joint-information"``
    Information gain of the whole batch, greedily: a row similar to one already selected adds
    little. See `JointUncertainty`.
``"clusters"``
    One row from each of ``n`` clusters of k-means in the learned metric (other models: in
    standardised columns), rows weighted by their epistemic variance.
``"random"``
    A uniform random number: the baseline for the others.

With several outputs the score of a row is the sum of theirs, with variances in units of each
output's variance in the labelled rows. Custom acquisitions are functions
``(model, X_pool, rng) -> scores (n,)``.
"""

from sigmax.active_learning.joint import JointUncertainty, expected_gain
from sigmax.active_learning.selection import (
    ACQUISITIONS,
    Round,
    active_learning_rounds,
    choose,
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
