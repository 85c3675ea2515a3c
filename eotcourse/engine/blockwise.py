r"""Exact attention in memory linear in the length, in plain PyTorch for a CPU.

A block of queries meets its keys in a buffer, which the next block uses again. What a row leaves
behind is one number, its soft maximum zeta, since a weight is a function of theta - zeta; and for
alpha > 1, where few weights aren't zero, these weights (`eotcourse._ragged` says how they are
found). With g = <dO_i, v_j>, the response u and the gradient w of zeta,

.. math:: d\theta_{ij} = u_{ij} (g_{ij} - m_i), \qquad
          m_i = (\langle u_i, g_i\rangle - w_i) / \langle u_i, 1\rangle

needs no pair of weight 0: the backward pass touches the weights that were kept and nothing else.
A block whose support isn't sparse is formed once more instead, and its weights read off zeta.

Prior art: online softmax (Milakov and Gimelshein, arXiv:1805.02867), FlashAttention (Dao et al.,
NeurIPS 2022), AdaSplash (Goncalves et al., arXiv:2502.12082), EntmaxKV (arXiv:2605.21649).
"""

import functools
import math
import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch.autograd.forward_ad import unpack_dual
from torch.nn import functional as F

from .. import _newton, _ragged
from ..priors import ALiBi, Causal, LogPrior, Padding, Window, bias_of_rows, fitting
from ..simplex import centred, centred_, dense_pullback, pullback

_BLOCK = 1 << 22
_PART = 1 << 19
_LEAST_PART = 64
_LEAST_ROWS = 192
_FUSED_ROWS = 2048
_FUSED_SPAN = 16
_FUSED_RANGE = 32.0
_NEAR = 16
_SHORT = 64
_DENSEST = 0.1
_LONGEST = 512


# ---------------------------------------------------------------- scaled scores, block by block


class Reach(NamedTuple):
    """Query i, at position first + i, may attend to the keys from -left to +right of it."""

    first: int
    left: float = math.inf
    right: float = math.inf

    def within(self, prior):
        """This reach and that of `Causal` or `Window`."""
        left, right = (None, 0) if isinstance(prior, Causal) else (prior.left, prior.right)
        left, right = (math.inf if x is None else x for x in (left, right))
        return self._replace(left=min(self.left, left), right=min(self.right, right))

    def keys(self, rows, k_len):
        """The range of keys that some query of the range `rows` may attend to."""
        low = max(0, rows.start + self.first - self.left)
        high = max(low, min(k_len, rows.stop + self.first + self.right))
        return slice(int(min(low, k_len)), int(min(high, k_len)))

    def limited(self):
        return min(self.left, self.right) < math.inf

    def exclude_(self, theta, block):
        """Write -inf where a query may not attend to a key that another one may."""
        _, rows, keys = block
        first = rows.start + self.first
        last = rows.stop - 1 + self.first
        if first + self.right < keys.stop - 1:
            part = slice(max(keys.start, int(first + self.right) + 1), keys.stop)
            later = _triangle(rows, part, first + int(self.right) - part.start + 1, True)
            theta[..., part.start - keys.start :].masked_fill_(later, -math.inf)
        if last - self.left > keys.start:
            part = slice(keys.start, min(keys.stop, int(last - self.left)))
            earlier = _triangle(rows, part, first - int(self.left) - part.start - 1, False)
            theta[..., : part.stop - keys.start].masked_fill_(earlier, -math.inf)


def _triangle(rows, keys, diagonal, upper):
    return _triangle_of(rows.stop - rows.start, keys.stop - keys.start, diagonal, upper)


@functools.lru_cache(8)
def _triangle_of(rows, columns, diagonal, upper):
    """The entries above or below a diagonal: neighbouring blocks have it in the same place."""
    whole = torch.ones(rows, columns, dtype=torch.bool)
    return whole.triu_(diagonal) if upper else whole.tril_(diagonal)


def _lag(rows, keys, first, dtype=torch.int64):
    """Position of the key minus position of the query, for every pair of a block."""
    i = torch.arange(rows.start + first, rows.stop + first, dtype=dtype)
    return torch.arange(keys.start, keys.stop, dtype=dtype) - i[:, None]


def matrix_of(x, lead, head):
    """The matrix, (q or 1, k or 1), of one head of `x`, which broadcasts to (*lead, q, k).

    >>> matrix_of(torch.arange(6).view(3, 1, 2), (5, 3), 4)
    tensor([[2, 3]])
    """
    x = x.reshape((1,) * (len(lead) + 2 - x.dim()) + tuple(x.shape))
    place = np.unravel_index(head, lead) if lead else ()
    return x[tuple(int(i) if size > 1 else 0 for i, size in zip(place, x.shape))]


def _add(theta, tile):
    """Add `tile`; where it is -inf the result is, whatever the score."""
    excluded = tile == -math.inf
    theta.add_(tile)
    if bool(excluded.any()):
        theta.masked_fill_(excluded, -math.inf)


class Block(NamedTuple):
    """Some queries of some heads, and the keys which these may attend to."""

    heads: slice
    rows: slice
    keys: slice

    def shape(self):
        return tuple(part.stop - part.start for part in self)

    def parts(self, number, q_len):
        """Numbered pieces small enough for a core's cache, and their places among the rows."""
        heads, rows, width = self.shape()
        step = max(_LEAST_PART, _PART // width)
        several = max(1, step // rows)
        for h in range(0, heads, several):
            for i in range(0, rows, step):
                part = Block(
                    slice(self.heads.start + h, min(self.heads.start + h + several, self.heads.stop)),
                    slice(self.rows.start + i, min(self.rows.start + i + step, self.rows.stop)),
                    self.keys,
                )
                first = h * rows + i
                yield number + h * q_len + i, part, slice(first, first + math.prod(part.shape()[:2]))


class Table:
    """A mask, or a term of which every number is given: it broadcasts to (*lead, q, k)."""

    linear = False

    def __init__(self, lead, values):
        self.lead, self.tensors = lead, (values,)

    def _tiles(self, values, block):
        for head in range(block.heads.start, block.heads.stop):
            matrix = matrix_of(values, self.lead, head)
            matrix = matrix[block.rows] if len(matrix) > 1 else matrix
            yield matrix[:, block.keys] if matrix.shape[1] > 1 else matrix

    def add(self, theta, block):
        for scores, tile in zip(theta, self._tiles(self.tensors[0], block)):
            if tile.dtype == torch.bool:
                scores.masked_fill_(~tile, -math.inf)
            else:
                _add(scores, tile)

    def pull(self, grads, grad_theta, block):
        for upstream, tile in zip(grad_theta, self._tiles(grads[0], block)):
            tile += upstream.sum_to_size(tile.shape)

    def of_keys(self, causal):
        """Whether the term is a finite number per key, and no row sees only very low ones.

        The kernel keeps one number for a row, which then has lost the digits of its scores.
        """
        values = self.tensors[0]
        if values.dtype == torch.bool or (values.dim() > 1 and values.shape[-2] > 1):
            return False
        low, high = values.detach().aminmax() if values.numel() else (values.new_zeros(()),) * 2
        return math.isfinite(low) and math.isfinite(high) and (
            not causal or float(high) - float(low) <= _FUSED_RANGE
        )

    def bias_of_keys(self, dtype):
        """The term as numbers (*lead, k) or fewer, or None where it isn't the same in all rows."""
        values = self.tensors[0].detach()
        if values.dim() > 1:
            if values.shape[-2] > 1:
                return None
            values = values.squeeze(-2)
        if values.dtype == torch.bool:
            return torch.zeros(values.shape, dtype=dtype).masked_fill_(~values, -math.inf)
        return values.to(dtype)

    def key_bias(self, block, centre):
        """The term relative to its largest number here, and this, before they are rounded."""
        width = block.shape()[2]
        tiles = self._tiles(self.tensors[0].double(), block)
        bias = torch.cat([x.expand(1, width) for x in tiles])
        top = bias.amax(-1, keepdim=True)
        return bias - top, top

    def pull_keys(self, grads, grad_bias, block, centre):
        self.pull(grads, grad_bias.unsqueeze(1), block)


class Linear:
    """ALiBi: minus slope times distance; `slopes`, shape (heads, 1, 1), has one of every head."""

    linear = True

    def __init__(self, slopes, first):
        self.tensors, self.first = (slopes,), first

    def of(self, heads):
        return Linear(self.tensors[0].index_select(0, heads), self.first)

    def at(self, first):
        return Linear(self.tensors[0], first)

    def repeat(self, times):
        return Linear(self.tensors[0].repeat_interleave(times, 0), self.first)

    def _distance(self, like, block):
        return _lag(block.rows, block.keys, self.first, like.dtype).abs_()

    def fill(self, theta, block, causal):
        """Write the term, as m (j - i) before the diagonal: no matrix of distances.

        Products with a power of two are exact, as differences of positions are, and if they come
        first, one pass is enough. Other slopes come last: m j and m i would be rounded by more
        than m (j - i).
        """
        slopes = self.tensors[0][block.heads].to(theta.dtype)
        first = block.rows.start + self.first
        i, j = (
            torch.arange(start, start + size, dtype=theta.dtype).expand(len(slopes), 1, -1)
            for start, size in zip((0, block.keys.start - first), block.shape()[1:])
        )
        exact = bool((torch.frexp(slopes).mantissa.abs() == 0.5).all())
        if exact:
            i, j = i * slopes.abs(), j * slopes.abs()
        torch.sub(j, i.mT, out=theta)
        if not causal:
            theta[..., max(0, first - block.keys.start) :].abs_().neg_()
        if not exact:
            theta.mul_(slopes)
        elif bool((slopes < 0).any()):
            theta.mul_(slopes.sign())

    def add(self, theta, block):
        slopes = self.tensors[0][block.heads].to(theta.dtype)
        theta.addcmul_(self._distance(theta, block), slopes, value=-1)

    def of_keys(self, causal):
        """Whether -m (i - j) = m (j - c) - m (i - c), of which the second part is the row's."""
        return causal

    def key_bias(self, block, centre):
        """The first part, with c = `centre`, and the second."""
        slopes = self.tensors[0][block.heads].squeeze(-1)
        i, j = (
            torch.arange(x.start, x.stop, dtype=slopes.dtype) for x in (block.rows, block.keys)
        )
        return slopes * (j - centre), -slopes * (i + self.first - centre)

    def pull_keys(self, grads, grad_bias, block, centre):
        j = torch.arange(block.keys.start, block.keys.stop, dtype=grad_bias.dtype)
        grads[0][block.heads] += (grad_bias @ (j - centre)).view(-1, 1, 1)

    def pull(self, grads, grad_theta, block):
        sums = grad_theta.flatten(1) @ self._distance(grad_theta, block).flatten()
        grads[0][block.heads] -= sums.view(-1, 1, 1)


class General:
    """Any other prior, asked for one tile at a time, in the backward pass again."""

    linear = False

    def __init__(self, lead, prior, first):
        self.lead, self.prior, self.first = lead, prior, first
        self.tensors = tuple(
            x for x in (*prior.parameters(), *prior.buffers()) if x.requires_grad
        )

    def _tiles(self, theta, block):
        queries = torch.arange(block.rows.start, block.rows.stop) + self.first
        keys = torch.arange(block.keys.start, block.keys.stop)
        *batch, heads = self.lead or (1,)
        for h in range(block.heads.start, block.heads.stop):
            bias = self.prior.bias(queries, keys, h % heads if self.lead else None)
            yield matrix_of(bias.to(theta.dtype), (*batch, 1), h // heads)

    def add(self, theta, block):
        for scores, tile in zip(theta, self._tiles(theta, block)):
            _add(scores, tile)

    def of_keys(self, causal):
        return False

    def bias_of_keys(self, dtype):
        return None

    def pull(self, grads, grad_theta, block):
        with torch.enable_grad():
            tiles = list(self._tiles(grad_theta, block))
        upstream = [g.sum_to_size(tile.shape) for g, tile in zip(grad_theta, tiles)]
        for grad, part in zip(grads, torch.autograd.grad(tiles, self.tensors, upstream)):
            grad += part


class Dropout(NamedTuple):
    """Which weights are dropped: drawn from the same seed whenever it is asked."""

    probability: float
    seed: int

    def factor(self, weights, number):
        """What the weights of a block, which has a number of its own, are multiplied by."""
        if self.probability == 1:
            return torch.zeros_like(weights)
        generator = torch.Generator().manual_seed(self.seed + number)
        kept = torch.rand(weights.shape, generator=generator) >= self.probability
        return kept.to(weights.dtype).div_(1 - self.probability)


class Call(NamedTuple):
    """What there is to know of a call besides its tensors."""

    scale: float
    reach: Reach
    terms: tuple
    dropout: Dropout
    windows: "Windows" = None

    def keys(self, heads, rows, k_len):
        """The range of keys that may have weight for some query of `rows` in some of `heads`."""
        keys = self.reach.keys(rows, k_len)
        if self.windows is None:
            return keys
        first, stop = (x[heads, rows] for x in self.windows)
        start = max(keys.start, int(first.min()))
        return slice(start, max(start, min(keys.stop, int(stop.max()))))


class Scores:
    """The scaled scores of a call, one block in memory.

    `crowded` says of each run of heads whether it gets smaller blocks, as rows hardly have zeros.
    """

    def __init__(self, q, k, call, crowded=None):
        self.q, self.k, self.call = q, k, call
        self.crowded = {} if crowded is None else crowded
        self._begin = next((term for term in call.terms if term.linear), None)
        self._others = [term for term in call.terms if term is not self._begin]
        self._memory = q.new_empty(0)

    def blocks(self, orders):
        """Order, whether crowded, numbered blocks: of neighbouring heads that have one order."""
        heads, q_len, k_len = *self.q.shape[:2], self.k.shape[1]
        row = max(1, k_len)
        windows = self.call.windows
        # A head alone, with its own window, has few scores in a block.
        least = max(1, min(_LEAST_ROWS if windows is None else 2 * _LEAST_ROWS, q_len))
        limited = windows is not None or self.call.reach.limited()
        alike = orders if windows is None else range(len(orders))
        for start, stop in _runs(alike, max(1, _BLOCK // max(1, least * row))):
            # Shorter blocks form fewer of the scores that a limited reach excludes.
            step = least if limited else max(least, _BLOCK // ((stop - start) * row))
            group = []
            for i in range(0, q_len, step):
                rows = slice(i, min(i + step, q_len))
                keys = self.call.keys(slice(start, stop), rows, k_len)
                if keys.start < keys.stop:
                    group.append((start * q_len + i, Block(slice(start, stop), rows, keys)))
            parts = [part[:2] for number, x in group for part in x.parts(number, q_len)]
            if start not in self.crowded:
                several = len(parts) > len(group)
                self.crowded[start] = several and self._crowded(orders[start], group)
            crowded = self.crowded[start]
            yield orders[start], crowded, parts if crowded else group

    def _crowded(self, order, group):
        """Whether a few queries from the middle have many keys with weight."""
        heads, rows, keys = group[len(group) // 2][1]
        heads, rows = (slice(x.start, min(x.start + n, x.stop)) for x, n in ((heads, 1), (rows, 16)))
        block = Block(heads, rows, keys)
        memory = self.form(block)[1]
        screened = _screen(memory, order)
        return screened is None or _keep(memory, order, screened, block, self.k.shape[1]) is None

    def form(self, block):
        """The scores of a block, and the memory they are in: -inf up to a `MULTIPLE` of columns."""
        heads, rows, width = block.shape()
        padded = width + -width % _ragged.MULTIPLE
        if self._memory.numel() < heads * rows * padded:
            self._memory = self.q.new_empty(heads * rows * padded)
        memory = self._memory[: heads * rows * padded].view(heads, rows, padded)
        theta = memory[..., :width]
        if padded > width:
            memory[..., width:] = -math.inf
        q = self.q[block.heads, block.rows] * self.call.scale
        k = self.k[block.heads, block.keys].mT
        if self._begin is None:
            torch.bmm(q, k, out=theta)
        else:
            self._begin.fill(theta, block, self.call.reach.right == 0)
            theta.baddbmm_(q, k)
        for term in self._others:
            term.add(theta, block)
        self.call.reach.exclude_(theta, block)
        return theta.view(-1, width), memory.view(-1, padded)


def _runs(values, most):
    """Ranges of equal neighbours in a list, of length `most` at most.

    >>> list(_runs([1, 1, 1, 2], 2))
    [(0, 2), (2, 3), (3, 4)]
    """
    start = 0
    for i in range(1, len(values) + 1):
        if i == len(values) or values[i] != values[start] or i == start + most:
            yield start, i
            start = i


# ---------------------------------------------------------------- the problem of every row


class Kept(NamedTuple):
    """The weights of a block that aren't zero, row by row: how many, at which keys, what.

    Keys are counted through all heads of the block.
    """

    count: torch.Tensor
    key: torch.Tensor
    weight: torch.Tensor


def _screen(memory, alpha):
    """What `_ragged.screen` says, or None where it says nothing about this alpha or width."""
    if alpha < _newton.NEAR or memory.shape[1] < _ragged.SHORTEST:
        return None
    return _ragged.screen(memory, alpha, 1.0)


def _keep(memory, alpha, screened, block, k_len):
    """`Kept` and soft maxima of a block, or None where its support isn't sparse."""
    width = memory.shape[1]
    mean = min(_DENSEST * width, _LONGEST)  # the latter for memory linear in the length
    support = _ragged.survivors(memory, alpha, 1.0, screened, width, mean)
    if support is None:
        return None
    on = torch.from_numpy(np.flatnonzero(support.p.numpy()))
    row = support.row.index_select(0, on)
    count = torch.bincount(row, minlength=len(memory))
    key = support.flat.index_select(0, on) - row * width + block.keys.start
    if len(count) > (rows := block.rows.stop - block.rows.start):
        key += torch.div(row, rows, rounding_mode="floor") * k_len
    return Kept(count, key.int(), support.p.index_select(0, on)), support.zeta.squeeze(-1)


class Rows(NamedTuple):
    """What a block leaves behind for each row, shapes (q, 1): its soft maximum is top + rest.

    Where a mask has added -1e30 to all of a row, the sum alone would have lost the rest.
    """

    top: torch.Tensor
    rest: torch.Tensor

    @classmethod
    def of(cls, zeta, block):
        """From the soft maxima alone."""
        zeta = zeta[block.heads, block.rows].reshape(-1, 1)
        return cls(zeta, torch.zeros_like(zeta))

    def zeta(self):
        return (self.top + self.rest).squeeze(-1)


def _level(p, zeta, alpha):
    """The mean cut of rows of scores, where a few of the rows say that zeros are few; or None."""
    rows, width = p.shape
    if not _newton.NEAR <= alpha <= 2 or width < _ragged.SHORTEST:
        return None
    some = p[:: max(1, rows // 16)].numpy()
    if np.count_nonzero(some > 0) < _DENSEST * some.size:
        return None
    level = float(zeta.mean()) - 1 / (alpha - 1)
    return level if math.isfinite(level) else None


def _from_level(theta, level, alpha):
    """Tops of rows, and a guess of kappa: as if they had that cut too.

    None where a row holds NaN or +inf, or nothing but -inf.
    """
    top = theta.amax(-1, keepdim=True)
    least, most = (float(x) for x in top.aminmax())
    if not -math.inf < least <= most < math.inf:
        return None
    a = alpha - 1
    # The largest weight is 1 / n at least and 1 at most.
    return top, ((level - top) * a).clamp_(-1, -(theta.shape[1] ** -a))


def _solve(theta, alpha, start, guessed):
    """Weights of a block up to a factor per row, their sums, and `Rows`; overwrites `theta`.

    `start` is the rows' tops and a lower bound of kappa, if there is one, or a guess.
    """
    top = theta.amax(-1, keepdim=True) if start is None else start[0]
    empty = top == -math.inf
    some = bool(empty.any())
    if some:
        top = torch.where(empty, 0.0, top)
    z = theta.sub_(top)
    if alpha == 1:
        p = z.exp_()
        mass = p.sum(-1, keepdim=True)
        rest = mass.log()
    elif start is None or alpha > 2:
        p, rest = _newton.solve(z, alpha)
        mass, rest = p.sum(-1, keepdim=True), rest.unsqueeze(-1)
    else:
        a, kappa = alpha - 1, start[1]
        if some:
            kappa = torch.where(empty, -1.0, kappa)
        if guessed:  # a step from anywhere ends below the root of a convex function, here above -1
            base = torch.add(-kappa, z, alpha=a).clamp_min_(0)
            kappa = kappa + _newton.newton_step(base, 1 / a, -1)
        base = torch.add(-kappa, z, alpha=a, out=z).clamp_min_(0)
        kappa = _newton.climb(base, kappa, alpha)
        p, _ = _newton.power(base, 1 / a)
        if some:  # where Newton's steps make NaN
            p.masked_fill_(empty, 0)
        mass, rest = p.sum(-1, keepdim=True), (1 + kappa) / a
    if some:
        mass.masked_fill_(empty, 1)
        rest.masked_fill_(empty, -math.inf)
    return p, mass, Rows(top, rest)


def _weights_of(theta, rows, alpha):
    """Weights of a block that was solved before; overwrites `theta`.

    Also their responses, or None where these cost more.
    """
    z = theta.sub_(rows.top)
    if alpha > 2:  # small weights need more digits than `Rows` has
        return _newton.solve(z, alpha)[0], None
    a = alpha - 1
    rest = rows.rest.clamp_min(0)  # of a row without keys it is -inf
    if alpha == 1:
        p = z.sub_(rest).exp_()
        return p, p
    if alpha < _newton.NEAR:
        p, t = _newton.near_weights(z.sub_(rest).clamp_min_(-2 / a), a)
        return p.masked_fill_(t <= -1, 0), None
    return _newton.power(torch.add(1 - a * rest, z, alpha=a, out=z).clamp_min_(0), 1 / a)


# ---------------------------------------------------------------- sums over kept pairs


def _ends(count):
    """Where every row of a ragged list begins, and where the last one ends."""
    return F.pad(torch.cumsum(count, 0), (1, 0)).int()


def _gather(weight, ends, index, table):
    """For every row of a ragged list, the sum of weights times rows of `table`."""
    return F.embedding_bag(
        index, table, ends, mode="sum", per_sample_weights=weight, include_last_offset=True
    )


def _products(a, b, ends, index):
    """<a_i, b_j> for the pairs (i, j) of a ragged list."""
    with warnings.catch_warnings():  # such tensors are in beta
        warnings.simplefilter("ignore")
        pairs = torch.sparse_csr_tensor(
            ends, index, a.new_zeros(len(index)), (len(a), len(b)), check_invariants=False
        )
        return torch.sparse.sampled_addmm(pairs, a, b.mT, beta=0.0).values()


def _by_key(ends, key, k_len):
    """A ragged list in the order of its keys: ends, the query of each pair, its old place."""
    from scipy.sparse import csr_array

    place = np.arange(len(key), dtype=np.int32)
    shape = (len(ends) - 1, k_len)
    other = csr_array((place, key.numpy(), ends.numpy()), shape=shape).tocsc()
    return tuple(map(torch.from_numpy, (other.indptr, other.indices, other.data)))


# ---------------------------------------------------------------- softmax by the fused kernel


class Fused:
    """Softmax with a bias per key at most, by PyTorch's fused kernel.

    A bias is one more feature: <(q, 1), (k, b)> = <q, k> + b. Below the diagonal ALiBi is one up
    to a constant of the row; with blocks of few queries, and distances counted from the middle of
    the block, it is small wherever there is weight, so that float32 is enough at any length.
    The kernel's gradient in that feature of the keys is the gradient in b. Where nobody asks for
    it and all rows have the same biases, these go to the kernel as a mask instead.
    """

    def __init__(self, q, k, v, call):
        self.call, self.sizes = call, (q.shape[2], v.shape[2])
        trained = any(x.requires_grad for term in call.terms for x in term.tensors)
        self.masked = call.reach.right == math.inf and not trained
        self.biased = len(call.terms) > 0 and not self.masked
        self.width = max(q.shape[2] + self.biased, v.shape[2])
        self.q, self.k, self.v = (self._pad(x) for x in (q, k, v))
        if self.biased:
            self.q[..., -1] = 1

    def _pad(self, x):
        missing = self.width - x.shape[2]
        return F.pad(x, (0, missing)) if missing else x

    @staticmethod
    def fits(q, k, v, call, orders):
        """Whether all this is a problem of that kernel, whose sums also mustn't overflow."""
        reach = call.reach
        causal = reach.right == 0 and reach.first >= 0
        return (
            min(*q.shape, *k.shape, v.shape[2]) > 0
            and all(order == 1 for order in orders)
            and call.dropout.probability == 0
            and call.scale > 0
            and reach.left == math.inf
            and (causal or reach.right == math.inf)
            and all(term.of_keys(causal) for term in call.terms)
            and _far_from_overflow(q, k, reach)
        )

    def blocks(self):
        """Queries with the keys they may attend to, and the middle of their positions."""
        heads, q_len, _ = self.q.shape
        reach = self.call.reach
        whole = reach.right == math.inf or (reach.first == 0 and not self.biased)
        alike = [0] * heads if self.call.windows is None else range(heads)
        # Few heads at a time: copies of them, with that feature, are all that is added to memory.
        for start, stop in _runs(alike, max(1, _PART // (q_len * self.width))):
            part = slice(start, stop)
            step = q_len if whole else self._rows(part)
            for i in range(0, q_len, step):
                rows = slice(i, min(i + step, q_len))
                block = Block(part, rows, self.call.keys(part, rows, self.k.shape[1]))
                yield block, (rows.start + rows.stop) // 2 + reach.first

    def _rows(self, heads):
        """Rows of a block: few enough for ALiBi to stay small between them."""
        steep = sum(abs(term.tensors[0][heads].detach()) for term in self.call.terms if term.linear)
        steep = float(torch.as_tensor(steep).max())
        most = _FUSED_SPAN / steep if 0 < steep < math.inf else math.inf
        return int(max(1, _FUSED_ROWS // 64, min(_FUSED_ROWS, most)))

    def _pieces(self, block):
        """Keys that every query may attend to; keys from the diagonal on, with a causal mask."""
        keys, diagonal = block.keys, block.rows.start + self.call.reach.first
        if self.call.reach.right == math.inf:
            diagonal = keys.stop
        if diagonal > keys.start:
            yield slice(keys.start, min(diagonal, keys.stop)), False
        if diagonal < keys.stop:
            yield slice(diagonal, keys.stop), True

    def _set_bias(self, block, centre):
        """Make the biases of a block the keys' last feature, or a mask; returns the rows' part."""
        self.mask = None
        if not self.call.terms:
            return 0.0
        bias, shift = zip(*(term.key_bias(block, centre) for term in self.call.terms))
        if self.masked:
            self.mask = sum(bias).to(self.q.dtype)[None, :, None]
        else:
            self.k[block.heads, block.keys, -1] = sum(bias) / self.call.scale
        return sum(shift)

    def forward(self, out, zeta):
        """Fills in outputs and soft maxima; returns the latter as the kernel has them."""
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        left = []
        for block, centre in self.blocks():
            shift = self._set_bias(block, centre)
            heads, rows, _ = block
            q = self.q[None, heads, rows]
            found = [
                kernel(q, self.k[None, heads, keys], self.v[None, heads, keys], 0.0, causal,
                       attn_mask=self.mask, scale=self.call.scale)
                for keys, causal in self._pieces(block)
            ]  # fmt: skip
            result, lse = found[0]
            for other, other_lse in found[1:]:
                both = torch.logaddexp(lse, other_lse)
                result = result * (lse - both).exp()[..., None]
                result, lse = result + other * (other_lse - both).exp()[..., None], both
            out[heads, rows] = result[0, ..., : self.sizes[1]]
            zeta[heads, rows] = lse[0] + shift
            left.append(lse)
        return left

    def backward(self, left, out, grad_out, gradients, pulls):
        """Adds to the gradients of q, k and v, and to those of the terms in `pulls`."""
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        out, grad_out = self._pad(out), self._pad(grad_out)
        dq, dk, dv = gradients
        d, e = self.sizes
        for (block, centre), lse in zip(self.blocks(), left):
            heads, rows, _ = block
            self._set_bias(block, centre)
            for keys, causal in self._pieces(block):
                gq, gk, gv = kernel(
                    grad_out[None, heads, rows], self.q[None, heads, rows],
                    self.k[None, heads, keys], self.v[None, heads, keys],
                    out[None, heads, rows], lse, 0.0, causal, attn_mask=self.mask,
                    scale=self.call.scale,
                )  # fmt: skip
                dq[heads, rows] += gq[0, ..., :d]
                dk[heads, keys] += gk[0, ..., :d]
                dv[heads, keys] += gv[0, ..., :e]
                grad_bias = gk[0, ..., -1] / self.call.scale
                for term, grads in pulls:
                    term.pull_keys(grads, grad_bias, Block(heads, rows, keys), centre)


def _far_from_overflow(a, b, reach):
    """Whether no product of rows can overflow: where one did, excluding it would make NaN.

    What no query may attend to isn't looked at.
    """
    b = b[:, reach.keys(slice(0, a.shape[1]), b.shape[1])]
    if 0 in (a.numel(), b.numel()):
        return True
    most = torch.finfo(a.dtype).max / 1e6
    return float(a.abs().amax()) * float(b.abs().amax()) * a.shape[2] < most


# ---------------------------------------------------------------- forward and backward


class Attend(torch.autograd.Function):
    """Outputs (b, q, e) and soft maxima (b, q) from q, k, v and the order alpha (b,) of heads."""

    @staticmethod
    def forward(ctx, call, q, k, v, alpha, *tensors):
        scores = Scores(q, k, call)
        out = v.new_zeros(*q.shape[:2], v.shape[2])
        zeta = q.new_full(q.shape[:2], -math.inf)
        orders = alpha.tolist()
        ctx.fused = Fused.fits(q, k, v, call, orders) and not ctx.needs_input_grad[4]
        if ctx.fused:
            left = Fused(q, k, v, call).forward(out, zeta)
            orders = []
        else:
            left = {}

        def put(block, out_here, zeta_here):
            shape = block.shape()[:2]
            out[block.heads, block.rows] = out_here.view(*shape, -1)
            zeta[block.heads, block.rows] = zeta_here.view(*shape)

        def drop(p, number):
            return p * call.dropout.factor(p, number) if call.dropout.probability else p

        for order, crowded, blocks in scores.blocks(orders):
            level = None
            for number, block in blocks:
                theta, memory = scores.form(block)
                found, start = None, None if level is None else _from_level(theta, level, order)
                guessed = start is not None
                if start is None and (screened := _screen(memory, order)):
                    found = _keep(memory, order, screened, block, k.shape[1])
                    start = screened.top, screened.kappa
                if found:
                    left[number], zeta_here = found
                    count, key, p = left[number]
                    values = v[block.heads].flatten(0, 1)
                    put(block, _gather(drop(p, number), _ends(count), key, values), zeta_here)
                    continue
                for number, part, place in block.parts(number, q.shape[1]):
                    here = start and tuple(x[place] for x in start)
                    p, mass, left[number] = _solve(theta[place], order, here, guessed)
                    zeta_here = left[number].zeta()
                    level = _level(p, zeta_here, order) if crowded else None
                    p = drop(p, number).view(*part.shape())
                    out_here = torch.bmm(p, v[part.heads, part.keys]).flatten(0, 1).div_(mass)
                    put(part, out_here, zeta_here)
        ctx.call, ctx.left, ctx.crowded = call, left, scores.crowded
        ctx.set_materialize_grads(False)
        # What a row of softmax leaves behind needs its output too.
        ctx.save_for_backward(q, k, v, alpha, zeta, out if ctx.fused else None, *tensors)
        return out, zeta

    @staticmethod
    def backward(ctx, grad_out, grad_zeta):
        with torch.no_grad():
            needed = ctx.needs_input_grad[5:]
            grads = _Backward(ctx, grad_out, grad_zeta).run(ctx.left, needed)
        if torch.is_grad_enabled():
            origins = (*ctx.saved_tensors, grad_out, grad_zeta)
            sentence = "attention by blocks can't be differentiated twice: use backend='dense'"
            grads = Once.apply(sentence, len(grads), *grads, *origins)
        return None, *grads


class Once(torch.autograd.Function):
    """The first tensors as they are; to differentiate them in any of the others is an error."""

    @staticmethod
    def forward(ctx, sentence, number, *tensors):
        ctx.sentence = sentence
        return tuple(x if x is None else x.view_as(x) for x in tensors[:number])

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError(ctx.sentence)


class _Backward:
    def __init__(self, ctx, grad_out, grad_zeta):
        (
            self.q, self.k, self.v, self.alpha, self.zeta, self.out, *self.tensors
        ) = ctx.saved_tensors  # fmt: skip
        self.call, self.crowded = ctx.call, ctx.crowded
        if grad_out is None:
            grad_out = self.v.new_zeros(*self.q.shape[:2], self.v.shape[2])
        self.grad_out, self.grad_zeta = grad_out.contiguous(), grad_zeta
        self.with_alpha = ctx.needs_input_grad[4]
        self.dq, self.dk, self.dv, self.dalpha = (
            torch.zeros_like(x) for x in (self.q, self.k, self.v, self.alpha)
        )
        self.finite = _far_from_overflow(self.grad_out, self.v, self.call.reach)

    def run(self, left, needed):
        """Gradients of q, k, v, alpha, and of those tensors of the terms that need one."""
        grads = [
            torch.zeros_like(x, dtype=torch.promote_types(x.dtype, self.q.dtype)) if on else None
            for x, on in zip(self.tensors, needed)
        ]
        self.pulls, begin = [], 0
        for term in self.call.terms:
            end = begin + len(term.tensors)
            if any(needed[begin:end]):
                self.pulls.append((term, grads[begin:end]))
            begin = end
        orders = self.alpha.tolist()
        if self.out is not None and self.grad_zeta is None:
            if self.finite:
                fused = Fused(self.q, self.k, self.v, self.call)
                gradients = self.dq, self.dk, self.dv
                fused.backward(left, self.out, self.grad_out, gradients, self.pulls)
                orders = []
        scores = Scores(self.q, self.k, self.call, self.crowded)
        for order, _, blocks in scores.blocks(orders):
            sparse = {}  # by heads: pieces of crowded blocks may have some of these only
            for number, block in blocks:
                if self.out is None and isinstance(left[number], Kept):
                    heads = block.heads.start, block.heads.stop
                    sparse.setdefault(heads, []).append((number, block, left[number]))
                    continue
                for number, part, _ in block.parts(number, self.q.shape[1]):
                    rows = Rows.of(self.zeta, part) if self.out is not None else left[number]
                    p, u = _weights_of(scores.form(part)[0], rows, order)
                    self._dense(p, u, order, number, part)
            for found in sparse.values():
                self._sparse(order, *zip(*found))
        grads = [g if g is None else g.to(x.dtype) for g, x in zip(grads, self.tensors)]
        return self.dq, self.dk, self.dv, self.dalpha if self.with_alpha else None, *grads

    def _dense(self, p, u, order, number, block):
        heads, rows, keys = block
        grad_out = self.grad_out[heads, rows]
        g = torch.bmm(grad_out, self.v[heads, keys].mT).flatten(0, 1)
        dropped = p
        if self.call.dropout.probability:
            factor = self.call.dropout.factor(p, number)
            g, dropped = g.mul_(factor), p * factor
        if not self.finite:
            g.masked_fill_(p == 0, 0)
        self.dv[heads, keys].baddbmm_(dropped.view(*block.shape()).mT, grad_out)
        grad_zeta = self._grad_zeta(block)
        if u is None or self.with_alpha:
            head = torch.arange(heads.start, heads.stop).repeat_interleave(rows.stop - rows.start)
            grad_theta = self._pull_rows(p, order, g, grad_zeta, head)
        else:
            grad_theta = centred_(g, u, grad_zeta.unsqueeze(-1))
        grad_theta = grad_theta.view(*block.shape())
        scale = self.call.scale
        self.dq[heads, rows] = torch.bmm(grad_theta, self.k[heads, keys]).mul_(scale)
        self.dk[heads, keys].baddbmm_(grad_theta.mT, self.q[heads, rows], alpha=scale)
        for term, grads in self.pulls:
            term.pull(grads, grad_theta, block)

    def _grad_zeta(self, block):
        """The gradient of the soft maxima, 0 where a row may attend to nothing."""
        zeta = self.zeta[block.heads, block.rows].flatten()
        if self.grad_zeta is None:
            return torch.zeros_like(zeta)
        grad_zeta = self.grad_zeta[block.heads, block.rows].flatten()
        return torch.where(zeta == -math.inf, 0.0, grad_zeta)

    def _sparse(self, order, numbers, blocks, kept):
        """The blocks of the same heads whose weights were kept, all at once."""
        heads, scale = blocks[0].heads, self.call.scale
        tensors = self.q, self.k, self.v, self.grad_out
        q, k, v, grad_out = (x[heads].flatten(0, 1) for x in tensors)
        count, key, p = (torch.cat(parts) for parts in zip(*kept))
        ends, row = _ends(count), torch.repeat_interleave(count)
        query = torch.arange(len(q)).view(-1, self.q.shape[1])
        query = torch.cat([query[:, block.rows].flatten() for block in blocks])
        q, grad_out = q.index_select(0, query), grad_out.index_select(0, query)
        g = _products(grad_out, v, ends, key)
        dropped = p
        if self.call.dropout.probability:
            pairs = zip(kept, numbers)
            factor = torch.cat([self.call.dropout.factor(x.weight, n) for x, n in pairs])
            g, dropped = g * factor, p * factor
        grad_zeta = torch.cat([self._grad_zeta(block) for block in blocks])
        head = torch.div(query, self.q.shape[1], rounding_mode="floor") + heads.start
        ds = self._pull_kept(p, order, g, grad_zeta, head, count, row)
        dq = self.dq[heads].flatten(0, 1)
        dq.index_copy_(0, query, _gather(ds, ends, key, k).mul_(scale))
        ends, other, place = _by_key(ends, key, len(k))
        dk, dv = self.dk[heads].flatten(0, 1), self.dv[heads].flatten(0, 1)
        dk.add_(_gather(ds.index_select(0, place), ends, other, q), alpha=scale)
        dv.add_(_gather(dropped.index_select(0, place), ends, other, grad_out))
        if self.pulls:
            self._pull_terms(blocks, ds, kept)

    def _pull_kept(self, p, order, g, grad_zeta, head, count, row):
        """The gradient of kept scores; that of alpha is added up."""
        if order > 2:  # see `_pull_rows`
            rank = torch.arange(len(p)) - (torch.cumsum(count, 0) - count).index_select(0, row)
            rows = p.new_zeros(2, len(count), int(count.max()))
            rows[0, row, rank], rows[1, row, rank] = p, g
            return self._pull_rows(rows[0], order, rows[1], grad_zeta, head)[row, rank]

        def centre(u, x, total):
            return centred(u, x, total, row_sums)

        def row_sums(x):
            return x.new_zeros(len(count)).index_add_(0, row, x).index_select(0, row)

        grad_zeta = grad_zeta.index_select(0, row)
        ds, slope = pullback(p, order, g, grad_zeta, self.with_alpha, centre)
        if self.with_alpha:
            self.dalpha.index_add_(0, head.index_select(0, row), slope.to(self.dalpha.dtype))
        return ds

    def _pull_rows(self, p, order, g, grad_zeta, head):
        """As `_pull_kept`, for rows of equal length: what responses of any size need."""
        if order <= 2:
            ds, slope = pullback(p, order, g, grad_zeta.unsqueeze(-1), self.with_alpha)
        else:
            alpha = p.new_full((len(p), 1), order)
            ds, slope = dense_pullback(p, alpha, g, grad_zeta, self.with_alpha)
        if self.with_alpha:
            self.dalpha.index_add_(0, head, slope.sum(-1).to(self.dalpha.dtype))
        return ds

    def _pull_terms(self, blocks, ds, kept):
        begin = 0
        for block, (count, key, _) in zip(blocks, kept):
            heads, rows, width = block.shape()
            tile = ds.new_zeros(heads * rows, width)
            place = key % self.k.shape[1] - block.keys.start
            end = begin + len(key)
            tile[torch.repeat_interleave(count), place] = ds[begin:end]
            for term, grads in self.pulls:
                term.pull(grads, tile.view(heads, rows, width), block)
            begin = end


# ---------------------------------------------------------------- what ALiBi lets a query see


class Windows(NamedTuple):
    """Keys that can have weight: from `first` to before `stop`, both of shape (heads, q_len)."""

    first: torch.Tensor
    stop: torch.Tensor

    @classmethod
    def around(cls, distance, call, k_len):
        """The keys up to a distance (heads, q_len) from each query."""
        position = torch.arange(distance.shape[1]) + call.reach.first
        return cls(*((position + x).clamp(0, k_len).long() for x in (-distance, distance + 1)))


@torch.no_grad()
def distances(q, k, v, call, alpha, trained):
    r"""The distance (heads, q_len) at which the last keys with weight can be; inf if unknown.

    No score but those of near keys is formed. With ALiBi of slope m, a key at distance t has the
    score a - m t at most, where a is the largest bias of a key plus \|q_i\| max_j \|k_j\| / tau,
    and zeta is at least the score b of any key: the weight is 0 where
    a - m t <= b - 1 / (alpha - 1). Softmax has no such end; there all keys farther away have
    together at most half a unit in the last place of the row's sum, which says nothing about
    values that aren't finite, nor about the gradient of alpha.

    None where no window is shorter than the keys: also where scores have other terms that aren't
    numbers per key.
    """
    slope = sum(term.tensors[0].flatten().double() for term in call.terms if term.linear)
    if not isinstance(slope, torch.Tensor) or 0 in (q.numel(), k.numel(), v.numel()):
        return None
    excess = _excess(alpha, slope, q.dtype)
    if trained or not all(math.isfinite(x) for x in v.aminmax()):
        excess.masked_fill_(alpha == 1, math.inf)
    least = excess / slope
    # A longer window saves less than it costs to find.
    heads = torch.nonzero((least > 0) & (2 * least < k.shape[1])).flatten().tolist()
    bias = _bias_of_keys(call.terms, k) if heads else None
    if bias is None:
        return None
    distance = torch.full(q.shape[:2], math.inf, dtype=torch.float64)
    for h in heads:
        distance[h] = _farthest(q[h], k[h], bias[h], float(slope[h]), float(excess[h]), call)
    return None if bool((distance == math.inf).all()) else distance


def _excess(order, slope, dtype):
    """How far below the row's largest score a key must be to have no weight, for every head."""
    # The sum of exp(-m t) over both sides, in half units in the last place.
    tail = -2 / torch.expm1(-slope) * (2 / torch.finfo(dtype).eps)
    return torch.where(order > 1, 1 / (order - 1).double(), tail.log())


def _bias_of_keys(terms, k):
    """The biases besides ALiBi, (heads, k_len), or None where they aren't the same in all rows."""
    total = k.new_zeros(k.shape[:2])
    for term in terms:
        if not term.linear:
            bias = term.bias_of_keys(k.dtype)
            if bias is None:
                return None
            total += bias.expand(*term.lead, k.shape[1]).reshape(total.shape)
    return total


def _farthest(q, k, bias, slope, excess, call):
    attended = bias != -math.inf  # NaN is nothing that a window could leave out
    keys = call.reach.keys(slice(0, len(q)), len(k))
    attended[: keys.start] = attended[keys.stop :] = False
    if not bool(attended.all()):  # what nobody attends to may be of any size
        k = torch.where(attended.unsqueeze(1), k, 0)
        bias = torch.where(attended, bias, -math.inf)
    near = _near_top(q, k, bias, slope, call)
    # Squares of small numbers can underflow: by so much the true lengths may be longer.
    least = math.sqrt(q.shape[1] * torch.finfo(q.dtype).tiny)
    size = (k.norm(dim=-1).amax() + least) * call.scale * (q.norm(dim=-1) + least)
    above = bias.amax()
    # What the rounding of the bounds and of the scores can add.
    rounding = (q.shape[1] + 8) * torch.finfo(q.dtype).eps
    slack = rounding * (size + above.abs() + near.abs() + excess)
    t = torch.floor((size + above - near + excess + slack).double() / slope)
    return t if float(t.min()) * 2 < len(k) else torch.full_like(t, math.inf)


def _near_top(q, k, bias, slope, call):
    """The largest score of every query among keys beside it: -inf if it may attend to none."""
    reach = call.reach
    rows, chunks = len(q), -(-len(q) // _NEAR)
    left, right = _NEAR - reach.first, chunks * _NEAR + reach.first - len(k)
    q = F.pad(q, (0, 0, 0, chunks * _NEAR - rows)).view(chunks, _NEAR, -1)
    k = F.pad(k, (0, 0, left, right)).unfold(0, 2 * _NEAR, _NEAR)
    bias = F.pad(bias, (left, right), value=-math.inf).unfold(0, 2 * _NEAR, _NEAR)
    lag = _lag(slice(0, _NEAR), slice(-_NEAR, _NEAR), 0)
    table = (-slope * lag.abs()).to(q.dtype)
    table.masked_fill_((lag < -reach.left) | (lag > reach.right), -math.inf)
    theta = torch.bmm(q, k).mul_(call.scale).add_(bias.unsqueeze(1)).add_(table)
    return theta.amax(-1).flatten()[:rows]


def apart(call, q, k, v, alpha, distance):
    """Attention by heads of similar windows, where a window is a small part of the keys."""
    groups = {}
    for h, (near, far) in enumerate(zip(*(x.tolist() for x in distance.aminmax(dim=-1)))):
        groups.setdefault((near == math.inf, _width(far, k.shape[1])), []).append(h)
    if call.dropout.probability or not all(term.linear for term in call.terms):
        groups = {(False, 0): list(range(len(q)))}
    found = []
    for (everything, width), heads in groups.items():
        own, tensors, part = call, (q, k, v, alpha), torch.tensor(heads)
        if len(groups) > 1:
            own = call._replace(terms=tuple(term.of(part) for term in call.terms))
            tensors = (x.index_select(0, part) for x in tensors)
        if not (everything or width):
            windows = Windows.around(distance[part], call, k.shape[1])
            own = own._replace(windows=windows)
        found.append(_folded(own, *tensors, width) if width else _apply(own, *tensors))
    place = torch.tensor([h for heads in groups.values() for h in heads]).argsort()
    return tuple(torch.cat(parts).index_select(0, place) for parts in zip(*found))


def _width(far, k_len):
    """A window for heads that see at most so far, rounded up by a quarter at most; or 0."""
    if not far * 5 <= k_len:
        return 0
    step = max(_SHORT // 4, 1 << max(0, int(far).bit_length() - 3))
    return max(1, -(-int(far) // step)) * step


def _folded(call, q, k, v, alpha, width):
    """Pieces of the queries, with the keys in their windows, are heads of their own."""
    heads, q_len, k_len = *q.shape[:2], k.shape[1]
    first, right = call.reach.first, int(min(width, call.reach.right))
    rows = max(_SHORT, width // 2)
    # Pieces whose keys all exist; what is left at both ends is attention to fewer keys.
    low = min(-(-max(0, width - first) // rows) * rows, q_len)
    high = max(low, min(q_len, k_len - first - right) // rows * rows)
    found = []
    for start, stop in ((0, low), (high, q_len)):
        if start == stop:
            continue
        keys = slice(max(0, start + first - width), max(0, stop + first + right))
        here = first + start - keys.start
        terms = tuple(term.at(here) for term in call.terms)
        own = call._replace(terms=terms, reach=call.reach._replace(first=here))
        found.append(_apply(own, q[:, start:stop], k[:, keys], v[:, keys], alpha))
    pieces = (high - low) // rows
    if pieces:
        keys = slice(low + first - width, high + first + right)
        k, v = (
            x[:, keys].unfold(1, width + rows + right, rows).mT.flatten(0, 1) for x in (k, v)
        )
        terms = tuple(term.repeat(pieces).at(width) for term in call.terms)
        own = call._replace(terms=terms, reach=call.reach._replace(first=width))
        q = q[:, low:high].reshape(heads * pieces, rows, -1)
        middle = _apply(own, q, k, v, alpha.repeat_interleave(pieces))
        found.insert(low > 0, [x.reshape(heads, high - low, *x.shape[2:]) for x in middle])
    return tuple(torch.cat(parts, 1) for parts in zip(*found))


def _apply(call, *tensors):
    return Attend.apply(call, *tensors, *(x for term in call.terms for x in term.tensors))


# ---------------------------------------------------------------- the call


_KNOWN = (ALiBi, Causal, LogPrior, Padding, Window)


def obstacle(tensors, alpha, prior):
    """Why these tensors, this order and this prior don't go block by block, or None."""
    if torch.compiler.is_compiling():
        return "torch.compile can't follow shapes that depend on the data"
    if torch._C._are_functorch_transforms_active():
        return "it doesn't go through torch.func"
    if any(unpack_dual(x).tangent is not None for x in tensors):
        return "it has no forward-mode derivative"
    for x in tensors:
        if x.device.type != "cpu":
            return f"it runs on a CPU, and a tensor is on {x.device}"
    if isinstance(alpha, torch.Tensor) and alpha.dim() > 1 and alpha.shape[-2] > 1:
        return f"it has one alpha per head at most, not one of shape {tuple(alpha.shape)}"
    for part in () if prior is None else prior.parts():
        if not isinstance(part, _KNOWN):
            position = torch.arange(1)
            with torch.enable_grad():
                trained = part.bias(position, position).requires_grad
            if trained and not General((), part, 0).tensors:
                name = type(part).__name__
                return f"the gradient of {name} isn't that of its parameters or buffers"
    return None


def attend(q, k, v, alpha, scale, mask, reach, prior, dropout_p):
    """Output and soft maxima for what `eotcourse.attention` has checked.

    `alpha` is a number, or a tensor that broadcasts to (*lead, 1, 1).
    """
    lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    whole = torch.broadcast_shapes(lead, v.shape[:-2])
    terms = [] if mask is None else [Table(whole, mask)]
    for part in () if prior is None else prior.parts():
        if isinstance(part, Causal | Window):
            reach = reach.within(part)
        else:
            theta = q.new_zeros(()).expand(*lead, q.shape[-2], k.shape[-2])
            terms.append(_term(part, theta, whole, reach.first))
    if not isinstance(alpha, torch.Tensor):
        alpha = torch.tensor(alpha, dtype=torch.float64)
    seed = int(torch.randint(1 << 62, ())) if 0 < dropout_p < 1 else 0
    call = Call(scale, reach, tuple(terms), Dropout(dropout_p, seed))
    heads = math.prod(whole)
    q, k, v = (
        x.expand(*whole, *x.shape[-2:]).reshape(heads, *x.shape[-2:]).contiguous()
        for x in (q, k, v)
    )
    alpha = alpha.expand(*whole, 1, 1).flatten()
    distance = distances(q, k, v, call, alpha, alpha.requires_grad)
    if distance is None:
        out, zeta = _apply(call, q, k, v, alpha)
    else:
        out, zeta = apart(call, q, k, v, alpha, distance)
    zeta = zeta.view(*whole, q.shape[1])
    for dim in range(-len(whole), 0):  # heads that differ in their values have one soft maximum
        if len(lead) < -dim or lead[dim] != whole[dim]:
            zeta = zeta.narrow(dim - 1, 0, 1)
    return out.view(*whole, *out.shape[1:]), zeta.reshape(*lead, zeta.shape[-1])


def _term(prior, theta, lead, first):
    """What the scores `theta`, of which only the shape is read, get from a prior."""
    if isinstance(prior, ALiBi):
        slopes = prior.slopes[:, None, None]
        fitting(slopes.expand(-1, *theta.shape[-2:]), theta.shape)
        slopes = fitting(slopes, (*theta.shape[:-2], 1, 1))
        return Linear(slopes.expand(*lead, 1, 1).reshape(-1, 1, 1), first)
    if isinstance(prior, LogPrior | Padding):
        return Table(lead, bias_of_rows(prior, theta, first))
    return General(lead, prior, first)
