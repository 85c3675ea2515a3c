"""Answer keys of the page family/choose, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-choose-1",
    probe=lambda f: [f(16, 1.0, 2.0), f(1024, 0.7, 1.5), f(2, 2.0, 3.0)],
    right=lambda n, tau, alpha: tau / ((alpha - 1) * (1 - 0.5 ** (1 / n))),
    wrong={
        "mean gap": (
            lambda n, tau, alpha: tau * (n + 1) / (alpha - 1),
            "You asked the mean gap to be large enough; the question is about one half of the rows.",
        ),
        "no root": (
            lambda n, tau, alpha: 2 * tau / (alpha - 1),
            "Your answer does not depend on the number of keys.",
        ),
        "alpha": (
            lambda n, tau, alpha: tau / (alpha * (1 - 0.5 ** (1 / n))),
            "Which lead does entmax need for the weight 1? Look at its limit for alpha near 1.",
        ),
        "complement": (
            lambda n, tau, alpha: tau / ((alpha - 1) * 0.5 ** (1 / n)),
            "Solve once more: what must be at least the root, and what is left for the gap?",
        ),
    },
)

exercise(
    "ex-choose-2",
    probe=lambda f: [f(0.5), f(0.9), f(0.2)],
    right=lambda r: -math.log(1 - r),
    wrong={
        "one competitor": (
            lambda r: math.log(r / (1 - r)) if r > 0.5 else 0.0,
            "That is enough against a single other mark, right behind the last one.",
        ),
        "wrong side": (
            lambda r: -math.log(r),
            "A larger share should ask for a steeper slope; yours gets flatter.",
        ),
        "linear": (lambda r: r, "The exponential is missing: weights are not linear in the slope."),
    },
)

def _kl(p, q):
    return (p * np.log(p / q)).sum()


def _populations(bill):
    f = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
    law, belief = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
    return [bill(law, belief, f), bill(belief, law, f), bill(law, belief, np.ones((3, 3)) / 3)]


exercise(
    "ex-choose-3",
    probe=_populations,
    right=lambda law, belief, f: _kl(law, belief) - _kl(f @ law, f @ belief),
    wrong={
        "queries ignored": (
            lambda law, belief, f: _kl(law, belief),
            "That is the bill if queries say nothing about the class.",
        ),
        "the other way": (
            lambda law, belief, f: _kl(belief, law) - _kl(f @ belief, f @ law),
            "Queries and classes are drawn from the true law, not from the belief.",
        ),
        "unweighted": (
            lambda law, belief, f: np.mean(
                np.log((f * law / (f @ law)[:, None]) / (f * belief / (f @ belief)[:, None]))
            ),
            "Pairs of value and class are not equally likely; weigh the log-ratio.",
        ),
        "sign": (
            lambda law, belief, f: _kl(f @ law, f @ belief) - _kl(law, belief),
            "A wrong prior cannot gain on average; yours does.",
        ),
    },
)

def _smallest(outcomes):
    def needed(level):
        k = 1
        while outcomes * 0.5**k > level:
            k += 1
        return k

    return needed


exercise(
    "ex-choose-4",
    probe=lambda f: [f(0.05), f(0.01), f(0.1), f(0.001)],
    right=_smallest(2),
    wrong={
        "one side": (_smallest(1), "Would you have reported the other winner as well?"),
        "not rounded": (
            lambda level: 1 - math.log2(level),
            "Seeds come in whole numbers.",
        ),
        "natural logarithm": (
            lambda level: math.ceil(1 - math.log(level)),
            "A coin halves the probability with every seed; which base has the logarithm?",
        ),
    },
)
