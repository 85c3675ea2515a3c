"""Answer keys of the page one-sided/two-sided, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

_SUMS = [
    [1, 1, 1, 1], [2, 1, 1, 0], [1.5, 0.5, 1, 1], [1.5, 0.4, 1.1, 1], [0.9, 1.1, 1, 1],
    [2, 0, 0.5, 1.5], [2, 0, 1, 1], [3, 0, 0, 1], [1, 1, 2, 0], [1, 0.5, 1.5, 1],
]


def _prefix(c, k):
    return sum(c[:k]) >= k - 1e-12


exercise(
    "ex-two-sided-1",
    probe=lambda f: [float(bool(f(c))) for c in _SUMS],
    right=lambda c: all(_prefix(c, k) for k in range(1, len(c) + 1)),
    wrong={
        "anything goes": (lambda c: True, "Can the first key receive less than one unit, when the first query sees nothing else?"),
        "first key only": (lambda c: _prefix(c, 1), "The first key is one condition. What about the first two together?"),
        "non-increasing": (lambda c: all(a >= b for a, b in zip(c, c[1:])), "A later key may receive more than the one before it; look at sums from the start."),
        "each below its queries": (lambda c: all(x <= len(c) - j for j, x in enumerate(c)), "That each key has enough readers is not the binding condition; think of the early queries."),
        "identity": (lambda c: all(x == 1 for x in c), "Only equal columns force the identity."),
        "other end": (lambda c: all(sum(c[-k:]) >= k - 1e-12 for k in range(1, len(c) + 1)), "The late queries can see everything; it is the early ones that are bound."),
    },
)

def _recovered(f):
    gen = torch.Generator().manual_seed(3)
    S = torch.randn(4, 3, generator=gen, dtype=torch.float64)
    g = torch.tensor([0.6, -1.0, 0.1], dtype=torch.float64)
    return f(torch.softmax((S + g) / 0.7, 1), S, 0.7)


def _shifted(x):
    return x - x.mean()


exercise(
    "ex-two-sided-2",
    probe=_recovered,
    right=lambda A, S, eps: _shifted(eps * A[0].log() - S[0]),
    wrong={
        "eps missing": (lambda A, S, eps: _shifted(A[0].log() - S[0]), "In which units is the logarithm of a weight?"),
        "sign": (lambda A, S, eps: _shifted(S[0] - eps * A[0].log()), "A key that got more weight than its score explains has a positive bias."),
        "scores kept": (lambda A, S, eps: _shifted(eps * A[0].log()), "Part of that is the score itself."),
        "scaled units": (lambda A, S, eps: _shifted(A[0].log() - S[0] / eps), "That is the bias in scaled units."),
        "not centred": (lambda A, S, eps: eps * A[0].log() - S[0], "Right up to a constant; which one was asked for?"),
        "one row of the potential f": (lambda A, S, eps: _shifted((eps * A.log() - S)[:, 0]), "You kept the queries; the potential belongs to the keys."),
    },
)

def _carried(f):
    gen = torch.Generator().manual_seed(4)
    x, y = torch.randn(2, 3, 2, generator=gen, dtype=torch.float64)
    g = torch.tensor([0.4, -0.5, 0.1], dtype=torch.float64)
    return f(x, y, g, 0.6)


def _head(half=0.5, potential=1.0, after=False):
    def answer(x, y, g, eps):
        norms = half * (y * y).sum(1)
        raw = x @ y.T - norms + (0 if after else potential * g)
        return torch.softmax(raw / eps + (potential * g if after else 0), 1) @ y

    return answer


exercise(
    "ex-two-sided-3",
    probe=_carried,
    right=_head(),
    wrong={
        "half missing": (_head(half=1.0), "Expand the cost again; mind its factor."),
        "norms missing": (_head(half=0.0), "The squared norm of a key differs from key to key."),
        "potential missing": (_head(potential=0.0), "That forgets the column constraint."),
        "sign of the potential": (_head(potential=-1.0), "Which sign does the potential have beside the cost?"),
        "potential undivided": (_head(after=True), "The potential is in the units of the cost."),
    },
)

exercise(
    "ex-two-sided-4",
    right=1 / math.log((1 + 5**0.5) / 2),
    wrong={
        "logarithm": (math.log((1 + 5**0.5) / 2), "You found 1 over the price."),
        "golden ratio": ((1 + 5**0.5) / 2, "That is e to the power 1 over the price."),
        "worst query": (float("inf"), "It is enough that the mean over queries is at most one."),
    },
    tol=1e-5,
)
