"""Answer keys of the page family/entmax, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _row(z, power):
    low, high = z.max() - 1, z.max()
    for _ in range(80):
        middle = (low + high) / 2
        w = (z - middle).clamp(min=0) ** power
        low, high = (middle, high) if w.sum() >= 1 else (low, middle)
    return w


def _try(f):
    s = torch.tensor([1.0, 0.5, 0.0, -0.4], dtype=torch.float64)
    return torch.stack([f(s, 1.5, 1.0), f(s, 1.25, 2.0), f(s, 3.0, 0.8)])


exercise(
    "ex-entmax-1",
    probe=_try,
    right=lambda s, a, tau: _row((a - 1) * s / tau, 1 / (a - 1)),
    wrong={
        "factor lost": (
            lambda s, a, tau: _row(s / tau, 1 / (a - 1)),
            "One factor is missing before the score: look at the closed form again.",
        ),
        "power not inverted": (
            lambda s, a, tau: _row((a - 1) * s / tau, a - 1),
            "The power is not the inverse of the one in the optimality condition.",
        ),
        "no temperature": (
            lambda s, a, tau: _row((a - 1) * s, 1 / (a - 1)),
            "The temperature is missing.",
        ),
        "temperature twice": (
            lambda s, a, tau: _row((a - 1) * s / tau**2, 1 / (a - 1)),
            "The temperature divides the scores exactly once.",
        ),
        "sparsemax": (
            lambda s, a, tau: _row(s / tau, 1.0),
            "Your weights do not depend on alpha.",
        ),
    },
    tol=1e-7,
)

exercise(
    "ex-entmax-2",
    right=16.0,
    wrong={
        "scaled": (2.0, "That is the margin in scaled scores."),
        "factor lost": (8.0, "That margin would be the same for every alpha."),
        "multiplied": (4.0, "Should a larger alpha need a larger lead?"),
        "temperature 64": (128.0, "The default temperature is the root of d."),
        "inverse temperature": (0.25, "The temperature divides the score, so it multiplies the lead."),
    },
    tol=1e-9,
)

from scipy.optimize import brentq  # noqa: E402


def _drop(scores, low, high):
    def surplus(alpha):
        a = alpha - 1
        return sum((a * x) ** (1 / a) for x in scores) - 1

    return brentq(surplus, low, high, xtol=1e-14)


exercise(
    "ex-entmax-3",
    right=_drop((1.0, 0.5), 1.5, 2.0),
    wrong={
        "margin to the best": (2.0, "That is where C would drop out with A alone; B takes weight as well."),
        "B drops out": (3.0, "At that order B loses its weight too."),
        "power forgotten": (5 / 3, "The bases do not sum to one, their powers do."),
        "alpha minus one": (_drop((1.0, 0.5), 1.5, 2.0) - 1, "That is alpha minus one."),
    },
    tol=1e-6,
)

def _back(p, g, alpha, tau, center=None, power=2.0):
    u = torch.where(p > 0, torch.where(p > 0, p, 1.0) ** (power - alpha), 0.0)
    c = u if center is None else center(p)
    return u * (g - (c * g).sum() / c.sum()) / tau


def _two(f):
    p = torch.tensor([0.6, 0.3, 0.1, 0.0], dtype=torch.float64)
    g = torch.tensor([1.0, -0.5, 2.0, 3.0], dtype=torch.float64)
    return torch.stack([f(p, g, 1.5, 2.0), f(p, g, 2.0, 0.5), f(p, g, 2.5, 2.0)])


exercise(
    "ex-entmax-4",
    probe=_two,
    right=_back,
    wrong={
        "p-weighted mean": (
            lambda p, g, a, tau: _back(p, g, a, tau, center=lambda p: p),
            "Your result does not sum to zero: which mean is subtracted?",
        ),
        "plain mean": (
            lambda p, g, a, tau: _back(p, g, a, tau, center=lambda p: (p > 0) * 1.0),
            "A plain mean over the support is right for one member only.",
        ),
        "softmax": (
            lambda p, g, a, tau: p * (g - (p * g).sum()) / tau,
            "That is the rule of alpha = 1.",
        ),
        "no temperature": (
            lambda p, g, a, tau: _back(p, g, a, 1.0),
            "The scores are raw: what divides them?",
        ),
        "zeros answer": (
            lambda p, g, a, tau: (
                p ** (2 - a)
                * (g - (p ** (2 - a) * g).sum() / (p ** (2 - a)).sum())
                / tau
            ),
            "Check a weight of exactly zero at alpha 2 and above.",
        ),
        "wrong exponent": (
            lambda p, g, a, tau: _back(p, g, a, tau, power=1.0),
            "Check the exponent of the response at alpha = 2, where it should be flat.",
        ),
    },
)
