"""Answer keys of the page transport/wasserstein, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-wasserstein-1",
    right=(1.5, 2.5**0.5),
    wrong={
        "no root": ((1.5, 2.5), "One of the two is still a cost, not a distance."),
        "mass stays": ((1.5, 4.5**0.5), "Is it best, for squared distance, to leave the mass at 1 in place?"),
        "orders swapped": ((2.5**0.5, 1.5), "Give the distance of order one first."),
    },
    tol=1e-3,
)

def _shifts(f):
    rng = np.random.default_rng(3)
    a = np.array([0.2, 0.5, 0.3])
    return tuple(
        float(f(rng.normal(size=(3, 2)), a, t, p))
        for t in (np.array([3.0, 4.0]), np.array([-1.0, 0.5]))
        for p in (1, 2, 3)
    )


exercise(
    "ex-wasserstein-2",
    probe=_shifts,
    right=lambda x, a, t, p: float(np.linalg.norm(t)),
    wrong={
        "no root": (lambda x, a, t, p: float(np.linalg.norm(t)) ** p, "That is the cost; the distance takes a root of it."),
        "sum of coordinates": (lambda x, a, t, p: float(np.abs(t).sum()), "Distances in the plane are Euclidean here."),
    },
    tol=1e-9,
)

exercise(
    "ex-wasserstein-3",
    right=1 / math.log(99),
    wrong={
        "inverse": (math.log(99), "Check the units: a larger weight must blur more."),
        "off-diagonal mass of one row": (1 / math.log(49), "Each row holds only half of the mass; the cost adds both rows."),
        "log of 100": (1 / math.log(100), "The kernel is normalised: there is a one in the denominator."),
    },
    tol=1e-4,
)
