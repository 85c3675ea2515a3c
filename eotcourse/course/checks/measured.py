"""Answer keys of the page kernel/measured, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-measured-1",
    probe=lambda f: [f(8, 8), f(24, 12), f(3, 5)],
    right=lambda gib, heads: int((gib * 2**30 / (4 * heads)) ** 0.5),
    wrong={
        "one byte": (
            lambda gib, heads: int((gib * 2**30 / heads) ** 0.5),
            "How long is a float32?",
        ),
        "one head": (
            lambda gib, heads: int((gib * 2**30 / 4) ** 0.5),
            "Every head has a matrix of its own.",
        ),
        "decimal": (
            lambda gib, heads: int((gib * 1e9 / (4 * heads)) ** 0.5),
            "A GiB is a power of two.",
        ),
        "no root": (
            lambda gib, heads: int(gib * 2**30 / (4 * heads)),
            "That is the number of weights for each head, not the number of keys.",
        ),
    },
)

exercise(
    "ex-measured-2",
    probe=lambda f: [f(0.5, 10.0), f(1.0, 4.0), f(0.0, 7.0)],
    right=lambda sigma, kappa: (5 - sigma) / (5 * kappa),
    wrong={
        "recomputed": (
            lambda sigma, kappa: (6 - sigma) / (5 * kappa),
            "That is the opponent that recomputes its weights.",
        ),
        "forward": (
            lambda sigma, kappa: (1 - sigma) / kappa,
            "Both passes were asked.",
        ),
        "sign": (
            lambda sigma, kappa: (5 + sigma) / (5 * kappa),
            "A costlier search should lower the density at which you still win.",
        ),
        "one product": (
            lambda sigma, kappa: (5 - sigma) / kappa,
            "How many products run over kept pairs?",
        ),
    },
)

def _constants(rho1, r1, rho2, r2):
    slope = (r2 - r1) / (rho2 - rho1)
    return np.array([7 * (r1 - slope * rho1) - 1, 7 * slope / 5])


exercise(
    "ex-measured-3",
    probe=lambda f: np.array([f(0.01, 0.3, 0.1, 1.2), f(0.5, 6.0, 0.02, 0.5)]),
    right=_constants,
    wrong={
        "forward": (
            lambda a, x, b, y: np.array(
                [2 * (x - (y - x) / (b - a) * a) - 1, 2 * (y - x) / (b - a)]
            ),
            "Those are the constants of a forward pass.",
        ),
        "exchanged": (
            lambda a, x, b, y: _constants(a, x, b, y)[::-1],
            "First what finding costs, then what a kept pair costs.",
        ),
        "intercept": (
            lambda a, x, b, y: _constants(a, x, b, y) + np.array([1.0, 0.0]),
            "At density 0 the scores are left as well as the search.",
        ),
        "slope": (
            lambda a, x, b, y: _constants(a, x, b, y) * np.array([1.0, 5.0]),
            "Five products run over kept pairs.",
        ),
    },
)

exercise(
    "ex-measured-4",
    right="abc",
    wrong={
        "sparse always": ("aaa", "Compute the share of keys with weight, and the size of the matrix."),
        "spread ignored": ("aac", "What happens to the supports when scores hardly differ?"),
        "length ignored": ("abb", "Is there anything to save in the third layer?"),
        "matrix at 4096": ("acc", "How large is that matrix for every head of the second layer?"),
    },
)
