"""Answer keys of the page transport/kantorovich, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-kantorovich-1",
    right=49,
    wrong={
        "all": (600, "That is every route; a cheapest plan can do with far fewer."),
        "nodes": (50, "Nearly: with an edge for each node there would be a cycle."),
        "larger side": (30, "That is enough only if every shop is supplied by a single depot."),
    },
)

exercise(
    "ex-kantorovich-2",
    probe=lambda answer: answer(np.array([[3.0, 0.0, 1.0], [0.1, 4.0, 2.0], [2.5, 0.7, 5.0]]),
                                np.array([0.3, -0.4, 0.2])),
    right=lambda C, f: (C - f[:, None]).min(0),
    wrong={
        "max": (lambda C, f: (C - f[:, None]).max(0),
                "With the loosest bound the promise is broken for the other rows."),
        "wrong axis": (lambda C, f: (C - f).min(1),
                       "f belongs to the rows; here it was taken from the columns."),
        "minimum over columns": (lambda C, f: (C - f[:, None]).min(1),
                                 "A delivery price has one entry for each column: take the minimum over the rows."),
        "sign": (lambda C, f: (C + f[:, None]).min(0), "Check the sign of f in the promise."),
        "no prices": (lambda C, f: C.min(0), "The pickup prices were forgotten."),
    },
)

exercise(
    "ex-kantorovich-3",
    right=5.2 - 4.9,
    wrong={
        "halved": (0.15, "The optimum need not lie in the middle of the two."),
        "relative": ((5.2 - 4.9) / 5.2, "The question asks for an amount, not a fraction."),
        "cannot say": (5.2, "You know more than that the cost is not negative: the prices bound it from below."),
        "none": (0, "The two numbers differ, so at least one of the two is not optimal."),
    },
)

def _on_line(z, mu, nu, sort=True, absolute=np.abs, gaps=np.diff):
    order = np.argsort(z) if sort else np.arange(len(z))
    return absolute(np.cumsum((mu - nu)[order])[:-1]) @ gaps(z[order])


exercise(
    "ex-kantorovich-4",
    probe=lambda f: f(np.array([3.0, 0.0, 1.0, 7.0]), np.array([0.1, 0.5, 0.2, 0.2]),
                      np.array([0.4, 0.1, 0.4, 0.1])),
    right=_on_line,
    wrong={
        "unsorted": (lambda z, mu, nu: _on_line(z, mu, nu, sort=False),
                     "The points come in any order; the sums have to run from left to right."),
        "unsorted, positive gaps": (
            lambda z, mu, nu: _on_line(z, mu, nu, sort=False, gaps=lambda x: np.abs(np.diff(x))),
            "The points come in any order; the sums have to run from left to right."),
        "net": (lambda z, mu, nu: _on_line(z, mu, nu, absolute=lambda x: x),
                "Mass that goes left and mass that goes right must not cancel."),
        "unit gaps": (lambda z, mu, nu: _on_line(z, mu, nu, gaps=lambda x: np.ones(len(x) - 1)),
                      "The gaps between the points differ in length."),
        "densities": (lambda z, mu, nu: np.abs(mu - nu).sum() / 2,
                      "This is the mass that must move; it also matters how far."),
    },
)
