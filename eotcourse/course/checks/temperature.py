"""Answer keys of the page one-sided/temperature, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-temperature-1",
    probe=lambda f: [f(64, 1.5, 0.5), f(16, 1.0, 3.0)],
    right=lambda d, a, b: a * b * math.sqrt(d),
    wrong={
        "variance": (lambda d, a, b: (a * b) ** 2 * d, "That is the variance of the raw score."),
        "root of d": (lambda d, a, b: math.sqrt(d), "That ignores the two standard deviations."),
        "roots": (
            lambda d, a, b: math.sqrt(a * b * d),
            "Standard deviations multiply; check what you took the root of.",
        ),
        "inverted": (
            lambda d, a, b: 1 / (a * b * math.sqrt(d)),
            "That is the scale, the factor that multiplies the scores.",
        ),
    },
)

exercise(
    "ex-temperature-2",
    right=150,
    wrong={
        "n for n-1": (149, "Off by one: how many other keys are there among n?"),
        "not an integer": (
            1 + math.exp(5),
            "That is where the bound equals one half; keys come whole.",
        ),
        "temperature squared": (
            math.floor(math.exp(2.5) + 1) + 1,
            "The range is already in units of the temperature.",
        ),
        "base ten": (10**5 + 2, "The exponential is the natural one."),
    },
)

def _bisect(s, target, entropy):
    low, high = 1e-6, 1e6
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if entropy(s, middle) < target else (low, middle)
    return middle


def _entropy(s, tau):
    p = torch.softmax(s / tau, -1)
    return float(-torch.special.xlogy(p, p).sum())


exercise(
    "ex-temperature-3",
    probe=lambda f: [
        float(f(torch.tensor([4.0, 2.0, 0.0], dtype=torch.float64), 0.9)),
        float(f(torch.tensor([1.0, -1.0, 0.5, 3.0], dtype=torch.float64), 0.6)),
    ],
    right=lambda s, target: _bisect(s, target, _entropy),
    wrong={
        "squared": (
            lambda s, target: _bisect(s, target, lambda s, t: _entropy(s, t * t)),
            "The temperature divides the scores once.",
        ),
        "bits": (
            lambda s, target: _bisect(s, target * math.log(2), _entropy),
            "Entropy is in nats here.",
        ),
        "scale": (
            lambda s, target: 1 / _bisect(s, target, _entropy),
            "That is the scale, one over the temperature.",
        ),
    },
    tol=1e-5,
)

_p = 1 / (1 + math.exp(-2))
_v = _p * (1 - _p)
exercise(
    "ex-temperature-4",
    right=8 * _v,
    wrong={
        "square": (4 * _v, "A power of the temperature is missing: follow both steps."),
        "first power": (2 * _v, "Powers of the temperature are missing: follow both steps."),
        "none": (_v, "That is the variance of the scores; the temperature is missing."),
        "sign": (-8 * _v, "Should heating lower the entropy?"),
        "scaled twice": (
            8 * math.exp(4) / (1 + math.exp(4)) ** 2,
            "Your weights divide by the temperature twice.",
        ),
    },
    tol=1e-6,
)
