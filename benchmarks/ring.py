"""Attention over 2 to 4 processes against one process, and against what the cost model says.

Bytes are counted, and must be those of `ring_cost`. Times are CPU time of the processes, one thread
each, on 127.0.0.1 with gloo. Two kinds of ratio: all ranks together over
`scaled_dot_product_attention` in one process, on the whole sequence; and the busiest rank over
what the model predicts for it, which is the time of a ring of one process times the share of the
operations that the model gives to the busiest rank. The goals are for processes that have a core
each. More processes than cores take the caches from one another, which says nothing about
machines; they are reported without a goal.
"""

import os
import tempfile
import time
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn import functional as F

from eotcourse import ALiBi, Shannon, Tsallis, alibi_slopes
from eotcourse.engine.ring import Ring, ring_attention, ring_cost, ring_positions

from .harness import Row, judge, keep_memory, main, shrunk

HEADS, D, LENGTH = 8, 64, shrunk(2048)
# By name: regulariser, causal, layout.
WAYS = {
    "softmax": (Shannon, False, "contiguous"),
    "softmax causal": (Shannon, True, "contiguous"),
    "softmax causal zigzag": (Shannon, True, "zigzag"),
    "alibi causal zigzag": (lambda: Shannon(ALiBi(alibi_slopes(HEADS))), True, "zigzag"),
    "alpha 1.5": (lambda: Tsallis(1.5), False, "contiguous"),
    "alpha 1.5 causal zigzag": (lambda: Tsallis(1.5), True, "zigzag"),
}
PASSES = ("forward", "both")
AGAINST_SDPA = ("softmax", "softmax causal zigzag")


def inputs(positions):
    generator = torch.Generator().manual_seed(0)
    whole = torch.randn(4, 1, HEADS, LENGTH, D, generator=generator)
    *leaves, upstream = whole[..., positions, :].unbind()
    return [x.contiguous().requires_grad_() for x in leaves], upstream.contiguous()


def clock(function, leaves, upstream, both):
    """CPU seconds of one call, after an uncounted one."""
    for _ in range(2):
        for x in leaves:
            x.grad = None
        start = time.process_time()
        out = function(*leaves)
        if both:
            out.backward(upstream)
        seconds = time.process_time() - start
    return seconds


def rank_of_many(rank, size, repeats, folder):
    torch.set_num_threads(1)
    keep_memory()
    address = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=size)
    alone = dist.new_group([0])
    times, sent = {}, {}
    for turn in range(repeats):
        for name, (make, causal, layout) in WAYS.items():
            regularizer = make()
            leaves, upstream = inputs(ring_positions(LENGTH, rank, size, layout))
            whole, whole_upstream = inputs(torch.arange(LENGTH))
            circle = Ring()

            def ours(q, k, v, group=circle):
                return ring_attention(
                    q, k, v, is_causal=causal, regularizer=regularizer, layout=layout, group=group
                )

            for way in PASSES:
                both = way == "both"
                circle.sent = 0
                seconds = clock(ours, leaves, upstream, both)
                everyone = [None] * size
                dist.all_gather_object(everyone, (seconds, circle.sent // 2))
                if rank == 0:
                    found = times.setdefault((name, way), [])
                    mine = [x for x, _ in everyone]
                    one = clock(lambda *x: ours(*x, alone), whole, whole_upstream, both)
                    peer = 0.0
                    if name in AGAINST_SDPA:
                        def sdpa(q, k, v):
                            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

                        peer = clock(sdpa, whole, whole_upstream, both)
                    found.append((sum(mine), max(mine), one, peer))
                    sent[name, way] = max(x for _, x in everyone)
                dist.barrier()
    if rank == 0:
        seconds = {key: [median(x) for x in zip(*found)] for key, found in times.items()}
        torch.save((seconds, sent), f"{folder}/found")
    dist.destroy_process_group()


def share(name, way, size):
    """The operations of the busiest rank, as a share of those of one process; and its bytes."""
    make, causal, layout = WAYS[name]
    shape = dict(heads=HEADS, head_dim=D, itemsize=4, is_causal=causal, layout=layout)
    alpha = getattr(make(), "alpha", 1.0)
    many, one = (ring_cost(LENGTH, p, alpha=alpha, **shape) for p in (size, 1))
    if way == "forward":
        return many.forward_flops / one.forward_flops, many.forward_bytes
    flops = [c.forward_flops + c.backward_flops for c in (many, one)]
    return flops[0] / flops[1], many.forward_bytes + many.backward_bytes


def measure(size, repeats):
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_of_many, (size, repeats, folder), nprocs=size)
        seconds, sent = torch.load(f"{folder}/found")
    rows, told, table = [], [], {}
    crowded = size > os.cpu_count()
    for (name, way), (total, busiest, one, peer) in seconds.items():
        part, bytes_ = share(name, way, size)
        if sent[name, way] != bytes_:
            raise SystemExit(f"{name}, {way}, {size} ranks: {sent[name, way]} bytes were sent")
        what = f"{size} ranks, {name}, {way}"
        about = {"ranks": size, "way": name, "pass": way, "bytes": bytes_}
        table |= {what: busiest, f"model: {what}": one * part}
        must = None if crowded else 1.5
        rows.append(Row("model", what, what, f"model: {what}", False, must, 1.1))
        told.append(about)
        if peer:
            table |= {f"all: {what}": total, f"SDPA: {what}": peer}
            all_ = f"{what}: all ranks / SDPA"
            # A causal ring sends what the other one sends, for half the operations: what is
            # allowed on top of them is twice the share.
            extra = 2 if WAYS[name][1] else 1
            must, aim = None if crowded else 1 + 0.25 * extra, 1 + 0.08 * extra
            rows.append(Row("C15", all_, f"all: {what}", f"SDPA: {what}", False, must, aim))
            told.append(about)
    return [result | about for result, about in zip(judge(rows, table), told, strict=True)]


STEPS = {f"{size} ranks": partial(measure, size) for size in (2, 3, 4)}
QUICK = ("2 ranks",)

if __name__ == "__main__":
    main(__doc__.splitlines()[0], STEPS)
