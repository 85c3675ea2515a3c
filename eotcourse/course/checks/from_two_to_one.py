"""Answer keys of the page one-sided/from-two-to-one, generated from its source: edit them there."""

import math  # noqa: F401

import numpy as np  # noqa: F401
import torch  # noqa: F401

from eotcourse.course.exercises import exercise

def _masses(f):
    gen = torch.Generator().manual_seed(5)
    S = torch.randn(3, 4, generator=gen, dtype=torch.float64)
    return f(S, torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64), 0.7)


exercise(
    "ex-from-two-to-one-1",
    probe=_masses,
    right=lambda S, mu, eps: mu @ torch.softmax(S / eps, 1),
    wrong={
        "queries all alike": (lambda S, mu, eps: torch.softmax(S / eps, 1).mean(0), "The queries do not all have the same mass."),
        "softmax over queries": (lambda S, mu, eps: mu @ torch.softmax(S / eps, 0), "Each query distributes its own mass: over which index does the softmax run?"),
        "column sums of A": (lambda S, mu, eps: torch.softmax(S / eps, 1).sum(0), "That adds up to the number of queries. What is the total mass?"),
    },
    tol=1e-9,
)

exercise(
    "ex-from-two-to-one-2",
    right=[0.2, 0.5, 0.3],
    wrong={
        "softmax": (np.exp([5.0, -3, 1]) / np.exp([5.0, -3, 1]).sum(), "Those weights do not give the keys what they must receive."),
        "prior softmax": (
            np.exp([5.0, -3, 1]) * [0.2, 0.5, 0.3] / (np.exp([5.0, -3, 1]) * [0.2, 0.5, 0.3]).sum(),
            "A prior pulls towards the masses; a constraint imposes them.",
        ),
    },
    tol=1e-4,
)

def _pushed(f):
    gen = torch.Generator().manual_seed(6)
    A = torch.softmax(torch.randn(3, 4, generator=gen, dtype=torch.float64), 1)
    mu = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
    nu = torch.tensor([0.1, 0.4, 0.3, 0.2], dtype=torch.float64)
    return f(A, mu, nu, 0.7)


def _push(sign=1, centre=True, power=1, masses=True):
    def answer(A, mu, nu, eps):
        gain = sign * torch.log(nu / (mu @ A)) / eps**power
        mean = (A @ gain)[:, None] if centre else 0
        return (mu[:, None] if masses else 1) * A * (gain - mean)

    return answer


exercise(
    "ex-from-two-to-one-3",
    probe=_pushed,
    right=_push(),
    wrong={
        "sign": (_push(sign=-1), "A key that receives too little must gain, not lose."),
        "not centred": (_push(centre=False), "Do the rows of your answer sum to zero?"),
        "eps missing": (_push(power=0), "In which units does the bias enter the softmax?"),
        "masses missing": (_push(masses=False), "That is the derivative of the attention matrix, not of the plan."),
    },
    tol=1e-9,
)
