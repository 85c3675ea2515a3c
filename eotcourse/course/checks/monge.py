"""Answer keys of the page transport/monge, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _overwritten(t, mu, n):
    out = np.zeros(n)
    out[np.asarray(t)] = mu
    return out


exercise(
    "ex-monge-1",
    probe=lambda f: f(np.array([0, 2, 2]), np.array([0.2, 0.3, 0.5]), 4),
    right=lambda t, mu, n: np.bincount(t, weights=mu, minlength=n),
    wrong={
        "gather": (lambda t, mu, n: np.asarray(mu)[np.asarray(t)],
                   "This reads mu at the places t; the mass has to be sent there, and there are n holes."),
        "overwritten": (_overwritten, "Two heaps share a hole, and only one of them is counted."),
        "counts": (lambda t, mu, n: np.bincount(t, minlength=n),
                   "This counts heaps; each must be weighted by its mass."),
        "no empty holes": (lambda t, mu, n: np.bincount(t, weights=mu),
                           "A hole that receives nothing still has an entry."),
    },
)

exercise(
    "ex-monge-2",
    right=4,
    wrong={
        "groupings": (2, "The two holes are different: exchanging the groups gives another map."),
        "all maps": (16, "That is the number of all maps; not all of them fill each hole with one half."),
        "pairs": (6, "That is the number of pairs of heaps; not each pair has mass one half."),
    },
)

exercise(
    "ex-monge-3",
    probe=lambda f: [f(n) for n in (1, 2, 3, 6)],
    right=lambda n: 2 ** (n - 1),
    wrong={
        "all": (math.factorial, "Those are all permutations; most of them move some book to the left."),
        "the two in the picture": (lambda n: min(n, 2),
                                   "Between the two of the picture there are others: lift a book over some."),
        "one too many": (lambda n: 2**n, "Close: look again at the last place. Has it a choice?"),
        "linear": (lambda n: n, "One jump is allowed, but several jumps are, too."),
    },
)
