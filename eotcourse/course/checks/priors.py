"""Answer keys of the page family/priors, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-priors-1",
    probe=lambda f: [float(f(x)) for x in (0.5, 3.0, 20.0)],
    right=lambda mean: math.log1p(1 / mean),
    wrong={
        "reciprocal": (lambda mean: 1 / mean, "That is the continuous law; lags are whole numbers."),
        "the mean of a slope": (
            lambda mean: 1 / math.expm1(mean),
            "You computed a mean from a slope; the question goes the other way.",
        ),
        "log of the mean": (
            lambda mean: math.log1p(mean),
            "A longer mean lag should need a smaller slope.",
        ),
        "sign": (lambda mean: -math.log1p(1 / mean), "A negative slope prefers far keys."),
        "lags from one": (
            lambda mean: -math.log1p(-1 / (1 + mean + 1)),
            "A token may attend to itself: the lags start at zero.",
        ),
    },
)

def _centred_bias(answer):
    k = torch.tensor([[1.0, 2.0], [0.0, 1.0], [-1.0, 0.5]], dtype=torch.float64)
    w = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    b = answer(k, w, 1.5)
    return b - b.mean()  # weights don't see a constant


exercise(
    "ex-priors-2",
    probe=_centred_bias,
    right=lambda k, w, tau: w.log() - k.square().sum(-1) / (2 * tau),
    wrong={
        "raw units": (
            lambda k, w, tau: tau * w.log() - k.square().sum(-1) / 2,
            "This bias belongs before the division by the temperature.",
        ),
        "no temperature": (
            lambda k, w, tau: w.log() - k.square().sum(-1) / 2,
            "The temperature is the variance of the noise. Where is it?",
        ),
        "no half": (
            lambda k, w, tau: w.log() - k.square().sum(-1) / tau,
            "How many times does the mixed term appear in the square?",
        ),
        "reward": (
            lambda k, w, tau: w.log() + k.square().sum(-1) / (2 * tau),
            "Long keys gain from this, though they gained already.",
        ),
        "norm, not square": (
            lambda k, w, tau: w.log() - k.square().sum(-1).sqrt() / (2 * tau),
            "The exponent of a normal density is a square.",
        ),
        "weights forgotten": (
            lambda k, w, tau: -k.square().sum(-1) / (2 * tau),
            "Some keys are more frequent than others.",
        ),
        "weights without log": (
            lambda k, w, tau: w - k.square().sum(-1) / (2 * tau),
            "A prior multiplies weights. What does it add to scores?",
        ),
    },
)

exercise(
    "ex-priors-3",
    probe=lambda f: [float(f(0.25, 1.5, 6.0, 2.0)), float(f(0.1, 2.0, 1.0, 4.0))],
    right=lambda m, alpha, w, tau: math.ceil((w / tau + 1 / (alpha - 1)) / m),
    wrong={
        "scores forgotten": (
            lambda m, alpha, w, tau: math.ceil(1 / (alpha - 1) / m),
            "A far key may have the better score.",
        ),
        "scores not divided": (
            lambda m, alpha, w, tau: math.ceil((w + 1 / (alpha - 1)) / m),
            "The slope is in scaled units. Are your scores?",
        ),
        "margin of sparsemax": (
            lambda m, alpha, w, tau: math.ceil((w / tau + 1) / m),
            "The lead that excludes a key depends on alpha.",
        ),
        "margin upside down": (
            lambda m, alpha, w, tau: math.ceil((w / tau + alpha - 1) / m),
            "A larger alpha should exclude more.",
        ),
        "raw margin": (
            lambda m, alpha, w, tau: math.ceil((w / tau + tau / (alpha - 1)) / m),
            "In scaled units the margin contains no temperature.",
        ),
        "rounded down": (
            lambda m, alpha, w, tau: math.floor((w / tau + 1 / (alpha - 1)) / m),
            "A key at your lag can still have weight.",
        ),
    },
)

exercise(
    "ex-priors-4",
    right=(2.0, 0.135),
    wrong={
        "full step only": ((1.0, 0.135), "A step beyond the full one may still lose energy. Up to where?"),
        "not squared": ((2.0, 0.225), "The step enters as a square."),
        "promise of the full step": ((2.0, 0.18), "That is more than half a step is promised; insert in both factors."),
        "linear in the step": ((2.0, 0.09), "The factor is not half of that of the full step; insert again."),
    },
    tol=1e-9,
)
