"""Answer keys of the page one-sided/gibbs, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _one_query(attend):
    q = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    k = torch.tensor([[1.0, 0, 2], [0, 1, 1], [2, -1, 0], [1, 1, 1]], dtype=torch.float64)
    return attend(q, k, 3.0)


exercise(
    "ex-gibbs-1",
    probe=_one_query,
    right=lambda q, k, tau: torch.softmax(k @ q / tau, -1),
    wrong={
        "tau twice": (
            lambda q, k, tau: torch.softmax(k @ q / tau**2, -1),
            "The temperature acts twice in your weights.",
        ),
        "no tau": (lambda q, k, tau: torch.softmax(k @ q, -1), "Where did the temperature go?"),
        "times tau": (
            lambda q, k, tau: torch.softmax(k @ q * tau, -1),
            "A higher temperature should make the weights more equal; yours sharpen.",
        ),
        "root of d": (
            lambda q, k, tau: torch.softmax(k @ q / len(q) ** 0.5, -1),
            "The temperature is the argument tau here, whatever d is.",
        ),
        "argmin": (
            lambda q, k, tau: torch.softmax(-(k @ q) / tau, -1),
            "Your weights favour the worst key; look at the sign.",
        ),
    },
)

_Z = math.exp(2) + math.exp(1) + 1
exercise(
    "ex-gibbs-2",
    right=2 * math.log(_Z) - 4,
    wrong={
        "tau forgotten": (math.log(_Z) - 2, "A divergence is not yet the loss. What is missing?"),
        "the value": (2 * math.log(_Z), "That is the best value itself, not the loss against it."),
        "score only": (
            4 - (4 * math.exp(2) + 2 * math.exp(1)) / _Z,
            "You compared the scores only; the corner also gives up entropy.",
        ),
        "sign": (4 - 2 * math.log(_Z), "A loss against the maximum cannot be negative."),
        "no temperature": (
            2 * math.log(1 + math.exp(-2) + math.exp(-4)),
            "Your optimum is softmax of the raw scores.",
        ),
    },
    tol=1e-5,
)

exercise(
    "ex-gibbs-3",
    probe=lambda f: f(torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64), 2.0),
    right=lambda p, tau: tau * (torch.log(p) - torch.log(p).mean()),
    wrong={
        "not centred": (
            lambda p, tau: tau * torch.log(p),
            "These scores work, but do they sum to zero?",
        ),
        "no tau": (
            lambda p, tau: torch.log(p) - torch.log(p).mean(),
            "These are scaled scores; the raw ones were asked for.",
        ),
        "divided": (
            lambda p, tau: (torch.log(p) - torch.log(p).mean()) / tau,
            "The temperature divides raw scores on the way to the weights. And on the way back?",
        ),
    },
)

exercise(
    "ex-gibbs-4",
    probe=lambda f: f(torch.tensor([1.0, 2.0, -0.5], dtype=torch.float64), 1.7),
    right=lambda s, tau: torch.stack([s[0], tau * torch.logsumexp(s[1:] / tau, -1)]),
    wrong={
        "sum": (lambda s, tau: torch.stack([s[0], s[1] + s[2]]), "Scores do not add; what does?"),
        "mean": (
            lambda s, tau: torch.stack([s[0], s[1:].mean()]),
            "The mean forgets that there are two keys.",
        ),
        "max": (
            lambda s, tau: torch.stack([s[0], s[1:].max()]),
            "That is right only as the temperature goes to zero.",
        ),
        "scaled": (
            lambda s, tau: torch.stack([s[0], torch.logsumexp(s[1:] / tau, -1)]),
            "One score is raw and the other scaled.",
        ),
        "tau one": (
            lambda s, tau: torch.stack([s[0], torch.logsumexp(s[1:], -1)]),
            "That is right for temperature one only.",
        ),
    },
)
