"""One sequence over several processes: attention, gradients, and what they cost.

    torchrun --nproc-per-node 2 examples/ring.py
    torchrun --nproc-per-node 4 examples/ring.py --length 4096 --alpha 1.5

Every process holds a part of the sequence, and gets the same outputs and gradients as one process
that holds all of it. NCCL is used where each process has an NVIDIA card, gloo elsewhere.
"""

import argparse
import os

import torch
import torch.distributed as dist

from eotcourse import ALiBi, Tsallis, alibi_slopes, attention
from eotcourse.engine.ring import Ring, ring_attention, ring_cost, ring_positions

HEADS, KV_HEADS, D = 8, 2, 64


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=1000, help="of the sequence")
    parser.add_argument("--alpha", type=float, default=1.0, help="1 is softmax, 2 is sparsemax")
    parser.add_argument("--layout", choices=["contiguous", "zigzag"], default="zigzag")
    options = parser.parse_args()

    if "LOCAL_RANK" not in os.environ:
        parser.error("start it by torchrun --nproc-per-node 2 examples/ring.py")
    local = int(os.environ["LOCAL_RANK"])
    cards = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", local) if cards else torch.device("cpu")
    if cards:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cards else "gloo")
    ring = Ring()

    # A real program reads only its part; here everybody draws the whole, to compare with it.
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, h, options.length, D) for h in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
    whole = [torch.randn(shape, generator=generator).to(device) for shape in shapes]
    held = ring_positions(options.length, ring.rank, ring.size, options.layout).to(device)
    query, key, value, upstream = (x[..., held, :] for x in whole)
    leaves = [x.requires_grad_() for x in (query, key, value)]

    regularizer = Tsallis(options.alpha, ALiBi(alibi_slopes(HEADS))).to(device)
    arguments = dict(is_causal=True, enable_gqa=True, regularizer=regularizer)
    out = ring_attention(*leaves, layout=options.layout, group=ring, **arguments)
    forward = ring.sent
    out.backward(upstream)

    alone = [x.requires_grad_() for x in whole[:3]]
    want = attention(*alone, **arguments)
    want.backward(whole[3])
    pairs = zip([out, *(x.grad for x in leaves)], [want, *(x.grad for x in alone)])
    gaps = [(x - y[..., held, :]).detach().abs().flatten() for x, y in pairs]
    gap = max([0.0, *torch.cat(gaps).tolist()])
    cost = ring_cost(
        options.length, ring.size, heads=HEADS, kv_heads=KV_HEADS, head_dim=D, itemsize=4,
        alpha=options.alpha, is_causal=True, layout=options.layout,
    )
    lines = [None] * ring.size
    line = f"rank {ring.rank}: {len(held)} positions, largest difference {gap:.0e}, "
    line += f"sent {forward} + {ring.sent - forward} bytes"
    dist.all_gather_object(lines, line)
    if ring.rank == 0:
        print("\n".join(lines))
        print(f"model: at most {cost.forward_bytes} + {cost.backward_bytes} bytes")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
