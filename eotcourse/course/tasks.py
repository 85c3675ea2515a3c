"""Small tasks, each of which is easy for one mechanism and hard for another.

In the first four tasks an item is a number and a class, and the answer is the class of one item:

============  ==================================  ==========================================
task          the number of an item               the item that counts
============  ==================================  ==========================================
needle        1 for one item, 0 for the others    the 1: its score gap can be any constant
maximum       a priority, uniform on [0, 1)       the largest: its gap falls like 1/n
recent        1 for about every fourth item       the last 1
first         the same                            the first 1
============  ==================================  ==========================================

The other two use the digits of scikit-learn: bags of pictures, and classification by attention
over labelled pictures when the classes are not equally frequent.
"""

import functools
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from eotcourse import ALiBi, LogPrior, Shannon, Tsallis, attention

CLASSES = 10
MARKED = 0.25
SOUGHT = 9


def _items(number, where, generator):
    """Items with random classes, the answer, and the position it stands at."""
    classes = torch.randint(CLASSES, number.shape, generator=generator)
    x = torch.cat([number[..., None], F.one_hot(classes, CLASSES)], -1)
    return x, classes.gather(1, where[:, None])[:, 0], where


def needle(batch, n, generator):
    """One flagged item among n. Returns x (batch, n, 11), answers (batch,), positions (batch,)."""
    where = torch.randint(n, (batch,), generator=generator)
    return _items(F.one_hot(where, n).float(), where, generator)


def maximum(batch, n, generator):
    """The item of highest priority among n; returns as `needle`."""
    priority = torch.rand(batch, n, generator=generator)
    return _items(priority, priority.argmax(1), generator)


def _marks(batch, n, generator):
    marks = torch.rand(batch, n, generator=generator) < MARKED
    sure = torch.randint(n, (batch,), generator=generator)
    return marks | F.one_hot(sure, n).bool()


def recent(batch, n, generator):
    """The last marked item of n; returns as `needle`."""
    marks = _marks(batch, n, generator).float()
    return _items(marks, n - 1 - marks.flip(1).argmax(1), generator)


def first(batch, n, generator):
    """The first marked item of n; returns as `needle`."""
    marks = _marks(batch, n, generator).float()
    return _items(marks, marks.argmax(1), generator)


@functools.cache
def digits():
    """scikit-learn's 1797 digits: pictures (1797, 64) with values in [0, 1], labels (1797,)."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return torch.as_tensor(x) / 16, torch.as_tensor(y)


def bags(half):
    """The task "is there a nine in the bag?", on the even (0) or odd (1) pictures.

    Half of the bags hold exactly one nine. The task returns x (batch, n, 64), answers 0 or 1, and
    the position of the nine, -1 without one.
    """
    x, y = (table[half::2] for table in digits())
    x = x.float()
    nines, others = (y == SOUGHT).nonzero()[:, 0], (y != SOUGHT).nonzero()[:, 0]

    def task(batch, n, generator):
        pick = others[torch.randint(len(others), (batch, n), generator=generator)]
        answer = torch.randint(2, (batch,), generator=generator)
        where = torch.randint(n, (batch,), generator=generator)
        nine = nines[torch.randint(len(nines), (batch,), generator=generator)]
        rows = torch.arange(batch)
        pick[rows, where] = torch.where(answer == 1, nine, pick[rows, where])
        return x[pick], answer, torch.where(answer == 1, where, -1)

    return task


TASKS = {"needle": needle, "maximum": maximum, "recent": recent, "first": first}


def regularizer(name):
    """A new regulariser by its name on the page; the last is ALiBi with a slope that is trained."""
    return {
        "softmax": Shannon,
        "entmax": lambda: Tsallis(1.5),
        "sparsemax": lambda: Tsallis(2.0),
        "ALiBi": lambda: Shannon(ALiBi([1.0])),
        "trained slope": lambda: Shannon(ALiBi(nn.Parameter(torch.ones(1)))),
    }[name]()


def sinusoids(n, width):
    """Sines and cosines of the position at geometric frequencies, shape (n, width)."""
    rate = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angle = torch.arange(n)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], -1)


class Reader(nn.Module):
    """One hidden layer for every item, one query that attends to all of them, one linear read-out.

    The query stands at the last position, is the same for every input, and is trained.

    Parameters
    ----------
    features, classes : int
        Numbers of an item, and answers.
    regularizer : Regularizer
        Of the only attention there is.
    generator : torch.Generator
        Draws the initial weights.
    positions : bool
        Add sinusoids of the position inside the hidden layer.
    """

    def __init__(self, features, classes, regularizer, generator, positions=False, width=32):
        super().__init__()

        def matrix(rows, columns):
            return nn.Parameter(torch.randn(rows, columns, generator=generator) / rows**0.5)

        self.hidden, self.shift = matrix(features, width), nn.Parameter(torch.zeros(width))
        self.query, self.key = matrix(1, width), matrix(width, width)
        self.value, self.out = matrix(width, width), matrix(width, classes)
        self.regularizer, self.positions = regularizer, positions

    def forward(self, x, need_weights=False):
        """Logits (batch, classes), and the weights (batch, n) if asked for."""
        h = x @ self.hidden + self.shift
        if self.positions:
            h = h + sinusoids(*h.shape[-2:])
        h = h.relu()
        read, aux = attention(
            self.query.expand(len(x), 1, -1), h @ self.key, h @ self.value,
            regularizer=self.regularizer, causal_align="bottom_right",
            return_aux=True, need_weights=need_weights,
        )  # fmt: skip
        logits = read[:, 0] @ self.out
        return (logits, aux.weights[:, 0]) if need_weights else logits


def train(model, task, steps, generator, shortest, longest, batch=64, rate=3e-3):
    """Train by Adam on fresh inputs whose length is drawn anew at every step; returns the model."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        n = int(torch.randint(shortest, longest + 1, (), generator=generator))
        x, answer, _ = task(batch, n, generator)
        optimizer.zero_grad()
        F.cross_entropy(model(x), answer).backward()
        optimizer.step()
    return model


@torch.no_grad()
def examine(model, task, n, generator, count=500):
    """Share of right answers on `count` inputs of length n, and the mean weight of the right item.

    Inputs without a right item count in the first number only.
    """
    right, held, sought = 0, 0.0, 0
    at_once = max(1, 2**18 // n)
    for start in range(0, count, at_once):
        x, answer, where = task(min(at_once, count - start), n, generator)
        logits, weights = model(x, need_weights=True)
        right += int((logits.argmax(-1) == answer).sum())
        there = where >= 0
        held += float(weights[there].gather(1, where[there, None]).sum())
        sought += int(there.sum())
    return right / count, held / max(sought, 1)


def class_law(ratio):
    """Probabilities of the ten classes, each `ratio` times as frequent as the one before."""
    law = ratio ** torch.arange(CLASSES, dtype=torch.float64)
    return law / law.sum()


def classify(queries, keys, labels, tau, law=None):
    r"""Class probabilities by attention over labelled examples (Nadaraya and Watson).

    .. math:: P(c \mid q) = \sum_{j : y_j = c} p_j, \qquad
              p = \mathrm{softmax}\Bigl(-\frac{|q - k_j|^2}{2\tau} + \log \pi_{y_j}\Bigr).

    Parameters
    ----------
    queries, keys : Tensor, shapes (m, d), (n, d)
    labels : integer Tensor, shape (n,)
        Classes of the keys, equally frequent.
    tau : float
        Temperature; the root of it is the width of the kernel.
    law : Tensor, shape (10,), optional
        Prior of the classes; uniform if omitted.

    Returns
    -------
    Tensor, shape (m, 10)
    """
    log_pi = -keys.square().sum(-1) / (2 * tau)
    if law is not None:
        log_pi = log_pi + law.log()[labels]
    values = F.one_hot(labels, CLASSES).to(keys.dtype)
    prior = Shannon(LogPrior(log_pi))
    return attention(queries, keys, values, scale=1 / tau, regularizer=prior)


def score(probabilities, labels, law):
    """Log loss and accuracy in a population whose classes follow `law`.

    Every class counts as a whole with its share in `law`, however many pictures of it there are.
    """
    count = torch.bincount(labels, minlength=CLASSES)
    weight = (law / count)[labels]
    loss = -probabilities.gather(1, labels[:, None])[:, 0].log()
    right = (probabilities.argmax(-1) == labels).to(weight.dtype)
    return float(weight @ loss), float(weight @ right)


def label_shift(seed, keys_per_class=20):
    """One split of the digits: keys, pictures to tune tau on, pictures to test on.

    tau is the best of a grid by log loss with equally frequent classes and no prior, so it knows
    nothing of the law that the test uses. Returns ``(tau, queries, answers, keys, labels)``.
    """
    x, y = digits()
    order = torch.as_tensor(np.random.default_rng(seed).permutation(len(y)))
    rank = F.one_hot(y[order], CLASSES).cumsum(0).gather(1, y[order][:, None])[:, 0]
    is_key = rank <= keys_per_class
    chosen, rest = order[is_key], order[~is_key]
    tuning, testing = rest[::2], rest[1::2]
    equal = class_law(1.0)
    grid = [2.0**k for k in range(-6, 3)]
    tau = min(
        grid,
        key=lambda t: score(classify(x[tuning], x[chosen], y[chosen], t), y[tuning], equal)[0],
    )
    return tau, x[testing], y[testing], x[chosen], y[chosen]


def spread(values):
    """Mean, smallest and largest of some numbers, as the page prints them."""
    return f"{math.fsum(values) / len(values):.2f} {min(values):.2f}-{max(values):.2f}"


def summary(columns):
    """Stored results of one experiment as text: a model a line, a condition a column."""
    columns = list(columns.items())
    models = list(columns[0][1])
    widest = max(map(len, models))
    lines = [" " * widest + "".join(f"  {name:<14}" for name, _ in columns)]
    for model in models:
        cells = "".join(f"  {spread(result[model]):<14}" for _, result in columns)
        lines.append(f"{model:<{widest}}{cells}")
    return "\n".join(line.rstrip() for line in lines)
