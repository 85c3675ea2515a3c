"""Answer keys of the page transport/brenier, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-brenier-1",
    right=5.0,
    wrong={
        "square": (25.0, "That is the cost; the distance is its root."),
        "variances": (math.hypot(3, 32), "The second number of N is the variance, not the spread that moves."),
        "means only": (3.0, "The widths differ, too."),
        "widths only": (4.0, "The means differ, too."),
        "sum": (7.0, "Means and widths add up as squares."),
    },
)

def _second_difference(corner):
    return np.diff(np.diff(corner, axis=0, prepend=0), axis=1, prepend=0)


exercise(
    "ex-brenier-2",
    probe=lambda f: f(np.array([0.1, 0.5, 0.4]), np.array([0.3, 0.2, 0.25, 0.25])),
    right=lambda mu, nu: _second_difference(np.minimum.outer(np.cumsum(mu), np.cumsum(nu))),
    wrong={
        "corner sums": (lambda mu, nu: np.minimum.outer(np.cumsum(mu), np.cumsum(nu)),
                        "These are the corner sums; the plan is still inside them."),
        "one axis": (lambda mu, nu: np.diff(
            np.minimum.outer(np.cumsum(mu), np.cumsum(nu)), axis=0, prepend=0),
            "There are two cumulative sums to undo, one along each axis."),
        "no zeros": (lambda mu, nu: np.diff(np.diff(
            np.minimum.outer(np.cumsum(mu), np.cumsum(nu)), axis=0), axis=1),
            "The first row and column got lost: put zeros in front before taking differences."),
        "masses": (lambda mu, nu: np.minimum.outer(mu, nu),
                   "The minimum is over masses up to a place, not at a place."),
        "product": (np.outer, "That plan spreads every source over all targets."),
        "largest first": (lambda mu, nu: _second_difference(
            np.maximum(np.add.outer(np.cumsum(mu), np.cumsum(nu)) - 1, 0)),
            "That fills the targets from the wrong end: the dearest order."),
    },
)

exercise(
    "ex-brenier-3",
    right=[True, False, False, False, True],
    wrong={
        "symmetric is enough": ([True, False, True, False, True],
                                "A symmetric matrix can still send a direction backwards."),
        "singular excluded": ([True, False, False, False, False],
                              "A map may press mass together: a zero eigenvalue is no obstacle."),
        "positive eigenvalues are enough": ([True, True, False, False, False],
                                            "The shear has positive eigenvalues, but is it a gradient?"),
        "all": ([True] * 5, "Each carries A to its B, but there is only one best map for each B."),
    },
)
