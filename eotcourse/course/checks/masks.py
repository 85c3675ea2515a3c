"""Answer keys of the page one-sided/masks, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _corner(offset, flip=False):
    def answer(m, n):
        keep = torch.arange(n) <= torch.arange(m)[:, None] + offset(m, n)
        return ~keep if flip else keep

    return answer


exercise(
    "ex-masks-1",
    probe=lambda f: f(3, 8),
    right=_corner(lambda m, n: n - m),
    wrong={
        "top left": (_corner(lambda m, n: 0), "Your first query is the first token of all, and the newest keys are seen by nobody."),
        "strict": (_corner(lambda m, n: n - m - 1), "A token may attend to itself."),
        "one ahead": (_corner(lambda m, n: n - m + 1), "One of your queries sees a token that comes after it."),
        "polarity": (_corner(lambda m, n: n - m, flip=True), "True means may attend."),
    },
)

def _triangle(ignore):
    return torch.ones(ignore.shape[1], ignore.shape[1], dtype=torch.bool).tril()


exercise(
    "ex-masks-2",
    probe=lambda f: f(torch.tensor([[False, False, True, False], [True, False, False, False]])),
    right=lambda ignore: ~ignore[:, None, None, :] & _triangle(ignore),
    wrong={
        "polarity": (lambda ignore: ignore[:, None, None, :] & _triangle(ignore), "True in the padding mask means ignore."),
        "or": (lambda ignore: ~ignore[:, None, None, :] | _triangle(ignore), "Both conditions must hold at once."),
        "queries": (lambda ignore: ~ignore[:, None, :, None] & _triangle(ignore), "Padding hides keys; yours silences queries."),
        "padding only": (lambda ignore: (~ignore[:, None, None, :]).expand(-1, 1, ignore.shape[1], -1), "And causality?"),
        "transposed": (lambda ignore: ~ignore[:, None, None, :] & _triangle(ignore).T, "Rows are queries: your first query sees all the keys after it."),
    },
)

exercise(
    "ex-masks-3",
    right=2.0,
    wrong={
        "unchanged": (0.25, "Then the division makes the penalty weaker than it was."),
        "divided": (0.25 / 8, "The division by the temperature is still to come. Which way must you correct for it?"),
        "d for its root": (16.0, "The temperature is the root of d."),
    },
    tol=1e-9,
)

exercise(
    "ex-masks-4",
    probe=lambda f: [float(f(3, 5, 2.0, 0.01)), float(f(1, 1000, 20.0, 1e-6))],
    right=lambda a, b, w, delta: w + math.log(b * (1 - delta) / (a * delta)),
    wrong={
        "no range": (lambda a, b, w, delta: math.log(b * (1 - delta) / (a * delta)), "A hidden key may start above the allowed ones."),
        "half range": (lambda a, b, w, delta: w / 2 + math.log(b * (1 - delta) / (a * delta)), "Both kinds of key may be at the ends of the interval."),
        "one of each": (lambda a, b, w, delta: w + math.log((1 - delta) / delta), "How many hidden keys share the leak?"),
        "counts swapped": (lambda a, b, w, delta: w + math.log(a * (1 - delta) / (b * delta)), "More hidden keys need a larger penalty, not a smaller one."),
        "against the allowed weight": (lambda a, b, w, delta: w + math.log(b / (a * delta)), "You bounded hidden over allowed; delta is hidden over all."),
    },
    tol=1e-4,
)
