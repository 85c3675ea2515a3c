"""Answer keys of the page family/regularity, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-regularity-1",
    right=2.5 * math.sqrt(5),
    wrong={
        "sparsemax": (5 / 12, "That is the slope at alpha = 2."),
        "smooth": (0.0, "A slope of zero belongs to alpha below 2."),
        "no temperature": (5 * math.sqrt(5), "The score is raw: the temperature divides it."),
        "exponent flipped": (2.5 / math.sqrt(5), "Check the sign of the exponent of the response."),
        "keys counted": (2.5, "A response is not 1 here: the five weights enter it."),
        "newcomer counted": (3.0 * math.sqrt(5), "The newcomer is not one of those who give."),
    },
    tol=1e-6,
)

def _pair(alpha):
    return (2 / (3 - alpha), 2 / (alpha - 1) if alpha > 1 else math.inf)


exercise(
    "ex-regularity-2",
    probe=lambda f: [float(x) for a in (1.0, 1.25, 1.5, 2.0) for x in f(a)],
    right=_pair,
    wrong={
        "swapped": (lambda a: _pair(a)[::-1], "Which of the two measures the weights?"),
        "Euclidean": (lambda a: (2.0, 2.0), "That holds, but it is weaker than what is asked."),
        "alpha itself": (
            lambda a: (a, a / (a - 1) if a > 1 else math.inf),
            "Right at both ends; check the middle with Hoelder's inequality.",
        ),
        "linear in the inverse": (
            lambda a: (2 / a, 2 / (2 - a) if a < 2 else math.inf),
            "At alpha = 1 the weights' norm is the sum of absolute values.",
        ),
    },
    tol=1e-9,
)

exercise(
    "ex-regularity-3",
    probe=lambda f: [float(f(K, a, tau)) for K, a, tau in ((50, 3, 2), (10, 4, 0.5), (8, 2.5, 1))],
    right=lambda K, a, tau: (K * tau) ** (-1 / (a - 2)),
    wrong={
        "no temperature": (lambda K, a, tau: K ** (-1 / (a - 2)), "Raw scores: where is tau?"),
        "temperature below": (
            lambda K, a, tau: (K / tau) ** (-1 / (a - 2)),
            "A hotter row is less steep; check where tau goes.",
        ),
        "Hoelder exponent": (
            lambda K, a, tau: (K * tau) ** (-1 / (a - 1)),
            "That exponent belongs to a finite step, not to the slope.",
        ),
        "one key enters": (
            lambda K, a, tau: K * tau,
            "The slope of a lone newcomer stays bounded; here there are two.",
        ),
        "sign": (
            lambda K, a, tau: (K * tau) ** (1 / (a - 2)),
            "Should a larger slope be found further from the rim?",
        ),
    },
)

exercise(
    "ex-regularity-4",
    right=(9 * 2.0**-23) ** (1 / 9),
    wrong={
        "one side": ((9 * 2.0**-24) ** (1 / 9), "Two scores can be off in opposite directions."),
        "no factor": ((2.0**-23) ** (1 / 9), "The factor before the spread is missing."),
        "root of order alpha": ((9 * 2.0**-23) ** (1 / 10), "Check the order of the root."),
        "Lipschitz": (9 * 2.0**-23, "That would hold if the map were Lipschitz."),
    },
    tol=1e-6,
)
