"""Maps to the simplex, forward and backward, against the `entmax` package and torch.softmax.

Scores are independent and normal with deviation 1, four million of them in float32: the case in
which nothing but the size of the scores says which entries matter.
"""

from functools import partial

import entmax as package
import torch

import eotcourse

from .harness import Row, forward_backward, judge, main, medians, shrunk

ELEMENTS = 1 << 22
# must and aim by length: faster than the package; at most so many times softmax (alpha 2, 1.5).
PACKAGE = {512: (8, 20), 2048: (20, 40), 8192: (35, 60)}
SOFTMAX = {2048: ((2.0, 1.2), (3.0, 1.5)), 8192: ((1.4, 0.9), (1.8, 1.1))}
GENERAL = {2048: (10, 3), 8192: (4, 2)}
BISECTION = (25, 60)


def candidates(n):
    """What runs at rows of length n, by name, and the rows of the result."""
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(shrunk(ELEMENTS // n), n, generator=generator).requires_grad_()
    upstream = torch.randn(x.shape, generator=generator)
    maps = {
        "softmax": lambda s: torch.softmax(s, -1),
        "alpha 2": eotcourse.sparsemax,
        "alpha 1.5": eotcourse.entmax,
        "package, alpha 2": lambda s: package.sparsemax(s, -1),
        "package, alpha 1.5": lambda s: package.entmax15(s, -1),
    }
    rows = []
    for name in ("alpha 2", "alpha 1.5"):
        what = f"n={n} {name}: times faster than the package"
        rows.append(Row("C1", what, name, f"package, {name}", True, *PACKAGE[n]))
    if n in SOFTMAX:
        rows += [
            Row("C2", f"n={n} {name}: times softmax", name, "softmax", False, *goals)
            for name, goals in zip(("alpha 2", "alpha 1.5"), SOFTMAX[n])
        ]
    if n in GENERAL:
        learned = torch.nn.Parameter(torch.tensor(4 / 3))
        maps["alpha 4/3"] = lambda s: eotcourse.entmax(s, 4 / 3)
        maps["alpha 1.37"] = lambda s: eotcourse.entmax(s, 1.37)
        maps["learned 4/3"] = lambda s: eotcourse.entmax(s, learned)
        maps["package, 4/3"] = lambda s: package.entmax_bisect(s, 4 / 3)
        maps["package, learned"] = lambda s: package.entmax_bisect(s, learned)
        for name in ("alpha 4/3", "alpha 1.37", "learned 4/3"):
            what = f"n={n} {name}: times softmax"
            rows.append(Row("C3", what, name, "softmax", False, *GENERAL[n]))
        for name, peer in (("alpha 4/3", "package, 4/3"), ("learned 4/3", "package, learned")):
            what = f"n={n} {name}: times faster than 50 bisections"
            rows.append(Row("C3", what, name, peer, True, *BISECTION))
    return {name: forward_backward(f, x, upstream) for name, f in maps.items()}, rows


def measure(n, repeats):
    functions, rows = candidates(n)
    return judge(rows, medians(functions, repeats, f"n={n}"))


STEPS = {f"n={n}": partial(measure, n) for n in PACKAGE}

if __name__ == "__main__":
    main(__doc__, STEPS)
