"""Answer keys of the page family/sparsemax, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

exercise(
    "ex-sparsemax-1",
    right=7.0,
    wrong={
        "gap to the top": (5.0, "The second key has to come down as well."),
        "gap to the next": (2.0, "By then the first key is still far above."),
        "first gap": (3.0, "That wakes the second key."),
        "sum of scores": (10.0, "Scores can be shifted; your answer can't depend on their sum."),
        "two keys only": (8.0, "Level the two keys at the third score, not at zero."),
    },
)

def _project(theta, total=1.0):
    down = np.sort(theta)[::-1]
    trials = (down.cumsum() - total) / np.arange(1, len(down) + 1)
    return np.maximum(theta - trials[int((down > trials).sum()) - 1], 0)


def _clip(theta):
    return np.maximum(theta, 0) / np.maximum(theta, 0).sum()


exercise(
    "ex-sparsemax-2",
    probe=lambda f: f(np.array([0.3, 1.1, -0.2, 0.9])),
    right=_project,
    wrong={
        "clip and divide": (_clip, "On the simplex, but there is a closer point."),
        "all keys": (
            lambda theta: theta - theta.mean() + 1 / len(theta),
            "Some of your weights are negative.",
        ),
        "all keys, clipped": (
            lambda theta: np.maximum(theta - theta.mean() + 1 / len(theta), 0),
            "Your weights sum to more than one: the threshold must leave the cut keys out.",
        ),
        "softmax": (
            lambda theta: np.exp(theta) / np.exp(theta).sum(),
            "These are softmax weights; none of them is zero.",
        ),
        "one key": (
            lambda theta: np.maximum(theta - theta.max() + 1, 0),
            "Your threshold is right only if a single key survives.",
        ),
        "sorted": (
            lambda theta: np.sort(_project(theta))[::-1],
            "Right numbers, wrong places: return them in the order of theta.",
        ),
    },
)

def _upstream(backward):
    p = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64)
    return backward(p, torch.tensor([1.0, -2.0, 0.4, 3.0], dtype=torch.float64), 2.5)


def _on(p):
    return (p > 0).double()


exercise(
    "ex-sparsemax-3",
    probe=_upstream,
    right=lambda p, g, tau: _on(p) * (g - (_on(p) * g).sum() / _on(p).sum()) / tau,
    wrong={
        "softmax": (
            lambda p, g, tau: p * (g - (p * g).sum()) / tau,
            "That is the gradient of softmax.",
        ),
        "weighted mean": (
            lambda p, g, tau: _on(p) * (g - (p * g).sum()) / tau,
            "Your gradients don't sum to zero: look at the mean again.",
        ),
        "mean of all": (
            lambda p, g, tau: _on(p) * (g - g.mean()) / tau,
            "A key with weight zero took part in the mean.",
        ),
        "zeros alive": (
            lambda p, g, tau: (g - (_on(p) * g).sum() / _on(p).sum()) / tau,
            "A small change of a cut score changes nothing; your gradient says otherwise.",
        ),
        "no tau": (
            lambda p, g, tau: _on(p) * (g - (_on(p) * g).sum() / _on(p).sum()),
            "Where did the temperature go?",
        ),
    },
)

def _rows(q, k, v, tau, start=0, share=1.0, centre=True):
    out = []
    for i in range(len(q)):
        s = k[start : i + 1] @ q[i]
        w = (s - centre * s.mean()) / tau + share / len(s)
        out.append(w @ v[start : i + 1])
    return torch.stack(out)


def _run(f):
    q, k, v = torch.arange(36, dtype=torch.float64).mul(0.7).sin().reshape(3, 4, 3)
    return f(q, k, v, 2.0)


def _everything(q, k, v, tau):
    s = q @ k.T
    return ((s - s.mean(-1, keepdim=True)) / tau + 1 / len(k)) @ v


exercise(
    "ex-sparsemax-4",
    probe=_run,
    right=_rows,
    wrong={
        "not causal": (_everything, "A query sees a key that comes after it."),
        "keys not centred": (
            lambda q, k, v, tau: _rows(q, k, v, tau, centre=False),
            "Your weights don't sum to one: the mean score is still in them.",
        ),
        "no mean value": (
            lambda q, k, v, tau: _rows(q, k, v, tau, share=0.0),
            "Your weights sum to zero.",
        ),
        "no tau": (lambda q, k, v, tau: _rows(q, k, v, 1.0), "Where did the temperature go?"),
        "tau on everything": (
            lambda q, k, v, tau: _rows(q, k, v, tau, share=1 / tau),
            "The temperature divides the scores, not the share of the mean.",
        ),
    },
)
