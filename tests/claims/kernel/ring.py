"""Claims of the page "Ring attention"."""

import numpy as np
import torch
from claims import claim

from eotcourse.engine.ring import ring_cost, ring_positions


def pairs(rows, keys):
    """Pairs of a query and a key not behind it, one by one."""
    return int((np.asarray(keys)[None] <= np.asarray(rows)[:, None]).sum())


def layout(n, ranks, name):
    return [ring_positions(n, r, ranks, name).numpy() for r in range(ranks)]


def by_hop(at):
    """Pairs of each rank at each hop, by walking round the ring."""
    held, counted = list(range(len(at))), []
    for _ in at:
        counted.append([pairs(at[r], at[t]) for r, t in enumerate(held)])
        held = held[-1:] + held[:-1]
    return np.array(counted).T


def stripes(n, ranks, name="striped"):
    return [np.arange(r, n, ranks) for r in range(ranks)]


@claim(
    "prop-zigzag",
    part="(a) contiguous",
    tol=1e-12,
    instances=60,
    real=dict(
        share=lambda r, b: b * (r * b + (b + 1) / 2),
        busiest=lambda n, ranks: 2 - (n // ranks + 1) / (n + 1),
        hold=lambda n, ranks: layout(n, ranks, "contiguous"),
    ),
    mutants={
        "the limit at every length": dict(busiest=lambda n, p: 2 - 1 / p),
        "off by one": dict(busiest=lambda n, p: 2 - (n // p) / (n + 1)),
        "without the diagonal": dict(share=lambda r, b: b * (r * b + (b - 1) / 2)),
        "whole blocks": dict(share=lambda r, b: b * b * (r + 1)),
        "stripes": dict(hold=stripes),
    },
)
def contiguous(impl):
    """Pairs counted one by one against the formula for each rank; the last rank's over the mean,
    and over that of the slowest at each hop; and the limit for a long sequence."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        ranks, b = int(rng.integers(1, 8)), int(rng.integers(1, 12))
        n = ranks * b
        hops = by_hop(impl.hold(n, ranks))
        total = hops.sum(1)
        stated = np.array([impl.share(r, b) for r in range(ranks)])
        ratio = impl.busiest(n, ranks)
        yield max(
            np.abs(total - stated).max(),
            abs(total[-1] / total.mean() - ratio),
            abs(hops.max(0).sum() / total.mean() - ratio),
            max(0.0, abs(impl.busiest(ranks * 10**9, ranks) - (2 - 1 / ranks)) - 1e-8),
        )


@claim(
    "prop-zigzag",
    part="(b) zigzag, at every hop",
    tol=0,
    instances=60,
    real=dict(
        own=lambda m: 2 * m * m + m,
        other=lambda m: 2 * m * m,
        hold=lambda n, ranks: layout(n, ranks, "zigzag"),
    ),
    mutants={
        "contiguous": dict(hold=lambda n, p: layout(n, p, "contiguous")),
        "stripes": dict(hold=stripes),
        "parts r and r + P": dict(
            hold=lambda n, p: [
                np.concatenate([np.split(np.arange(n), 2 * p)[c] for c in (r, r + p)])
                for r in range(p)
            ]
        ),
        "diagonal forgotten": dict(own=lambda m: 2 * m * m),
        "whole blocks": dict(other=lambda m: 4 * m * m),
        "half the diagonal": dict(own=lambda m: 2 * m * m + m / 2),
    },
)
def zigzag(impl):
    """Pairs counted one by one at every hop of a walk round the ring."""
    rng = np.random.default_rng(1)
    for i in range(60):
        ranks, m = 2 + i % 6, int(rng.integers(1, 8))
        hops = by_hop(impl.hold(2 * ranks * m, ranks))
        yield max(
            np.abs(hops[:, 0] - impl.own(m)).max(), np.abs(hops[:, 1:] - impl.other(m)).max()
        )


@claim(
    "prop-zigzag",
    part="(c) zigzag, any length",
    tol=1e-12,
    instances=200,
    real=dict(
        room=lambda n, ranks: (2 * ranks + 1) / (n + 1),
        hold=lambda n, ranks: layout(n, ranks, "zigzag"),
    ),
    mutants={
        "half the room": dict(room=lambda n, p: p / (n + 1)),
        "whatever the number of ranks": dict(room=lambda n, p: 3 / (n + 1)),
        "contiguous": dict(hold=lambda n, p: layout(n, p, "contiguous")),
        "what is left over to the last": dict(
            hold=lambda n, p: [
                x if r else np.concatenate([x, np.arange(2 * p * (n // (2 * p)), n)])
                for r, x in enumerate(layout(2 * p * (n // (2 * p)), p, "zigzag"))
            ]
        ),
    },
)
def uneven(impl):
    """Pairs of each rank for random lengths, counted by the positions it holds, against the mean:
    how far they are beyond the room stated."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        ranks, n = int(rng.integers(2, 20)), int(rng.integers(1, 600))
        total = np.array([(np.asarray(x) + 1).sum() for x in impl.hold(n, ranks)], dtype=float)
        off = np.abs(total / total.mean() - 1).max()
        yield max(0.0, off - impl.room(n, ranks))


def shapes(rng):
    ranks, shared = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    return dict(
        ranks=ranks,
        n=ranks * int(rng.integers(1, 9)),
        heads=shared * int(rng.integers(1, 4)),
        shared=shared,
        d=int(rng.integers(1, 9)),
        e=int(rng.integers(1, 9)),
    )


def priced(x, itemsize=4, alpha=1.0, **how):
    return ring_cost(
        x["n"], x["ranks"], heads=x["heads"], kv_heads=x["shared"], head_dim=x["d"],
        value_dim=x["e"], itemsize=itemsize, alpha=alpha, **how,
    )  # fmt: skip


def forward_bytes(n, ranks, shared, d, e, w, sparse):
    return (ranks - 1) * (n // ranks) * shared * (d + e + sparse * d) * w


def backward_bytes(n, ranks, shared, d, e, w, wide):
    b = n // ranks
    return (ranks - 1) * b * shared * (d + e) * w + ranks * b * shared * (d + e) * wide


def moved(blocks, hops):
    """Bytes that leave each place of a ring of lists in so many hops."""
    sent = [0] * len(blocks)
    for _ in range(hops):
        for r, block in enumerate(blocks):
            sent[r] += block.nbytes
        blocks = blocks[-1:] + blocks[:-1]
    return max(sent)


@claim(
    "prop-ring-cost",
    part="(a) bytes",
    tol=0,
    instances=80,
    real=dict(forward=forward_bytes, backward=backward_bytes, cost=priced),
    mutants={
        "one hop too many": dict(
            forward=lambda n, p, h, d, e, w, s: p * (n // p) * h * (d + e + s * d) * w
        ),
        "values in both rounds": dict(
            forward=lambda n, p, h, d, e, w, s: forward_bytes(n, p, h, d, e, w, 0) * (1 + s)
        ),
        "gradients never home": dict(
            backward=lambda n, p, h, d, e, w, g: (p - 1) * (n // p) * h * (d + e) * (w + g)
        ),
        "gradients in 16 bits": dict(
            backward=lambda n, p, h, d, e, w, g: backward_bytes(n, p, h, d, e, w, w)
        ),
        "model: heads of queries": dict(
            cost=lambda x, *a, **k: priced(x | {"shared": x["heads"]}, *a, **k)
        ),
        "model: two ranks fewer hops": dict(
            cost=lambda x, *a, **k: priced(x, *a, **k)._replace(forward_bytes=0)
        ),
    },
)
def counted_bytes(impl):
    """Bytes of tensors that move through lists, hop by hop, against the formulas and
    `ring_cost`."""
    rng = np.random.default_rng(3)
    for i in range(80):
        x, dtype = shapes(rng), (torch.bfloat16, torch.float32)[i % 2]
        alpha, w = (1.0, 1.5)[i // 2 % 2], dtype.itemsize
        b, p, h, d, e = x["n"] // x["ranks"], x["ranks"], x["shared"], x["d"], x["e"]

        def blocks(width, kind):
            return [torch.empty(h, b, width, dtype=kind) for _ in range(p)]

        there = moved(blocks(d + e, dtype), p - 1)
        forward = there + (moved(blocks(d, dtype), p - 1) if alpha > 1 else 0)
        backward = there + moved(blocks(d + e, torch.float32), p)
        cost = impl.cost(x, w, alpha)
        yield max(
            abs(impl.forward(x["n"], p, h, d, e, w, alpha > 1) - forward),
            abs(impl.backward(x["n"], p, h, d, e, w, 4) - backward),
            abs(cost.forward_bytes - forward),
            abs(cost.backward_bytes - backward),
        )


def forward_flops(A, heads, d, e, sparse):
    return 2 * heads * A * (d + e) * (1 + sparse)


def backward_flops(A, heads, d, e):
    return 2 * heads * A * (3 * d + 2 * e)


class Shape:
    """A matrix without entries, whose products count their operations."""

    def __init__(self, rows, columns, tally):
        self.rows, self.columns, self.tally = rows, columns, tally

    def __matmul__(self, other):
        assert self.columns == other.rows
        # Each entry is a sum of products, and is added to something.
        self.tally.append(2 * self.rows * self.columns * other.columns)
        return Shape(self.rows, other.columns, self.tally)

    @property
    def mT(self):
        return Shape(self.columns, self.rows, self.tally)


def products(x, sparse):
    """Operations of the matrix products of a rank without a mask, forward and backward."""
    b, n, h, d, e = x["n"] // x["ranks"], x["n"], x["heads"], x["d"], x["e"]
    counts = []
    for backward in (False, True):
        tally = []
        q, k, v, g = (Shape(m, w, tally) for m, w in ((b, d), (n, d), (n, e), (b, e)))
        s = q @ k.mT
        if backward:
            _ = g @ v.mT, s @ k, s.mT @ q, s.mT @ g
        elif sparse:
            _ = q @ k.mT, s @ v, s @ v
        else:
            _ = s @ v
        counts.append(h * sum(tally))
    return counts


@claim(
    "prop-ring-cost",
    part="(b) operations",
    tol=0,
    instances=24,
    real=dict(forward=forward_flops, backward=backward_flops, cost=priced),
    mutants={
        "a multiplication alone": dict(forward=lambda A, h, d, e, s: h * A * (d + e) * (1 + s)),
        "one round": dict(forward=lambda A, h, d, e, s: forward_flops(A, h, d, e, 0)),
        "scores kept": dict(backward=lambda A, h, d, e: 2 * h * A * (2 * d + 2 * e)),
        "twice the forward pass": dict(backward=lambda A, h, d, e: 4 * h * A * (d + e)),
        "model: heads of keys": dict(
            cost=lambda x, *a, **k: priced(x | {"heads": x["shared"]}, *a, **k)
        ),
    },
)
def counted_operations(impl):
    """Operations of the matrix products of one rank, from their shapes, against the formulas and
    `ring_cost`; under a mask, pairs counted one by one, times the operations of a pair."""
    rng = np.random.default_rng(4)
    for i in range(24):
        x, sparse = shapes(rng), i % 2
        x["n"] *= 2
        alpha, d, e, h = (1.0, 1.5)[sparse], x["d"], x["e"], x["heads"]
        whole = x["n"] ** 2 // x["ranks"]
        there, back = products(x, sparse)
        seen = int(by_hop(layout(x["n"], x["ranks"], "zigzag")).sum(1).max())
        free = impl.cost(x, 4, alpha)
        masked = impl.cost(x, 4, alpha, is_causal=True, layout="zigzag")
        yield max(
            abs(impl.forward(whole, h, d, e, sparse) - there),
            abs(impl.backward(whole, h, d, e) - back),
            abs(free.forward_flops - there),
            abs(free.backward_flops - back),
            abs(masked.forward_flops * whole - there * seen),
            abs(masked.backward_flops * whole - back * seen),
        )


@claim(
    "prop-ring-cost",
    part="(c) hidden",
    tol=1e-12,
    instances=60,
    real=dict(
        forward=lambda share, fast, w, wide: share * fast * w / 2,
        backward=lambda share, fast, w, wide: share * fast * (w + wide) / 5,
        causal=2,
    ),
    mutants={
        "whole bytes": dict(forward=lambda share, fast, w, wide: share * fast * w),
        "heads not shared": dict(forward=lambda share, fast, w, wide: fast * w / 2),
        "gradients do not travel": dict(backward=lambda share, fast, w, wide: share * fast * w / 5),
        "four products": dict(
            backward=lambda share, fast, w, wide: share * fast * (w + wide) / 4
        ),
        "mask for free": dict(causal=1),
        "link and rank exchanged": dict(
            backward=lambda share, fast, w, wide: share / fast * (w + wide) / 5
        ),
    },
    covers=("eq-ring-hidden",),
)
def hidden(impl):
    """A hop's seconds of sending over those of computing: bytes of one block of the lists, the
    operations of the products for a pair, and pairs counted one by one; against b*/b."""
    rng = np.random.default_rng(5)
    for i in range(60):
        x, (w, kind) = shapes(rng), ((2, torch.bfloat16), (4, torch.float32))[i % 2]
        x["e"], x["n"] = x["d"], 2 * x["n"]
        b, link, speed = x["n"] // x["ranks"], rng.uniform(1, 9), rng.uniform(1, 9) * 100
        width, shape = 2 * x["d"], (x["shared"], b)
        block = moved([torch.empty(*shape, width, dtype=kind)] * x["ranks"], 1)
        grads = moved([torch.empty(*shape, width)] * x["ranks"], 1)
        there, back = (count / (x["n"] * b) for count in products(x, 0))
        hops = by_hop(layout(x["n"], x["ranks"], "zigzag"))
        fast, share = speed / link, x["shared"] / x["heads"]
        worst = 0.0
        for met, factor in ((b * b, 1), (hops[0, 1], impl.causal)):
            ours = block / (there * met), (block + grads) / (back * met)
            for bytes_, star in zip(ours, (impl.forward, impl.backward), strict=True):
                worst = max(worst, abs(bytes_ * fast / (star(share, fast, w, 4) * factor / b) - 1))
        yield worst
