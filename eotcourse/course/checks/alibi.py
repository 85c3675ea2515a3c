"""Answer keys of the page kernel/alibi, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _last(A, B, m, al):
    return math.ceil((A - B + 1 / (al - 1)) / m) - 1


exercise(
    "ex-alibi-1",
    probe=lambda f: np.array(
        [float(f(*x)) for x in ((6, 2, 0.5, 1.5), (5, -1, 0.3, 2.0), (4, 1, 0.125, 3.0))]
    ),
    right=_last,
    wrong={
        "one too far": (
            lambda A, B, m, al: math.ceil((A - B + 1 / (al - 1)) / m),
            "Look at the key exactly at $T$.",
        ),
        "no edge": (
            lambda A, B, m, al: math.ceil((A - B) / m) - 1,
            "A score may lie below $B$ and still have weight.",
        ),
        "edge multiplied": (
            lambda A, B, m, al: math.ceil((A - B + al - 1) / m) - 1,
            "Where does $\\exp_\\alpha$ become 0?",
        ),
        "times the slope": (
            lambda A, B, m, al: math.ceil((A - B + 1 / (al - 1)) * m) - 1,
            "A steeper head sees less far.",
        ),
        "rounded down": (
            lambda A, B, m, al: math.floor((A - B + 1 / (al - 1)) / m),
            "That is right unless $T$ is whole.",
        ),
        "not rounded": (
            lambda A, B, m, al: (A - B + 1 / (al - 1)) / m,
            "Keys are at whole distances.",
        ),
    },
)

def _cut(A, B, m, eps):
    return math.ceil((A - B - math.log(eps * (1 - math.exp(-m)))) / m)


exercise(
    "ex-alibi-2",
    probe=lambda f: np.array(
        [float(f(*x)) for x in ((6, 2, 0.5, 1e-3), (5, -1, 0.01, 1e-7), (4, 1, 0.1, 2.0**-9))]
    ),
    right=_cut,
    wrong={
        "one key": (
            lambda A, B, m, e: math.ceil((A - B - math.log(e)) / m),
            "That bounds one weight; many keys lie farther away.",
        ),
        "both sides": (
            lambda A, B, m, e: math.ceil((A - B - math.log(e / 2 * (1 - math.exp(-m)))) / m),
            "On how many sides does a causal query have keys?",
        ),
        "sign of the loss": (
            lambda A, B, m, e: math.ceil((A - B + math.log(e) - math.log(1 - math.exp(-m))) / m),
            "A smaller loss needs a longer window.",
        ),
        "sparse edge": (
            lambda A, B, m, e: math.ceil((A - B + 1) / m),
            "Softmax has no edge.",
        ),
    },
)

exercise(
    "ex-alibi-3",
    right=7140,
    wrong={
        "flattest head": (14 * 256, "That is the longest of the eight windows."),
        "one head too many": (14 * 1022, "The flattest slope is $2^{-8}$."),
        "slopes for their inverses": (14 * (1 - 2**-8), "Divide by a slope, not multiply."),
        "from one": (14 * 511, "The steepest slope is one half."),
    },
)
