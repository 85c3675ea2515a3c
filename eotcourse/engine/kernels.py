r"""Exact attention on a GPU, in memory linear in the lengths: Triton kernels.

A program meets its block of queries with one block of keys after the other. Scaled scores theta
are formed where they are used, prior and mask included, and never stored. As in
`eotcourse.engine.blockwise`, all that a row leaves behind is its soft maximum zeta: with a =
alpha - 1,

.. math:: p_{ij} = (1 + a (\theta_{ij} - \zeta_i))_+^{1/a}, \qquad
          u_{ij} = p_{ij}^{2 - \alpha}, \qquad \alpha = 1:\; p = u = e^{\theta - \zeta} .

**Softmax** (`_softmax`) needs one pass: a running top and a running sum, by which what was summed
before is scaled whenever the top rises.

**Entmax** (`_screen`, `_list`, `_entmax`) needs zeta first, the root of sum p = 1, a sum that is
convex and falls in zeta for alpha <= 2: Newton's steps from a lower bound rise to it. The first
pass keeps the maxima over the blocks, place by place. They are some of the row's scores, and the
soft maximum of some is a lower bound of that of all. A second pass makes the first step from there
and notes which pairs of blocks have any weight at that bound: no other pair can have one at the
root. These pairs are listed, and from here on nothing else is touched, in the backward pass too.
Steps are taken until float32 can't tell the difference, then the output is summed.

**Backward** (`_queries`, `_keys`) is the same for every member. With g = <dO_i, v_j> and w the
gradient of zeta,

.. math:: d\theta_{ij} = u_{ij} (g_{ij} - \delta_i), \qquad
          \delta_i = \frac{\sum_j u_{ij} g_{ij} - w_i}{\sum_j u_{ij}}
                   = \langle dO_i, \bar v_i \rangle - \frac{w_i}{\sum_j u_{ij}},

where v-bar, the mean of the values weighted by u, is summed in the forward pass beside the output
(for softmax it is the output). So delta is one scalar product per query, as in FlashAttention, and
both kernels that follow need a single pass.

Two ways to write the same weights keep float32 exact, and one number per head, `near`, chooses.
From alpha = 1.2 on it is 0, and `rest` = kappa = a zeta - 1: p = (a theta - rest)^(1/a), which
doesn't cancel for small weights. Below it is 1, and `rest` = a zeta, with log(1 + x) for 1/a times
the logarithm: this survives alpha = 1. All theta and zeta are relative to `top`, the row's maximum.

Memory: the outputs, a few numbers per query, and for entmax v-bar, a byte per pair of blocks (for
8192 pairs of query and key at the usual 128 x 64) and the lists of them, four times that.
Masks and priors given as several tables are first made one, of the shape to which they broadcast.

Sums of gradients over pairs run in a fixed order, but for a float mask or prior that has a row for
every query: these are added atomically, in any order.

Prior art: online softmax (Milakov and Gimelshein, arXiv:1805.02867), FlashAttention and its
successor (Dao et al., arXiv:2205.14135; Dao, arXiv:2307.08691), AdaSplash (Goncalves et al.,
arXiv:2502.12082: entmax in Triton, blocks of weight 0 skipped) and AdaSplash-2 (arXiv:2604.15180).
"""

import math
from typing import Optional

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.forward_ad import unpack_dual

from ..priors import ALiBi, Causal, LogPrior, Padding, Window, bias_of_rows, fitting

try:
    import triton
    from triton import language as tl
    from triton.language import constexpr
except ImportError:  # there is none for Windows, macOS and many processors
    triton = tl = constexpr = None


def _jit(function):
    return function if triton is None else triton.jit(function)


_FAR = 1 << 30  # a reach without limit; lengths are shorter, and the sum of two fits into int32
_WIDEST = 256


# ---------------------------------------------------------------- parts of kernels


@_jit
def _tile(x, rows, limit, WIDTH: constexpr, BLOCK: constexpr):
    """Rows of a matrix with rows of length WIDTH; zeros beyond its edges."""
    columns = tl.arange(0, BLOCK)
    inside = rows[:, None] < limit
    if BLOCK != WIDTH:
        inside = inside & (columns[None, :] < WIDTH)
    return tl.load(x + rows[:, None] * WIDTH + columns[None, :], mask=inside, other=0.0)


@_jit
def _put(x, tile, rows, limit, WIDTH: constexpr, BLOCK: constexpr):
    columns = tl.arange(0, BLOCK)
    inside = (rows[:, None] < limit) & (columns[None, :] < WIDTH)
    place = x + rows[:, None] * WIDTH + columns[None, :]
    tl.store(place, tile.to(x.dtype.element_ty), mask=inside)


@_jit
def _dot(a, b, UPCAST: constexpr):
    """a b in float32. Triton's interpreter doesn't multiply bfloat16 rightly: there, UPCAST."""
    if UPCAST:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


@_jit
def _theta(
    s, i, j, z, slopes, table, table_b, table_h, table_i, table_j,
    scale, first, left, right, heads, q_len, k_len,
    ALIBI: constexpr, TABLE: constexpr, LIMITED: constexpr,
):  # fmt: skip
    """Scaled scores of head z from raw ones, for queries i and keys j, which broadcast to `s`.

    -inf where a query may not attend. `table` is a mask (TABLE 1) or a term (TABLE 2).
    """
    theta = s * scale
    lag = j - i - first
    inside = (i < q_len) & (j < k_len)
    if LIMITED:
        inside = inside & (lag >= -left) & (lag <= right)
    if ALIBI:
        theta -= tl.load(slopes + z) * tl.abs(lag).to(tl.float32)
    if TABLE != 0:
        start = table + (z // heads).to(tl.int64) * table_b + (z % heads).to(tl.int64) * table_h
        place = start + i.to(tl.int64) * table_i + j.to(tl.int64) * table_j
        entry = tl.load(place, mask=inside, other=0)
        if TABLE == 1:
            inside = inside & (entry != 0)
        else:
            entry = entry.to(tl.float32)
            theta += entry
            inside = inside & (entry != -float("inf"))
    return tl.where(inside, theta, -float("inf"))


@_jit
def _finite(top):
    """The tops of rows, 0 for those that may attend to nothing."""
    return tl.where(top == -float("inf"), 0.0, top)


@_jit
def _order(alpha, z, ORDER: constexpr):
    """a = alpha - 1 of head z, and `near`; ORDER 0 reads alpha, which may be 1."""
    if ORDER == 0:
        a = tl.load(alpha + z) - 1
        a = tl.where(a < 1e-6, 1e-6, a)  # closer to 1, float32 can't tell the weights apart
        near = tl.where(a < 0.2, 1.0, 0.0)
    else:
        a = ORDER - 1.0
        near = 0.0
    return a, near


@_jit
def _weights(z, rest, a, near, ORDER: constexpr):
    """Weights and responses of scores z relative to the row's top; NaN stays NaN."""
    if ORDER == 1:
        p = tl.exp(z - rest)
        u = p
    else:
        x = a * z - rest
        base = x + near
        base = tl.where(base <= 0, 0.0, base)
        if ORDER == 2:
            p = base
            u = tl.where(base == 0, 0.0, 1.0)
        elif ORDER == 1.5:
            p = base * base
            u = base
        else:
            on = base != 0
            base = tl.where(on, base, 1.0)
            log = tl.log(base) + (x - (base - near))  # what the sum with 1 was rounded by
            p = tl.where(on, tl.exp(log / a), 0.0)
            u = p / base
    return p, u


@_jit
def _step(mass, total, a, ORDER: constexpr):
    """Newton's step of `rest`, (m - m^(2 - alpha)) / sum u, from the mass m of the weights."""
    if ORDER == 2:
        excess = mass - 1
    elif ORDER == 1.5:
        excess = mass - tl.sqrt(mass)
    else:
        x = -a * tl.log(mass)
        power = tl.exp(x)
        # exp(x) - 1 for small x, the rounding of exp(x) divided out
        less = (power - 1) * x / tl.log(tl.where(power == 1, 2.0, power))
        excess = -mass * tl.where(power == 1, x, less)
    return tl.where(total == 0, 0.0, excess / tl.where(total == 0, 1.0, total))


@_jit
def _drift(p, a):
    """How a change of alpha moves the scores: log(p)^2 phi(a log p), see `eotcourse.simplex`."""
    log = tl.log(tl.where(p == 0, 1.0, p))
    t = a * log
    # phi(t) = (t e^t - e^t + 1) / t^2 cancels near 0, where this is its series
    small = tl.where(t > -0.5, t, 0.0)
    series = 1 / 2 + small * (1 / 3 + small * (1 / 8 + small * (1 / 30 + small * (
        1 / 144 + small * (1 / 840 + small * (1 / 5760 + small / 45360))))))  # fmt: skip
    t = tl.where(t > -0.5, -1.0, t)
    phi = tl.where(small != 0, series, (1 + tl.exp(t) * (t - 1)) / (t * t))
    return log * log * phi


@_jit
def _key_blocks(i, first, left, right, k_len, BLOCK_I: constexpr, BLOCK_J: constexpr):
    """The range of blocks of keys that queries i, ..., i + BLOCK_I - 1 may attend to."""
    low = tl.maximum(i + first - left, 0) // BLOCK_J
    high = tl.maximum(tl.minimum(i + BLOCK_I + first + right, k_len), 0)
    return low, tl.cdiv(high, BLOCK_J)


@_jit
def _query_blocks(j, first, left, right, q_len, BLOCK_I: constexpr, BLOCK_J: constexpr):
    """The range of blocks of queries that may attend to keys j, ..., j + BLOCK_J - 1."""
    low = tl.maximum(j - first - right, 0) // BLOCK_I
    high = tl.maximum(tl.minimum(j + BLOCK_J - first + left, q_len), 0)
    return low, tl.cdiv(high, BLOCK_I)


# ---------------------------------------------------------------- forward


@_jit
def _softmax(
    q, k, v, out, zetas, tops, rests,
    slopes, table, table_b, table_h, table_i, table_j, scale, first, left, right,
    heads, group, q_len, k_len,
    ALIBI: constexpr, TABLE: constexpr, LIMITED: constexpr, D: constexpr, E: constexpr,
    BLOCK_D: constexpr, BLOCK_E: constexpr, BLOCK_I: constexpr, BLOCK_J: constexpr,
    UPCAST: constexpr,
):  # fmt: skip
    blocks = tl.cdiv(q_len, BLOCK_I)
    z = tl.program_id(0) // blocks
    # The last queries first: with a causal mask they have the most to do.
    start = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_I
    far = z.to(tl.int64)
    k += far // group * k_len * D
    v += far // group * k_len * E
    i = start + tl.arange(0, BLOCK_I)
    queries = _tile(q + far * q_len * D, i, q_len, D, BLOCK_D)
    top = tl.full([BLOCK_I], -float("inf"), tl.float32)
    mass = tl.zeros([BLOCK_I], tl.float32)
    total = tl.zeros([BLOCK_I, BLOCK_E], tl.float32)
    low, high = 0, tl.cdiv(k_len, BLOCK_J)
    if LIMITED:
        low, high = _key_blocks(start, first, left, right, k_len, BLOCK_I, BLOCK_J)
    for block in range(low, high):
        j = block * BLOCK_J + tl.arange(0, BLOCK_J)
        keys = _tile(k, j, k_len, D, BLOCK_D)
        theta = _theta(
            _dot(queries, tl.trans(keys), UPCAST), i[:, None], j[None, :], z,
            slopes, table, table_b, table_h, table_i, table_j,
            scale, first, left, right, heads, q_len, k_len, ALIBI, TABLE, LIMITED,
        )  # fmt: skip
        higher = tl.maximum(top, tl.max(theta, 1))
        shift = _finite(higher)
        p = tl.exp(theta - shift[:, None])
        fade = tl.exp(top - shift)
        values = _tile(v, j, k_len, E, BLOCK_E)
        mass = mass * fade + tl.sum(p, 1)
        total = total * fade[:, None] + _dot(p.to(values.dtype), values, UPCAST)
        top = higher
    empty = top == -float("inf")
    mass = tl.where(empty & (mass == 0), 1.0, mass)  # but a row of NaN stays one
    _put(out + far * q_len * E, total / mass[:, None], i, q_len, E, BLOCK_E)
    rest = tl.log(mass)
    tl.store(tops + far * q_len + i, top, mask=i < q_len)
    tl.store(rests + far * q_len + i, rest, mask=i < q_len)
    tl.store(zetas + far * q_len + i, top + rest, mask=i < q_len)


@_jit
def _screen(
    q, k, alpha, tops, rests, live,
    slopes, table, table_b, table_h, table_i, table_j, scale, first, left, right,
    heads, group, q_len, k_len,
    ALIBI: constexpr, TABLE: constexpr, LIMITED: constexpr, D: constexpr,
    BLOCK_D: constexpr, BLOCK_I: constexpr, BLOCK_J: constexpr,
    ORDER: constexpr, UPCAST: constexpr,
):  # fmt: skip
    """Tops, a lower bound of `rest`, and the pairs of blocks that have weight at a lower one."""
    blocks = tl.cdiv(q_len, BLOCK_I)
    z = tl.program_id(0) // blocks
    number = blocks - 1 - tl.program_id(0) % blocks
    start = number * BLOCK_I
    far = z.to(tl.int64)
    k += far // group * k_len * D
    i = start + tl.arange(0, BLOCK_I)
    a, near = _order(alpha, z, ORDER)
    queries = _tile(q + far * q_len * D, i, q_len, D, BLOCK_D)
    most = tl.full([BLOCK_I, BLOCK_J], -float("inf"), tl.float32)
    low, high = 0, tl.cdiv(k_len, BLOCK_J)
    if LIMITED:
        low, high = _key_blocks(start, first, left, right, k_len, BLOCK_I, BLOCK_J)
    for block in range(low, high):
        j = block * BLOCK_J + tl.arange(0, BLOCK_J)
        keys = _tile(k, j, k_len, D, BLOCK_D)
        theta = _theta(
            _dot(queries, tl.trans(keys), UPCAST), i[:, None], j[None, :], z,
            slopes, table, table_b, table_h, table_i, table_j,
            scale, first, left, right, heads, q_len, k_len, ALIBI, TABLE, LIMITED,
        )  # fmt: skip
        most = tl.maximum(most, theta)
    top = tl.max(most, 1)
    shift = _finite(top)

    most -= shift[:, None]
    rest = tl.zeros([BLOCK_I], tl.float32) + (near - 1)  # the soft maximum of the top alone
    for _ in range(5):
        p, u = _weights(most, rest[:, None], a, near, ORDER)
        rest += _step(tl.sum(p, 1), tl.sum(u, 1), a, ORDER)
    rest -= 2e-6 * a  # rounding must not lift it above the root

    mass = tl.zeros([BLOCK_I], tl.float32)
    total = tl.zeros([BLOCK_I], tl.float32)
    live += (far * blocks + number) * tl.cdiv(k_len, BLOCK_J)
    for block in range(low, high):
        j = block * BLOCK_J + tl.arange(0, BLOCK_J)
        keys = _tile(k, j, k_len, D, BLOCK_D)
        theta = _theta(
            _dot(queries, tl.trans(keys), UPCAST), i[:, None], j[None, :], z,
            slopes, table, table_b, table_h, table_i, table_j,
            scale, first, left, right, heads, q_len, k_len, ALIBI, TABLE, LIMITED,
        )  # fmt: skip
        p, u = _weights(theta - shift[:, None], rest[:, None], a, near, ORDER)
        tl.store(live + block, (tl.max((p != 0).to(tl.int32)) != 0).to(tl.uint8))
        mass += tl.sum(p, 1)
        total += tl.sum(u, 1)
    rest += _step(mass, total, a, ORDER)
    tl.store(tops + far * q_len + i, top, mask=i < q_len)
    tl.store(rests + far * q_len + i, rest, mask=i < q_len)


@_jit
def _list(live, index, count, rows, row, columns, column, BLOCK: constexpr):
    """Where every row of `live` isn't 0, and how often; `row` and `column` are its strides."""
    program = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < columns
    start = program // rows * rows * columns + program % rows * row
    on = tl.load(live + start + place * column, mask=inside, other=0).to(tl.int32)
    tl.store(index + program * columns + tl.cumsum(on, 0) - 1, place, mask=on != 0)
    tl.store(count + program, tl.sum(on, 0))


@_jit
def _entmax(
    q, k, v, out, zetas, mean, alpha, tops, rests, totals, live, index, count,
    slopes, table, table_b, table_h, table_i, table_j, scale, first, left, right,
    heads, group, q_len, k_len,
    ALIBI: constexpr, TABLE: constexpr, LIMITED: constexpr, D: constexpr, E: constexpr,
    BLOCK_D: constexpr, BLOCK_E: constexpr, BLOCK_I: constexpr, BLOCK_J: constexpr,
    ORDER: constexpr, UPCAST: constexpr, WITH_MEAN: constexpr,
):  # fmt: skip
    """`rest` to the last digit, the output and the mean of the values weighted by the responses.

    Also takes out of `live` what has no weight in the end.
    """
    blocks = tl.cdiv(q_len, BLOCK_I)
    z = tl.program_id(0) // blocks
    number = blocks - 1 - tl.program_id(0) % blocks
    far = z.to(tl.int64)
    k += far // group * k_len * D
    v += far // group * k_len * E
    i = number * BLOCK_I + tl.arange(0, BLOCK_I)
    a, near = _order(alpha, z, ORDER)
    queries = _tile(q + far * q_len * D, i, q_len, D, BLOCK_D)
    top = tl.load(tops + far * q_len + i, mask=i < q_len, other=-float("inf"))
    rest = tl.load(rests + far * q_len + i, mask=i < q_len, other=0.0)
    shift = _finite(top)
    length = tl.load(count + far * blocks + number)
    live += (far * blocks + number) * tl.cdiv(k_len, BLOCK_J)
    index += (far * blocks + number) * tl.cdiv(k_len, BLOCK_J)
    # Up to alpha = 1.5 every step doubles the digits, so that a small one need not be checked.
    enough = tl.where(a <= 0.5, 1e-5, 1e-6)
    moving = 1
    steps = 0
    while moving != 0:
        mass = tl.zeros([BLOCK_I], tl.float32)
        total = tl.zeros([BLOCK_I], tl.float32)
        for n in range(0, length):
            j = tl.load(index + n) * BLOCK_J + tl.arange(0, BLOCK_J)
            keys = _tile(k, j, k_len, D, BLOCK_D)
            theta = _theta(
                _dot(queries, tl.trans(keys), UPCAST), i[:, None], j[None, :], z,
                slopes, table, table_b, table_h, table_i, table_j,
                scale, first, left, right, heads, q_len, k_len, ALIBI, TABLE, LIMITED,
            )  # fmt: skip
            p, u = _weights(theta - shift[:, None], rest[:, None], a, near, ORDER)
            mass += tl.sum(p, 1)
            total += tl.sum(u, 1)
        step = _step(mass, total, a, ORDER)
        size = tl.where(near != 0, tl.maximum(rest, a), tl.abs(rest))
        rest += step
        steps += 1
        moving = tl.max((tl.abs(step) > enough * size).to(tl.int32)) * (steps < 50).to(tl.int32)

    mass = tl.zeros([BLOCK_I], tl.float32)
    total = tl.zeros([BLOCK_I], tl.float32)
    sum_p = tl.zeros([BLOCK_I, BLOCK_E], tl.float32)
    sum_u = tl.zeros([BLOCK_I, BLOCK_E], tl.float32)
    for n in range(0, length):
        block = tl.load(index + n)
        j = block * BLOCK_J + tl.arange(0, BLOCK_J)
        keys = _tile(k, j, k_len, D, BLOCK_D)
        theta = _theta(
            _dot(queries, tl.trans(keys), UPCAST), i[:, None], j[None, :], z,
            slopes, table, table_b, table_h, table_i, table_j,
            scale, first, left, right, heads, q_len, k_len, ALIBI, TABLE, LIMITED,
        )  # fmt: skip
        p, u = _weights(theta - shift[:, None], rest[:, None], a, near, ORDER)
        tl.store(live + block, (tl.max((p != 0).to(tl.int32)) != 0).to(tl.uint8))
        values = _tile(v, j, k_len, E, BLOCK_E)
        mass += tl.sum(p, 1)
        sum_p += _dot(p.to(values.dtype), values, UPCAST)
        if WITH_MEAN:
            total += tl.sum(u, 1)
            sum_u += _dot(u.to(values.dtype), values, UPCAST)
    mass = tl.where(mass == 0, 1.0, mass)
    _put(out + far * q_len * E, sum_p / mass[:, None], i, q_len, E, BLOCK_E)
    if WITH_MEAN:
        total = tl.where(total == 0, 1.0, total)
        _put(mean + far * q_len * E, sum_u / total[:, None], i, q_len, E, BLOCK_E)
        tl.store(totals + far * q_len + i, total, mask=i < q_len)
    tl.store(rests + far * q_len + i, rest, mask=i < q_len)
    tl.store(zetas + far * q_len + i, top + (rest + (1 - near)) / a, mask=i < q_len)


# ---------------------------------------------------------------- backward


@_jit
def _queries(
    q, k, v, grad_out, grad_zeta, mean, alpha, tops, rests, totals, index, count,
    grad_q, deltas, grad_alpha,
    slopes, table, table_b, table_h, table_i, table_j, scale, first, left, right,
    heads, group, q_len, k_len,
    ALIBI: constexpr, TABLE: constexpr, LIMITED: constexpr, D: constexpr, E: constexpr,
    BLOCK_D: constexpr, BLOCK_E: constexpr, BLOCK_I: constexpr, BLOCK_J: constexpr,
    ORDER: constexpr, UPCAST: constexpr, WITH_ALPHA: constexpr,
):  # fmt: skip
    """Gradients of queries and of alpha, the latter block by block; delta for `_keys`."""
    blocks = tl.cdiv(q_len, BLOCK_I)
    z = tl.program_id(0) // blocks
    number = blocks - 1 - tl.program_id(0) % blocks
    start = number * BLOCK_I
    far = z.to(tl.int64)
    k += far // group * k_len * D
    v += far // group * k_len * E
    i = start + tl.arange(0, BLOCK_I)
    a, near = _order(alpha, z, ORDER)
    queries = _tile(q + far * q_len * D, i, q_len, D, BLOCK_D)
    upstream = _tile(grad_out + far * q_len * E, i, q_len, E, BLOCK_E)
    means = _tile(mean + far * q_len * E, i, q_len, E, BLOCK_E)
    top = tl.load(tops + far * q_len + i, mask=i < q_len, other=-float("inf"))
    rest = tl.load(rests + far * q_len + i, mask=i < q_len, other=0.0)
    shift = _finite(top)
    moved = tl.load(grad_zeta + far * q_len + i, mask=i < q_len, other=0.0)
    if ORDER != 1:
        moved /= tl.load(totals + far * q_len + i, mask=i < q_len, other=1.0)
    delta = tl.sum(upstream.to(tl.float32) * means.to(tl.float32), 1) - moved
    tl.store(deltas + far * q_len + i, delta, mask=i < q_len)

    total = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    slope = tl.zeros([BLOCK_I], tl.float32)
    low, high = 0, tl.cdiv(k_len, BLOCK_J)
    if ORDER != 1:
        high = tl.load(count + far * blocks + number)
        index += (far * blocks + number) * tl.cdiv(k_len, BLOCK_J)
    elif LIMITED:
        low, high = _key_blocks(start, first, left, right, k_len, BLOCK_I, BLOCK_J)
    for n in range(low, high):
        block = n
        if ORDER != 1:
            block = tl.load(index + n)
        j = block * BLOCK_J + tl.arange(0, BLOCK_J)
        keys = _tile(k, j, k_len, D, BLOCK_D)
        values = _tile(v, j, k_len, E, BLOCK_E)
        theta = _theta(
            _dot(queries, tl.trans(keys), UPCAST), i[:, None], j[None, :], z,
            slopes, table, table_b, table_h, table_i, table_j,
            scale, first, left, right, heads, q_len, k_len, ALIBI, TABLE, LIMITED,
        )  # fmt: skip
        p, u = _weights(theta - shift[:, None], rest[:, None], a, near, ORDER)
        g = _dot(upstream, tl.trans(values), UPCAST)
        grad = tl.where(u == 0, 0.0, u * (g - delta[:, None]))
        total += _dot(grad.to(keys.dtype), keys, UPCAST)
        if WITH_ALPHA:
            slope -= tl.sum(grad * _drift(p, a), 1)
    _put(grad_q + far * q_len * D, total * scale, i, q_len, D, BLOCK_D)
    if WITH_ALPHA:
        tl.store(grad_alpha + far * blocks + number, tl.sum(slope, 0))


@_jit
def _keys(
    q, k, v, grad_out, alpha, tops, rests, deltas, index, count,
    grad_k, grad_v, grad_slopes, grad_table, grad_b, grad_h,
    slopes, table, table_b, table_h, table_i, table_j, scale, first, left, right,
    heads, group, q_len, k_len,
    ALIBI: constexpr, TABLE: constexpr, LIMITED: constexpr, D: constexpr, E: constexpr,
    BLOCK_D: constexpr, BLOCK_E: constexpr, BLOCK_I: constexpr, BLOCK_J: constexpr,
    ORDER: constexpr, UPCAST: constexpr, WITH_SLOPES: constexpr, WITH_TABLE: constexpr,
):  # fmt: skip
    """Gradients of keys and values, of slopes block by block, and of the table.

    WITH_TABLE 1: of a table that is one row per head. 2: of one with a row for every query.
    """
    blocks, rows = tl.cdiv(k_len, BLOCK_J), tl.cdiv(q_len, BLOCK_I)
    shared = tl.program_id(0) // blocks
    number = tl.program_id(0) % blocks
    start = number * BLOCK_J
    j = start + tl.arange(0, BLOCK_J)
    far = shared.to(tl.int64) * k_len
    keys = _tile(k + far * D, j, k_len, D, BLOCK_D)
    values = _tile(v + far * E, j, k_len, E, BLOCK_E)
    sum_k = tl.zeros([BLOCK_J, BLOCK_D], tl.float32)
    sum_v = tl.zeros([BLOCK_J, BLOCK_E], tl.float32)
    for member in range(0, group):
        z = shared * group + member
        head = z.to(tl.int64)
        a, near = _order(alpha, z, ORDER)
        slope = tl.zeros([BLOCK_J], tl.float32)
        term = tl.zeros([BLOCK_J], tl.float32)
        low, high = 0, rows
        place = index
        if ORDER != 1:
            high = tl.load(count + head * blocks + number)
            place = index + (head * blocks + number) * rows
        elif LIMITED:
            low, high = _query_blocks(start, first, left, right, q_len, BLOCK_I, BLOCK_J)
        for n in range(low, high):
            block = n
            if ORDER != 1:
                block = tl.load(place + n)
            i = block * BLOCK_I + tl.arange(0, BLOCK_I)
            queries = _tile(q + head * q_len * D, i, q_len, D, BLOCK_D)
            upstream = _tile(grad_out + head * q_len * E, i, q_len, E, BLOCK_E)
            top = tl.load(tops + head * q_len + i, mask=i < q_len, other=-float("inf"))
            rest = tl.load(rests + head * q_len + i, mask=i < q_len, other=0.0)
            delta = tl.load(deltas + head * q_len + i, mask=i < q_len, other=0.0)
            # A row per key, a column per query: what the sums over queries need.
            theta = _theta(
                _dot(keys, tl.trans(queries), UPCAST), i[None, :], j[:, None], z,
                slopes, table, table_b, table_h, table_i, table_j,
                scale, first, left, right, heads, q_len, k_len, ALIBI, TABLE, LIMITED,
            )  # fmt: skip
            p, u = _weights(theta - _finite(top)[None, :], rest[None, :], a, near, ORDER)
            sum_v += _dot(p.to(upstream.dtype), upstream, UPCAST)
            g = _dot(values, tl.trans(upstream), UPCAST)
            grad = tl.where(u == 0, 0.0, u * (g - delta[None, :]))
            sum_k += _dot(grad.to(queries.dtype), queries, UPCAST)
            if WITH_SLOPES:
                distance = tl.abs(j[:, None] - i[None, :] - first).to(tl.float32)
                slope -= tl.sum(grad * distance, 1)
            if WITH_TABLE == 1:
                term += tl.sum(grad, 1)
            if WITH_TABLE == 2:
                corner = (z // heads).to(tl.int64) * grad_b + (z % heads).to(tl.int64) * grad_h
                entry = corner + i[None, :].to(tl.int64) * k_len + j[:, None]
                inside = (i[None, :] < q_len) & (j[:, None] < k_len)
                tl.atomic_add(grad_table + entry, grad, mask=inside)
        if WITH_SLOPES:
            tl.store(grad_slopes + head * blocks + number, tl.sum(slope, 0))
        if WITH_TABLE == 1:
            tl.store(grad_table + head * k_len + j, term, mask=j < k_len)
    _put(grad_k + far * D, sum_k * scale, j, k_len, D, BLOCK_D)
    _put(grad_v + far * E, sum_v, j, k_len, E, BLOCK_E)


# ---------------------------------------------------------------- operators


INTERPRETED = triton is not None and not isinstance(_tile, triton.runtime.jit.JITFunction)

if INTERPRETED:

    def wrap_triton(kernel):
        """What the interpreter runs is no kernel to `torch.library`."""
        return kernel
else:
    from torch.library import wrap_triton


_WARPS, _STAGES = 8, 2  # of a program; loads that are under way in its loops


def _blocks(width, dtype):
    """Queries and keys of a block: as many as a program has registers for.

    float32 is multiplied without tensor cores, which would round it to 10 bits.
    """
    if dtype == torch.float32:
        return 32, 32 if width <= 128 else 16
    return (128, 64) if width <= 64 else (64, 64) if width <= 128 else (64, 32)


def _width(d):
    return max(16, 1 << (d - 1).bit_length()) if d else 16


class _Launch:
    """What all kernels of one call are told, and the call of one of them."""

    def __init__(self, q, k, v, slopes, table, order, heads, scale, first, left, right):
        (z, q_len, d), (shared, k_len, e) = q.shape, v.shape
        block_i, block_j = _blocks(max(_width(d), _width(e)), q.dtype)
        self.shape = z, -(-q_len // block_i), -(-k_len // block_j)
        # What the interpreter runs can't be traced: there the operators are opaque instead.
        self.quiet = z == 0 or INTERPRETED and isinstance(q, FakeTensor)
        strides = (0, 0, 0, 0)
        if table is not None:
            strides = [step if size > 1 else 0 for size, step in zip(table.shape, table.stride())]
        self.scores = dict(
            slopes=q if slopes is None else slopes, table=q if table is None else table,
            table_b=strides[0], table_h=strides[1], table_i=strides[2], table_j=strides[3],
            scale=scale, first=first, left=left, right=right, heads=heads,
            group=max(1, z // max(1, shared)), q_len=q_len, k_len=k_len,
            ALIBI=slopes is not None,
            TABLE=0 if table is None else 2 if table.dtype.is_floating_point else 1,
            LIMITED=min(left, right) < _FAR, D=d, BLOCK_D=_width(d),
            BLOCK_I=block_i, BLOCK_J=block_j, UPCAST=INTERPRETED and q.dtype == torch.bfloat16,
        )  # fmt: skip
        self.values = dict(E=e, BLOCK_E=_width(e))
        self.order = dict(ORDER=order if order in (1.0, 1.5, 2.0) else 0)

    def __call__(self, kernel, programs, *tensors, **constants):
        if programs and not self.quiet:
            options = dict(num_warps=_WARPS, num_stages=_STAGES)
            kernel[(programs,)](*tensors, **constants, **options)

    def lists(self, live, by_key):
        """For every block of queries, or of keys, the blocks of the others with any weight."""
        z, rows, columns = self.shape
        row, column = columns, 1
        if by_key:
            (rows, columns), (row, column) = (columns, rows), (column, row)
        index = live.new_empty((z, rows, columns), dtype=torch.int32)
        count = live.new_zeros((z, rows), dtype=torch.int32)
        self(
            wrap_triton(_list), z * rows, live, index, count, rows, row, columns, column,
            BLOCK=_width(columns),
        )  # fmt: skip
        return index, count


def _operator(name):
    """Register a function of tensors under this name, where there is Triton."""

    def register(function):
        if triton is None:
            return function
        if INTERPRETED:
            operator = torch.library.custom_op(name, function, mutates_args=())
            operator.register_fake(function)
            return operator
        return torch.library.triton_op(name, function, mutates_args=())

    return register


@_operator("eotcourse::attention_forward")
def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, alpha: torch.Tensor,
    slopes: Optional[torch.Tensor], table: Optional[torch.Tensor],
    order: float, heads: int, scale: float, first: int, left: int, right: int, with_mean: bool,
) -> tuple[
    torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor,
    torch.Tensor,
]:  # fmt: skip
    """Outputs, soft maxima, and what `_backward` wants to know of them."""
    launch = _Launch(q, k, v, slopes, table, order, heads, scale, first, left, right)
    z, rows, columns = launch.shape
    out = v.new_zeros((*q.shape[:2], v.shape[2]))
    top, rest, zeta = (q.new_full(q.shape[:2], -math.inf, dtype=torch.float32) for _ in range(3))
    if order == 1:
        launch(
            wrap_triton(_softmax), z * rows, q, k, v, out, zeta, top, rest,
            **launch.scores, **launch.values,
        )  # fmt: skip
        nothing = out.new_empty(0)
        return out, zeta, nothing, top, rest, top.new_empty(0), nothing.to(torch.uint8)
    mean = torch.zeros_like(out) if with_mean else out.new_empty(0)
    total = torch.zeros_like(top) if with_mean else top.new_empty(0)
    live = q.new_zeros(launch.shape, dtype=torch.uint8)
    launch(
        wrap_triton(_screen), z * rows, q, k, alpha, top, rest, live,
        **launch.scores, **launch.order,
    )  # fmt: skip
    index, count = launch.lists(live, by_key=False)
    launch(
        wrap_triton(_entmax), z * rows, q, k, v, out, zeta, mean, alpha, top, rest, total, live,
        index, count, **launch.scores, **launch.values, **launch.order, WITH_MEAN=with_mean,
    )  # fmt: skip
    return out, zeta, mean, top, rest, total, live


@_operator("eotcourse::attention_backward")
def _backward(
    grad_out: torch.Tensor, grad_zeta: torch.Tensor,
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, alpha: torch.Tensor,
    slopes: Optional[torch.Tensor], table: Optional[torch.Tensor],
    mean: torch.Tensor, top: torch.Tensor, rest: torch.Tensor, total: torch.Tensor,
    live: torch.Tensor,
    order: float, heads: int, scale: float, first: int, left: int, right: int,
    with_alpha: bool, with_slopes: bool, with_table: bool,
) -> tuple[
    torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor
]:  # fmt: skip
    """Gradients of q, k, v, alpha, slopes and table; the last three empty unless asked for."""
    launch = _Launch(q, k, v, slopes, table, order, heads, scale, first, left, right)
    z, rows, columns = launch.shape
    shared, k_len, _ = v.shape
    by_query = by_key = (live, live)
    if order != 1:
        by_query, by_key = launch.lists(live, False), launch.lists(live, True)
    grad_q, grad_k, grad_v = (torch.zeros_like(x) for x in (q, k, v))
    delta = torch.zeros_like(top)
    grad_alpha = top.new_zeros((z, rows if with_alpha else 0))
    grad_slopes = top.new_zeros((z, columns if with_slopes else 0))
    kind = 0 if not with_table else 1 if table.shape[2] == 1 else 2
    grad_table = top.new_zeros(table.shape if kind == 2 else (z, k_len if kind else 0))
    steps = (0, 0)
    if kind == 2:
        steps = [s if n > 1 else 0 for n, s in zip(table.shape, grad_table.stride())]
    launch(
        wrap_triton(_queries), z * rows, q, k, v, grad_out, grad_zeta, mean, alpha, top, rest,
        total, *by_query, grad_q, delta, grad_alpha,
        **launch.scores, **launch.values, **launch.order, WITH_ALPHA=with_alpha,
    )  # fmt: skip
    launch(
        wrap_triton(_keys), shared * columns, q, k, v, grad_out, alpha, top, rest, delta, *by_key,
        grad_k, grad_v, grad_slopes, grad_table, steps[0], steps[1],
        **launch.scores, **launch.values, **launch.order,
        WITH_SLOPES=with_slopes, WITH_TABLE=kind,
    )  # fmt: skip
    if kind == 1:
        grad_table = grad_table.view(-1, heads, 1, k_len).sum_to_size(table.shape)
    return grad_q, grad_k, grad_v, grad_alpha.sum(1), grad_slopes.sum(1), grad_table


def _save(ctx, inputs, output):
    q, k, v, alpha, slopes, table, *numbers, with_mean = inputs
    out, _, mean, top, rest, total, live = output
    ctx.numbers, ctx.with_mean = numbers, with_mean
    mean = out if numbers[0] == 1 else mean
    ctx.save_for_backward(q, k, v, alpha, slopes, table, mean, top, rest, total, live)


def _pull(ctx, grad_out, grad_zeta, *_):
    q, k, v, alpha, slopes, table, *left = ctx.saved_tensors
    if grad_zeta is None:
        grad_zeta = left[1].new_zeros(q.shape[:2])
    if grad_out is None:
        grad_out = v.new_zeros((*q.shape[:2], v.shape[2]))
    # A query that may attend to nothing has a soft maximum that doesn't move.
    grad_zeta = torch.where(left[1] == -math.inf, 0.0, grad_zeta)
    needed = ctx.needs_input_grad[3:6]
    grads = _backward(
        grad_out.contiguous(), grad_zeta.contiguous(), q, k, v, alpha, slopes, table, *left,
        *ctx.numbers, *needed,
    )  # fmt: skip
    casts = [
        g.to(x.dtype) if on else None for g, x, on in zip(grads[3:], (alpha, slopes, table), needed)
    ]
    return *grads[:3], *casts, *[None] * 7


def _once(ctx, *grads):
    raise RuntimeError(
        "attention by Triton kernels can't be differentiated twice: use backend='dense'"
    )


if triton is not None:
    _forward.register_autograd(_pull, setup_context=_save)
    _backward.register_autograd(_once)


# ---------------------------------------------------------------- the call


def obstacle(tensors, order, prior, dropout_p, need_weights):
    """Why these tensors, this order and this prior can't go through the kernels, or None."""
    if triton is None:
        return "Triton isn't installed (pip install triton; on Linux, PyTorch for CUDA brings it)"
    if need_weights:
        return "need_weights=True needs all weights"
    if dropout_p:
        return f"it has no dropout, got dropout_p={dropout_p}"
    query = tensors["query"]
    if query.device.type != "cuda" and not INTERPRETED:
        return (
            f"its kernels run on CUDA devices, and query is on {query.device} (for tests, Triton "
            "interprets them on a CPU when TRITON_INTERPRET=1 is set at the start)"
        )
    if query.dtype == torch.float64:
        return "it computes in float32, and query is torch.float64"
    traced = torch.compiler.is_compiling()  # then neither transforms nor values can be seen
    if not traced and torch._C._are_functorch_transforms_active():
        return "it doesn't go through torch.func"
    if not traced and any(unpack_dual(x).tangent is not None for x in tensors.values()):
        return "it has no forward-mode derivative"
    widest = max(query.shape[-1], tensors["value"].shape[-1])
    if widest > _WIDEST:
        return f"it has room for {_WIDEST} features, got {widest}"
    if isinstance(order, torch.Tensor) and order.dim() > 1 and order.shape[-2] > 1:
        return f"it has one alpha per head at most, not one of shape {tuple(order.shape)}"
    if not traced:
        steepest = float(torch.as_tensor(order).detach().max())
        if steepest > 2:
            return f"it solves for alpha up to 2, got {steepest}"
    for part in () if prior is None else prior.parts():
        if type(part) not in (ALiBi, Causal, LogPrior, Padding, Window):
            return f"it doesn't know the prior {type(part).__name__}"
    return None


def attend(q, k, v, order, scale, mask, first, is_causal, prior, enable_gqa):
    """Outputs (*whole, q, e) and soft maxima (*lead, q), for what was checked.

    `lead` is what the leading dimensions of q and k broadcast to, `whole` those of v too.
    """
    q_len, (k_len, e) = q.shape[-2], v.shape[-2:]
    k, v, group = _grouped(q, k, v) if enable_gqa else (k, v, 1)
    leads = [x.shape[:-2] for x in (q, k, v)]
    leads[1:] = [(*x[:-1], x[-1] * group) if group > 1 else x for x in leads[1:]]
    lead, whole = torch.broadcast_shapes(*leads[:2]), torch.broadcast_shapes(*leads)
    heads = whole[-1] if whole else 1
    shared = (*whole[:-1], heads // group) if group > 1 else whole
    theta = torch.empty((), dtype=torch.float32, device=q.device).expand(*lead, q_len, k_len)
    slopes, table, left, right = _terms(prior, theta, mask, first)
    if is_causal:
        right = min(right, 0)
    per_head = dict(dtype=torch.float32, device=q.device)
    if isinstance(order, torch.Tensor):
        alpha = torch.where(order <= 2, order, math.nan).to(**per_head)
        order = 0.0
    else:
        alpha = torch.full((), order, **per_head)
    alpha = alpha.expand(*whole, 1, 1).flatten().contiguous()
    if slopes is not None:
        slopes = slopes.to(**per_head).expand(*whole, 1, 1).flatten().contiguous()
    if table is not None:
        table = _four(table, whole)
        if table.requires_grad and table.shape[2] > 1:
            table = table.expand(-1, -1, q_len, k_len)
    q, k, v = (
        x.expand(*sizes, *x.shape[-2:]).reshape(math.prod(sizes), *x.shape[-2:]).contiguous()
        for x, sizes in ((q, whole), (k, shared), (v, shared))
    )
    with_mean = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (q, k, v, alpha, slopes, table)
    )
    out, zeta, *_ = _forward(
        q, k, v, alpha, slopes, table, float(order), heads, float(scale), first, left, right,
        with_mean,
    )  # fmt: skip
    zeta = zeta.view(*whole, q_len)
    for dim in range(-len(whole), 0):  # heads that differ in their values have one soft maximum
        if len(lead) < -dim or lead[dim] != whole[dim]:
            zeta = zeta.narrow(dim - 1, 0, 1)
    return out.view(*whole, q_len, e), zeta.reshape(*lead, q_len)


def _grouped(q, k, v):
    """Keys and values of equally many heads, and how many heads of queries share one of them."""
    heads, of_k, of_v = (x.shape[-3] for x in (q, k, v))
    if of_k == of_v:
        return k, v, heads // max(1, of_k)
    return (*(x.repeat_interleave(heads // max(1, x.shape[-3]), -3) for x in (k, v)), 1)


def _terms(prior, theta, mask, first):
    """Slopes (heads, 1, 1) or None, mask or term or None, reach to the left and to the right.

    Of the scores `theta` only the shape is read.
    """
    slopes = keep = term = None
    left = right = _FAR
    if mask is not None and mask.dtype == torch.bool:
        keep = mask
    elif mask is not None:
        term = mask
    for part in () if prior is None else prior.parts():
        if isinstance(part, Causal):
            right = min(right, 0)
        elif isinstance(part, Window):
            left = left if part.left is None else min(left, part.left)
            right = right if part.right is None else min(right, part.right)
        elif isinstance(part, ALiBi):
            more = fitting(part.slopes[:, None, None], theta.shape)
            slopes = more if slopes is None else slopes + more
        elif isinstance(part, Padding):
            more = bias_of_rows(part, theta, first) == 0
            keep = more if keep is None else keep & more
        else:
            more = bias_of_rows(part, theta, first)
            term = more if term is None else term + more
    if keep is not None:
        keep = keep.view(torch.uint8) if term is None else torch.where(keep, term, -math.inf)
    return slopes, term if keep is None else keep, left, right


def _four(table, whole):
    """A table that broadcasts to (*whole, q, k), as (batch or 1, heads or 1, q or 1, k or 1)."""
    table = table.reshape((1,) * (len(whole) + 2 - table.dim()) + tuple(table.shape))
    if len(whole) < 2:
        return table.reshape((1,) * (2 - len(whole)) + tuple(table.shape))
    if math.prod(table.shape[:-3]) > 1:
        table = table.expand(*whole[:-1], *table.shape[-3:])
    return table.reshape(math.prod(table.shape[:-3]), *table.shape[-3:])
