r"""Exact attention over a sequence that is split over the ranks of a process group.

Queries stay where they are; keys and values go round a ring, each rank handing the block it holds
to the next while it works on it. After as many hops as there are ranks every query has met every
key, and no rank has held more than a few blocks. Three things are kept apart:

- `Ring`, which moves blocks and counts the bytes;
- `Scores`, which computes one tile of scaled scores from positions in the whole sequence;
- the merge rule, which is what a query remembers of the blocks it has met.

For softmax the memory is a soft maximum zeta and an output o. With another block's (zeta', o')

.. math:: (\zeta, o) \cdot (\zeta', o') = (Z,\; e^{\zeta - Z} o + e^{\zeta' - Z} o'), \qquad
          Z = \log(e^{\zeta} + e^{\zeta'}),

a commutative monoid with unit (-inf, 0). Nothing of the kind holds for alpha > 1. There, the soft
maximum over some keys is a lower bound of that over all, so the largest one met so far excludes
keys for good; what a query remembers is the scores of the keys that aren't excluded, and once
every block was met these are its support, which determines zeta. Where a query remembers too many
(alpha close to 1, or scores close together), Newton's method takes its sums over the ring instead,
from the same bound. A last round averages the values, now that every weight is known from zeta:
those with weight alone where they are few, on a CPU.

In the backward pass gradients of keys and values travel with them. For every alpha it is one
round, since the average of the values under the responses u = p^(2-alpha) is already known: with
it, :math:`d\theta_{ij} = u_{ij} \langle dO_i, v_j - \bar v_i\rangle` needs no sum over keys.

Prior art: the order of the computation is ring attention (Liu, Zaharia and Abbeel,
arXiv:2310.01889); the balanced layout for causal attention is from striped attention (Brandon et
al., arXiv:2311.09431) and its zigzag form in Llama 3 (arXiv:2407.21783); the monoid is online
softmax (Milakov and Gimelshein, arXiv:1805.02867).
"""

import functools
import hashlib
import math
import operator
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from .. import _newton
from ..one_sided import Aux, _check_inputs, _check_scale, _number, _order
from ..priors import Causal, Window, fitting
from ..regularizers import Shannon, Tsallis, member
from ..simplex import _shift, check_floating, pullback, working
from .blockwise import Once, Reach, _by_key, _ends, _gather, _products

LAYOUTS = ("contiguous", "zigzag")
_COLUMNS = 512
_TILE = {"cpu": 1 << 20, "cuda": 1 << 26}
_KEPT = 256
_GROUP = 8
_ROUNDS = 50
_CROWD = 0.12


# ------------------------------------------------------------------ communication


class Ring:
    """The ranks of a process group in a circle, and the bytes this one has sent.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        The default group when omitted.

    Attributes
    ----------
    rank, size : int
    sent : int
        Bytes of blocks that this rank has passed on. What is agreed upon before (a few numbers
        per call) is not in it.

    Raises
    ------
    RuntimeError
        If no process group exists, or this process isn't in it.

    Examples
    --------
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> Ring().rank, Ring().size, Ring().sent
    (0, 1, 0)
    >>> dist.destroy_process_group()
    """

    def __init__(self, group=None):
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError("no process group: call torch.distributed.init_process_group first")
        self.group = dist.group.WORLD if group is None else group
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        if self.rank < 0:
            raise RuntimeError("this process is not in the group")
        self.sent = 0

    def pass_on(self, block, length):
        """Start sending `block` to the next rank, and receiving one of `length` rows.

        `block` must not change before the result's `wait`, which returns what was received.
        """
        if self.size == 1:
            return _Hop([], block, block)
        arriving = block.new_empty(block.shape[:-2] + (length, block.shape[-1]))
        peers = ((dist.isend, block, self.rank + 1), (dist.irecv, arriving, self.rank - 1))
        moves = [
            dist.P2POp(way, x, dist.get_global_rank(self.group, peer % self.size), self.group)
            for way, x, peer in peers
            if x.numel()
        ]
        self.sent += block.numel() * block.element_size()
        return _Hop(dist.batch_isend_irecv(moves) if moves else [], block, arriving)

    def around(self, block, lengths):
        """Each rank's block and its owner, this rank's first; the next one travels meanwhile.

        `lengths` are those of all ranks' blocks.
        """
        for hop in range(self.size):
            owner = (self.rank - hop) % self.size
            more = hop + 1 < self.size
            if more:
                coming = self.pass_on(block, lengths[owner - 1])
            yield owner, block
            if more:
                block = coming.wait()

    def any(self, flag):
        """Whether `flag` is true on some rank."""
        if self.size == 1:
            return flag
        seen = torch.tensor([int(flag)], device=self._device())
        dist.all_reduce(seen, dist.ReduceOp.MAX, group=self.group)
        return bool(seen.item())

    def numbers(self, mine):
        """The lists of integers that all ranks give, in their order."""
        mine = torch.tensor(mine, dtype=torch.int64, device=self._device())
        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(everyone, mine, group=self.group)
        return [x.tolist() for x in everyone]

    def texts(self, mine):
        """What all ranks give, in their order."""
        everyone = [None] * self.size
        dist.all_gather_object(everyone, mine, group=self.group)
        return everyone

    def _device(self):
        if dist.get_backend(self.group) == "nccl":
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")


class _Hop(NamedTuple):
    """A block on its way."""

    works: list
    leaving: torch.Tensor
    arriving: torch.Tensor

    def wait(self):
        for work in self.works:
            work.wait()
        return self.arriving


# ------------------------------------------------------------------ layouts


def _runs(lengths, rank, layout, first=0):
    """The positions that `rank` holds, as ranges, when the ranks hold `lengths` of them."""
    if layout == "contiguous":
        start = first + sum(lengths[:rank])
        return [range(start, start + lengths[rank])]
    edge = _edges(sum(lengths), 2 * len(lengths))
    mirror = 2 * len(lengths) - 1 - rank
    return [range(first + edge[c], first + edge[c + 1]) for c in (rank, mirror)]


def _edges(n, parts):
    return [n * c // parts for c in range(parts + 1)]


def _zigzag_lengths(n, ranks):
    size = np.diff(_edges(n, 2 * ranks))
    return (size[:ranks] + size[: ranks - 1 : -1]).tolist()


def ring_positions(n, rank, ranks, layout="contiguous"):
    """The positions of a sequence that a rank holds, in the order in which it holds them.

    Parameters
    ----------
    n : int
        Length of the sequence.
    rank, ranks : int
        Which rank, of how many.
    layout : {"contiguous", "zigzag"}
        One part of the sequence each; or two of 2 x `ranks` parts, the r-th from the front and
        the r-th from the back. Under a causal mask a query far back has many keys and one in
        front has few: zigzag gives every rank the same amount of work, at every hop.

    Returns
    -------
    Tensor of int64
        ``x[..., ring_positions(n, rank, ranks, layout), :]`` is the rank's shard of x. Lengths
        differ by one at most (contiguous), or by two.

    Raises
    ------
    ValueError
        For a rank that isn't one of `ranks`, or a layout that isn't known.

    Examples
    --------
    >>> [ring_positions(8, rank, 2, "zigzag").tolist() for rank in range(2)]
    [[0, 1, 6, 7], [2, 3, 4, 5]]
    >>> [ring_positions(7, rank, 2).tolist() for rank in range(2)]
    [[0, 1, 2], [3, 4, 5, 6]]
    """
    _check_layout(layout)
    if not 0 <= rank < ranks:
        raise ValueError(f"rank must be between 0 and {ranks - 1}, got {rank}")
    runs = _runs(_split(n, ranks, layout), rank, layout)
    return torch.cat([torch.arange(run.start, run.stop) for run in runs])


def _split(n, ranks, layout):
    """How many positions each rank gets."""
    if layout == "zigzag":
        return _zigzag_lengths(n, ranks)
    return np.diff(_edges(n, ranks)).tolist()


def _check_layout(layout):
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")


class _Piece(NamedTuple):
    """Some of the positions a rank holds: where they lie in its shard, and in the sequence."""

    here: slice
    at: range


def _pieces(runs, size=None):
    """The runs one after the other, cut into at most `size` positions each."""
    start = 0
    for run in runs:
        step = size or max(1, len(run))
        for i in range(0, len(run), step):
            at = run[i : i + step]
            yield _Piece(slice(start + i, start + i + len(at)), at)
        start += len(run)


# ------------------------------------------------------------------ one tile of scores


class Scores:
    """Tiles of scaled scores; queries (N, G, r, d) share the keys (N, c, d) in groups of G.

    Positions are those in the whole sequence, so that mask and prior don't know about ranks.
    """

    def __init__(self, lead, groups, scale, causal, prior):
        self.lead, self.groups, self.scale = lead, groups, scale
        reach, rest = Reach(0, right=0 if causal else math.inf), []
        for part in [] if prior is None else prior.parts():
            if type(part) in (Causal, Window):
                reach = reach.within(part)
            else:
                rest.append(part)
        self.left, self.right = reach.left, reach.right
        self.prior = functools.reduce(operator.add, rest) if rest else None
        self._apart = (1, 1) if not lead else (*lead[:-1], lead[-1] // groups, groups)

    def visible(self, rows, keys):
        """Whether some query of a tile may attend to some key of it, as far as positions say."""
        return (
            keys.at[0] <= rows.at[-1] + self.right and keys.at[-1] >= rows.at[0] - self.left
        )

    def whole(self, rows, keys):
        """Whether every query of a tile may attend to every key of it, by their positions."""
        return keys.at[-1] <= rows.at[0] + self.right and keys.at[0] >= rows.at[-1] - self.left

    def fused(self, rows, keys):
        """Whether softmax of a tile is what a fused kernel computes, and if so, is it causal."""
        if self.prior is not None:
            return False, False
        square = rows.at == keys.at and self.right == 0 and self.left == math.inf
        return square or self.whole(rows, keys), square

    def tile(self, q, k, rows, keys, bias=None):
        """Scores (N, G, r, c) of the queries `rows` of `q` and the keys `keys` of `k`."""
        n, groups, r, c = *q.shape[:2], len(rows.at), len(keys.at)
        left = (q[:, :, rows.here] * self.scale).reshape(n, groups * r, q.shape[-1])
        theta = (left @ k[:, keys.here].mT).view(n, groups, r, c)
        if self.prior is not None:
            if bias is None:
                bias = self.bias(rows, keys, theta)
            bias = bias.to(theta.dtype)
            whole = theta.view(*self._apart, r, c)
            # Excluding by where holds even where a key of size 1e38 gave theta = inf.
            whole = torch.where(bias == -math.inf, -math.inf, whole + bias)
            theta = whole.view(n, groups, r, c)
        if not self.whole(rows, keys):
            lag = _range(keys.at, theta) - _range(rows.at, theta)[:, None]
            theta.masked_fill_((lag > self.right) | (lag < -self.left), -math.inf)
        return theta

    def bias(self, rows, keys, like):
        """The prior's term for a tile: (..., shared heads, groups, r, c), or what broadcasts."""
        bias = self.prior.bias(_range(rows.at, like), _range(keys.at, like))
        bias = fitting(bias, (*self.lead, len(rows.at), len(keys.at)))
        if bias.dim() == 2:
            return bias
        heads = (1, 1) if bias.shape[-3] == 1 else (-1, self.groups)
        return bias.reshape(*bias.shape[:-3], *heads, *bias.shape[-2:])

    def bias_gradients(self, grad_theta, bias, tensors):
        """Gradients in the prior's tensors, from those in a tile; `bias` has its graph."""
        grad = grad_theta.view(*self._apart, *grad_theta.shape[-2:]).sum_to_size(bias.shape)
        return torch.autograd.grad(bias, tensors, grad.to(bias.dtype), allow_unused=True)


def _range(at, like):
    return torch.arange(at.start, at.stop, device=like.device)


# ------------------------------------------------------------------ merge rules


class SoftMerge:
    """What a query remembers under softmax: soft maximum and output, merged by the monoid."""

    def __init__(self, q, width):
        self.zeta = q.new_full(q.shape[:3], -math.inf)
        self.out = q.new_zeros(*q.shape[:3], width)

    def add(self, here, zeta, out):
        """Merge what the rows `here` have met in one more block."""
        both = torch.logaddexp(self.zeta[:, :, here], zeta)
        finite = torch.where(both == -math.inf, 0.0, both)
        share, other = (self.zeta[:, :, here] - finite).exp(), (zeta - finite).exp()
        self.out[:, :, here].mul_(share[..., None]).addcmul_(out, other[..., None])
        self.zeta[:, :, here] = both


def _exceeding(x, cut):
    """Positions in the flattened `x` of what exceeds `cut`; on a CPU NumPy is faster at it."""
    if x.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(x.numpy() > cut.numpy()))
    return (x > cut).view(-1).nonzero().squeeze(1)


class SparseMerge:
    """What some queries remember for alpha > 1: a lower bound of zeta, and who may exceed it.

    `alpha` is a number, or a column with a row per query. `kept`, shape (rows, k), holds scores,
    padded with -inf; it is None where it had become longer than `most`.
    """

    def __init__(self, rows, alpha, most, like):
        self.alpha, self.most = alpha, most
        self.zeta = like.new_full((rows, 1), -math.inf)
        self.kept = like.new_empty(rows, 0)

    def add(self, theta):
        """Merge the scores (rows, c) of one more tile."""
        whole = theta.shape[1] // _GROUP
        groups = theta[:, : _GROUP * whole].unflatten(1, (_GROUP, whole))
        # Of each group the largest, and who is in none: any scores give a lower bound.
        some = torch.cat([groups.amax(1), theta[:, _GROUP * whole :]], 1)
        # Comparisons lose NaN and +inf; what has met one has no soft maximum.
        self._raise(torch.where(some.amax(-1) < math.inf, -math.inf, math.nan))
        if self.kept is None:
            self._raise(some.amax(-1))  # a bound still, for zeta >= max
            return
        self._raise(_newton.solve(torch.cat([self.kept, some], 1), self.alpha)[1])
        kept = self._above(torch.cat([self.kept, self._above(theta)], 1))
        self.kept = kept if kept.shape[1] <= self.most else None

    def finish(self):
        """Make the bound the soft maximum, if all that matter are kept."""
        if self.kept is not None:
            self._raise(_newton.solve(self.kept, self.alpha)[1])
        return self

    def _raise(self, zeta):
        self.zeta = torch.maximum(self.zeta, zeta.unsqueeze(-1))

    def _above(self, theta):
        """The scores that may have weight, padded with -inf."""
        a, bound = self.alpha - 1, self.zeta
        reach = 1 / a.clamp_min(1e-30) if isinstance(a, torch.Tensor) else 1 / a
        slack = 8 * torch.finfo(theta.dtype).eps * (bound.abs() + reach)
        cut = bound - reach - slack
        # A row without any key so far has a bound of -inf and excludes nothing but -inf.
        flat = _exceeding(theta, torch.where(cut.isnan(), -math.inf, cut))
        row = flat // max(1, theta.shape[1])
        count = torch.bincount(row, minlength=len(theta))
        place = torch.arange(len(flat), device=flat.device) - (count.cumsum(0) - count)[row]
        kept = theta.new_full((len(theta), int(count.max())), -math.inf)
        kept[row, place] = theta.reshape(-1)[flat]
        return kept


# ------------------------------------------------------------------ the block kernels


def _flash(q, v):
    """PyTorch's fused kernel for a CPU, forward and backward, or None where it can't be used.

    It gives the soft maxima besides the output, and that is all the merge needs.
    """
    forward = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    backward = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)
    fits = (
        forward is not None
        and backward is not None
        and q.device.type == "cpu"
        and q.shape[-1] == v.shape[-1] > 0
    )
    return (forward, backward) if fits else None


def _shared(x, groups):
    """Keys or values (N, c, d) as every query head sees them, without a copy."""
    return x.unsqueeze(1).expand(-1, groups, -1, -1)


def _times(weights, x):
    """Weights (N, G, r, c) times rows (N, c, e)."""
    n, groups, r, c = weights.shape
    return (weights.reshape(n, groups * r, c) @ x).view(n, groups, r, x.shape[-1])


def _transposed(weights, x):
    """Weights (N, G, r, c), transposed, times rows (N, G, r, e): summed over the group."""
    n, groups, r, c = weights.shape
    return weights.reshape(n, groups * r, c).mT @ x.reshape(n, groups * r, x.shape[-1])


def soft_tile(theta, v):
    """Soft maxima and outputs of a tile of scores, which is overwritten."""
    top = theta.amax(-1, keepdim=True)
    top = torch.where(top == -math.inf, 0.0, top)
    e = theta.sub_(top).exp_()
    mass = e.sum(-1, keepdim=True)
    out = _times(e, v) / torch.where(mass == 0, 1.0, mass)
    return (top + mass.log()).squeeze(-1), out


def weights_at(theta, zeta, alpha, power):
    """Weights p of a tile whose soft maxima are known, and responses u = p^(2 - alpha).

    `power` says that alpha is a number between `_newton.NEAR` and 2.
    """
    zeta = torch.where(zeta == -math.inf, 0.0, zeta).unsqueeze(-1)
    if power:
        a = alpha - 1
        return _newton.power((theta - zeta).mul_(a).add_(1).clamp_min_(0), 1 / a)
    # At alpha = 1 a gap of -inf would be multiplied by 0.
    p, t = _newton.near_weights((theta - zeta).clamp_min_(-1e30), alpha - 1)
    return p, p / (1 + t).clamp_min(torch.finfo(t.dtype).tiny)


class Pairs(NamedTuple):
    """The weights of a tile that aren't zero, row by row; rows and keys through all heads."""

    ends: torch.Tensor
    row: torch.Tensor
    key: torch.Tensor
    p: torch.Tensor
    u: torch.Tensor

    @classmethod
    def of(cls, theta, zeta, alpha):
        """Weights and responses as `weights_at` gives them, or None where these aren't few."""
        if bool(zeta.isnan().any()):  # a row of NaN, of which comparisons find nothing
            return None
        n, groups, r, c = theta.shape
        rows, a = theta.view(-1, c), alpha - 1
        zeta = torch.where(zeta == -math.inf, 0.0, zeta).reshape(-1, 1)
        # A little low, so that rounding of the weight alone decides what is zero.
        cut = zeta - 1 / a - 8 * torch.finfo(theta.dtype).eps * (zeta.abs() + 1 / a)
        flat = _exceeding(rows, cut)
        if len(flat) > _CROWD * rows.numel():
            return None
        row = torch.div(flat, c, rounding_mode="floor")
        gap = rows.view(-1).index_select(0, flat) - zeta.view(-1).index_select(0, row)
        p, u = _newton.power(gap.mul_(a).add_(1).clamp_min_(0), 1 / a)
        head = torch.div(row, groups * r, rounding_mode="floor")
        ends = _ends(torch.bincount(row, minlength=len(rows)))
        return cls(ends, row, (flat - (row - head) * c).int(), p, u)


class _Call(NamedTuple):
    """One call of `ring_attention`, as every rank knows it."""

    ring: Ring
    scores: Scores
    alpha: object
    steep: bool
    layout: str
    q_lengths: list
    k_lengths: list
    first: int
    tensors: list

    def rows(self, size=None):
        runs = _runs(self.q_lengths, self.ring.rank, self.layout, self.first)
        return list(_pieces(runs, size))

    def keys(self, owner, size=None):
        return list(_pieces(_runs(self.k_lengths, owner, self.layout), size))

    def sizes(self, q):
        """Rows and columns of a tile."""
        heads = max(1, q.shape[0] * q.shape[1])
        tile = _TILE.get(q.device.type, _TILE["cuda"])
        return max(16, tile // (heads * _COLUMNS)), _COLUMNS

    def order(self, here=None):
        """Alpha for tiles (N, G, r, c), or for the rows of a `SparseMerge` with r = `here`."""
        if here is None or not isinstance(self.alpha, torch.Tensor):
            return self.alpha
        return self.alpha.expand(-1, -1, here, 1).reshape(-1, 1)

    def power(self):
        return not isinstance(self.alpha, torch.Tensor) and _newton.NEAR <= self.alpha <= 2

    def pairs(self, theta, zeta):
        """`Pairs` of a tile, or None where whole matrices are the faster way."""
        fits = self.power() and theta.device.type == "cpu"
        return Pairs.of(theta, zeta, self.alpha) if fits else None


def _tiles(call, scores, q, k, owner, pieces):
    """The tiles that `pieces` of the queries have in the keys of `owner`."""
    _, columns = call.sizes(q)
    for number, rows in enumerate(pieces):
        for keys in call.keys(owner, columns):
            if scores.visible(rows, keys):
                yield number, rows, keys


def _soft_forward(call, q, kv, d):
    """Output and soft maxima by one round of keys and values."""
    scores, groups = call.scores, q.shape[1]
    merged = SoftMerge(q, kv.shape[-1] - d)
    size, _ = call.sizes(q)
    for owner, block in call.ring.around(kv, call.k_lengths):
        block = block.to(q.dtype)
        k, v = block[..., :d], block[..., d:]
        flash = _flash(q, v)
        for rows in call.rows():
            for keys in call.keys(owner):
                if not scores.visible(rows, keys):
                    continue
                fits, square = scores.fused(rows, keys)
                if flash and fits:
                    out, zeta = flash[0](
                        q[:, :, rows.here], _shared(k[:, keys.here], groups),
                        _shared(v[:, keys.here], groups), 0.0, square, scale=scores.scale,
                    )
                    merged.add(rows.here, zeta, out)
                    continue
                for part in _within(rows, size):
                    for some in _within(keys, _COLUMNS):
                        if scores.visible(part, some):
                            theta = scores.tile(q, k, part, some)
                            merged.add(part.here, *soft_tile(theta, v[:, some.here]))
    return merged.out, merged.zeta


def _within(piece, size):
    """A piece cut into smaller ones."""
    for cut in _pieces([piece.at], size):
        here = slice(piece.here.start + cut.here.start, piece.here.start + cut.here.stop)
        yield _Piece(here, cut.at)


def _bounds(call, q, k):
    """Soft maxima for alpha > 1 by one round of keys, and the pieces where they are only bounds."""
    pieces = call.rows(call.sizes(q)[0])
    most = math.inf if call.steep else _KEPT
    heads = q.shape[0] * q.shape[1]
    states = [
        SparseMerge(heads * len(rows.at), call.order(len(rows.at)), most, q) for rows in pieces
    ]
    for owner, block in call.ring.around(k, call.k_lengths):
        block = block.to(q.dtype)
        for number, rows, keys in _tiles(call, call.scores, q, block, owner, pieces):
            theta = call.scores.tile(q, block, rows, keys)
            states[number].add(theta.view(-1, theta.shape[-1]))
    zeta = q.new_full(q.shape[:3], -math.inf)
    for rows, state in zip(pieces, states):
        zeta[:, :, rows.here] = state.finish().zeta.view(*q.shape[:2], len(rows.at))
    return zeta, [rows for rows, state in zip(pieces, states) if state.kept is None]


def _newton_round(call, q, k, zeta, pieces):
    """One step of Newton's method for `pieces`, by one round of keys; whether there was need."""
    mass, answer = torch.zeros_like(zeta), torch.zeros_like(zeta)
    for owner, block in call.ring.around(k, call.k_lengths):
        block = block.to(q.dtype)
        for _, rows, keys in _tiles(call, call.scores, q, block, owner, pieces):
            theta = call.scores.tile(q, block, rows, keys)
            here = zeta[:, :, rows.here]
            p, u = weights_at(theta, here, call.order(), call.power())
            mass[:, :, rows.here] += p.sum(-1)
            answer[:, :, rows.here] += u.sum(-1)
    a = call.order() - 1
    a = a.squeeze(-1) if isinstance(a, torch.Tensor) else a
    log_mass = torch.where(mass > 0, mass, 1.0).log()
    t = a * log_mass
    step = torch.where(t == 0, log_mass, log_mass * torch.expm1(t) / torch.where(t == 0, 1.0, t))
    step = step * (-t).exp() * mass / torch.where(answer > 0, answer, 1.0)
    # Newton's steps rise from a lower bound; a downward one is rounding at the root.
    zeta += step.clamp_min(0)
    eps = torch.finfo(q.dtype).eps
    most = a.max() + 1 if isinstance(a, torch.Tensor) else a + 1
    # Up to 1.5 every step doubles the digits, so that the last one need not be checked.
    enough = 0.03 * math.sqrt(eps) if most <= 1.5 else 4 * eps
    return bool((step > enough * zeta.abs().clamp_min(1)).any())


def _sparse_forward(call, q, kv, d, backward):
    """Output, soft maxima and, for the backward pass, averages under the responses."""
    ring = call.ring
    k = kv[..., :d].contiguous()
    zeta, pieces = _bounds(call, q, k)
    again = ring.any(bool(pieces))
    for _ in range(_ROUNDS):
        if not again:
            break
        again = ring.any(_newton_round(call, q, k, zeta, pieces))
    out = q.new_zeros(*q.shape[:3], kv.shape[-1] - d)
    mass = torch.zeros_like(zeta)
    mean, answer = (torch.zeros_like(out), torch.zeros_like(mass)) if backward else (None, None)
    everything = call.rows(call.sizes(q)[0])
    for owner, block in ring.around(kv, call.k_lengths):
        block = block.to(q.dtype)
        for _, rows, keys in _tiles(call, call.scores, q, block, owner, everything):
            here = rows.here
            theta = call.scores.tile(q, block[..., :d], rows, keys)
            v = block[:, keys.here, d:]
            pairs = call.pairs(theta, zeta[:, :, here])
            if pairs is not None:
                _add_pairs(out, mass, here, pairs, pairs.p, v)
                if backward:
                    _add_pairs(mean, answer, here, pairs, pairs.u, v)
                continue
            p, u = weights_at(theta, zeta[:, :, here], call.order(), call.power())
            out[:, :, here] += _times(p, v)
            mass[:, :, here] += p.sum(-1)
            if backward:
                mean[:, :, here] += _times(u, v)
                answer[:, :, here] += u.sum(-1)
    out /= torch.where(mass == 0, 1.0, mass).unsqueeze(-1)
    if backward:
        mean /= torch.where(answer == 0, 1.0, answer).unsqueeze(-1)
    return out, zeta, mean, answer


def _add_pairs(sums, mass, here, pairs, weight, v):
    """Add a tile's weights times values, and the weights themselves, to the rows `here`."""
    table = torch.cat([v, v.new_ones(*v.shape[:2], 1)], -1).flatten(0, 1)
    both = _gather(weight, pairs.ends, pairs.key, table)
    both = both.view(*mass[:, :, here].shape, -1)
    sums[:, :, here] += both[..., :-1]
    mass[:, :, here] += both[..., -1]


class _RingAttention(torch.autograd.Function):
    """Output and soft maxima of this rank's queries; see `ring_attention`."""

    @staticmethod
    def forward(ctx, call, q, k, v, alpha, *tensors):
        dtype = torch.float64 if call.steep else working(q).dtype
        kv = torch.cat([k, v], -1)
        wide = q.to(dtype)
        if _is_softmax(call.alpha):
            out, zeta = _soft_forward(call, wide, kv, k.shape[-1])
            mean, answer = out, torch.ones_like(zeta)
        else:
            backward = any(ctx.needs_input_grad)
            out, zeta, mean, answer = _sparse_forward(call, wide, kv, k.shape[-1], backward)
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, zeta, mean, answer, *tensors)
        return out, zeta

    @staticmethod
    def backward(ctx, grad_out, grad_zeta):
        q, k, v, zeta, mean, answer, *tensors = ctx.saved_tensors
        with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
            upstream = torch.zeros_like(mean) if grad_out is None else grad_out
            centre = (upstream * mean).sum(-1)
            if grad_zeta is not None:
                centre = centre - grad_zeta / torch.where(answer == 0, 1.0, answer)
            saved = (q, k, v, zeta, mean)
            with_alpha = ctx.needs_input_grad[4]
            gradients = _Gradients(ctx.call, saved, upstream, centre, grad_zeta, with_alpha)
            grads = gradients.round()
        if torch.is_grad_enabled():
            # Without this node a second derivative through what is saved here would be silently 0.
            sentence = "ring_attention has no second derivative"
            origins = (q, k, v, *tensors, grad_out, grad_zeta)
            grads = Once.apply(sentence, len(grads), *grads, *origins)
        return None, *grads


def _is_softmax(alpha):
    return not isinstance(alpha, torch.Tensor) and alpha == 1


class _Gradients:
    """The round that takes keys, values and their gradients to every rank and home again."""

    def __init__(self, call, saved, upstream, centre, grad_zeta, with_alpha):
        q, k, v, zeta, mean = saved
        self.call, self.scores = call, call.scores
        self.dtype, self.input_dtype = zeta.dtype, q.dtype
        self.q, self.kv, self.d = q.to(zeta.dtype), torch.cat([k, v], -1), k.shape[-1]
        self.zeta, self.upstream, self.mean = zeta, upstream, mean
        self.centre, self.grad_zeta = centre, grad_zeta
        self.grad_q = torch.zeros_like(self.q)
        self.grad_alpha = q.new_zeros(*q.shape[:2], 1, 1, dtype=zeta.dtype) if with_alpha else None
        self.grad_tensors = [torch.zeros_like(x) for x in call.tensors]

    def round(self):
        call, coming = self.call, None
        # Keys and values travel in the dtype they came in, sums of gradients in the wider one.
        for owner, block in call.ring.around(self.kv, call.k_lengths):
            block = block.to(self.dtype)
            grad = self._block(owner, block[..., : self.d], block[..., self.d :])
            if coming is not None:
                grad += coming.wait()
            coming = call.ring.pass_on(grad, call.k_lengths[owner - 1])
        grad = coming.wait().to(self.input_dtype)
        if self.grad_alpha is not None and self.grad_zeta is not None:
            shift = _shift(call.alpha, self.zeta)
            seen = torch.where(self.zeta == -math.inf, 0.0, self.grad_zeta)[..., None]
            self.grad_alpha -= (seen * shift).sum(-2, keepdim=True)
        return (
            self.grad_q.to(self.input_dtype), grad[..., : self.d], grad[..., self.d :],
            self.grad_alpha, *self.grad_tensors,
        )

    def _block(self, owner, k, v):
        """Gradients of the keys and values of one block, from the queries of this rank."""
        call, scores, groups = self.call, self.scores, self.q.shape[1]
        grad = self.q.new_zeros(*k.shape[:-1], self.kv.shape[-1])
        simple = _is_softmax(call.alpha) and self.grad_zeta is None and self.grad_alpha is None
        flash = _flash(self.q, v) if simple else None
        size, _ = call.sizes(self.q)
        for rows in call.rows():
            for keys in call.keys(owner):
                if not scores.visible(rows, keys):
                    continue
                fits, square = scores.fused(rows, keys)
                if flash and fits:
                    here = rows.here
                    parts = flash[1](
                        self.upstream[:, :, here].contiguous(), self.q[:, :, here],
                        _shared(k[:, keys.here], groups), _shared(v[:, keys.here], groups),
                        self.mean[:, :, here], self.zeta[:, :, here], 0.0, square,
                        scale=scores.scale,
                    )
                    self.grad_q[:, :, here] += parts[0]
                    grad[:, keys.here, : self.d] += parts[1].sum(1)
                    grad[:, keys.here, self.d :] += parts[2].sum(1)
                    continue
                for part in _within(rows, size):
                    for some in _within(keys, _COLUMNS):
                        if scores.visible(part, some):
                            self._tile(grad, k, v, part, some)
        return grad

    def _tile(self, grad, k, v, rows, keys):
        call, scores, q, here = self.call, self.scores, self.q, rows.here
        bias = None
        if self.grad_tensors:
            with torch.enable_grad():
                bias = scores.bias(rows, keys, q)
        theta = scores.tile(q, k, rows, keys, None if bias is None else bias.detach())
        zeta, upstream = self.zeta[:, :, here], self.upstream[:, :, here]
        if bias is None and self.grad_alpha is None:
            pairs = call.pairs(theta, zeta)
            if pairs is not None:
                return self._pairs(grad, k, v, rows, keys, pairs)
        if _is_softmax(call.alpha):
            p = theta.sub_(torch.where(zeta == -math.inf, 0.0, zeta).unsqueeze(-1)).exp_()
            u = p
        else:
            p, u = weights_at(theta, zeta, call.order(), call.power())
        inner = _times(upstream, v[:, keys.here].mT)
        centre = self.centre[:, :, here].unsqueeze(-1)
        if self.grad_alpha is None:
            grad_theta = u * (inner - centre)
        else:
            grad_theta, slope = pullback(
                p, call.alpha, inner, None, True, lambda u, x, _: (u * (x - centre), centre)
            )
            self.grad_alpha += slope.sum((-2, -1), keepdim=True)
        grad[:, keys.here, self.d :] += _transposed(p, upstream)
        grad[:, keys.here, : self.d] += _transposed(grad_theta, q[:, :, here]) * scores.scale
        self.grad_q[:, :, here] += _times(grad_theta, k[:, keys.here]) * scores.scale
        if bias is not None and bias.requires_grad:
            parts = scores.bias_gradients(grad_theta, bias, call.tensors)
            for total, part in zip(self.grad_tensors, parts):
                if part is not None:
                    total += part


    def _pairs(self, grad, k, v, rows, keys, pairs):
        """As `_tile`, from the weights that aren't zero."""
        scale, here, d = self.scores.scale, rows.here, self.d
        q, upstream = (x[:, :, here].flatten(0, 2) for x in (self.q, self.upstream))
        k, v = (x[:, keys.here].flatten(0, 1) for x in (k, v))
        inner = _products(upstream, v, pairs.ends, pairs.key)
        centre = self.centre[:, :, here].reshape(-1).index_select(0, pairs.row)
        grad_theta = pairs.u * (inner - centre)
        grad_q = _gather(grad_theta, pairs.ends, pairs.key, k)
        self.grad_q[:, :, here] += grad_q.view(self.q[:, :, here].shape) * scale
        ends, row, place = _by_key(pairs.ends, pairs.key, len(k))
        part = grad[:, keys.here]
        grad_k = _gather(grad_theta.index_select(0, place), ends, row, q)
        part[..., :d] += grad_k.view(*part.shape[:2], d) * scale
        grad_v = _gather(pairs.p.index_select(0, place), ends, row, upstream)
        part[..., d:] += grad_v.view(*part.shape[:2], -1)


# ------------------------------------------------------------------ the function


def ring_attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
    *,
    regularizer=None,
    causal_align="top_left",
    layout="contiguous",
    group=None,
    return_aux=False,
):
    r"""Attention over a sequence that is split over the ranks of a process group.

    Every rank gives its shard of the sequence and gets the outputs of its queries, each of them
    the average over the keys of *all* ranks that solves

    .. math:: \max_{p \in \Delta} \; \langle s, p\rangle - \tau\,\Omega(p), \qquad
              s_j = \langle q_i, k_j\rangle, \quad \tau = 1 / \mathrm{scale},

    the same problem, and the same result up to rounding, as `eotcourse.attention` on the whole
    sequence. No rank holds more than a few blocks of the size of its shard.

    Parameters
    ----------
    query : Tensor, shape (..., heads, q_shard, d)
    key : Tensor, shape (..., heads, k_shard, d)
    value : Tensor, shape (..., heads, k_shard, d_v)
        This rank's part of the sequence, cut according to `layout`. Leading dimensions are equal
        (see `enable_gqa`) and the same on every rank; (shard, d) alone is one head.
    attn_mask, dropout_p
        There so that the arguments are those of `eotcourse.attention`; nothing but None and 0 is
        taken. Masks that depend on positions are priors: `Window`, `Padding`, `LogPrior`.
    is_causal : bool
        Query i attends to keys j <= i, positions counted in the whole sequence.
    scale : float, optional
        1 / tau, applied exactly once to the raw scores; 1 / sqrt(d) by default.
    enable_gqa : bool
        Let consecutive groups of query heads share one head of keys and values, which travels
        once.
    regularizer : Regularizer, optional
        `Shannon()` by default, or a `Tsallis`, with any prior. The same on every rank: priors
        are tables over the whole sequence, and are asked for one tile at a time.
    causal_align : {"top_left", "bottom_right"}
        Position of the first query of the whole sequence: 0, or k_len - q_len.
    layout : {"contiguous", "zigzag"}
        Which positions a rank holds; see `ring_positions`. Contiguous shards may have any lengths,
        zigzag shards those of `ring_positions`.
    group : ProcessGroup or Ring, optional
        The default group when omitted. Any backend that sends tensors from rank to rank (gloo,
        NCCL).
    return_aux : bool
        Also return an `Aux` with the soft maxima of this rank's queries.

    Returns
    -------
    Tensor, shape (..., heads, q_shard, d_v), or (Tensor, Aux)
        In the dtype of the query; the half precisions are computed in float32 (and travel as they
        are), alpha above 2 in float64. Gradients of query, key and value are those of the sum of
        all ranks' losses. Those of parameters (alpha, slopes, log-priors) are this rank's share,
        which is summed over ranks like that of any other parameter of the model. There is no
        second derivative.

    Raises
    ------
    RuntimeError
        Without a process group.
    TypeError, ValueError
        As `eotcourse.attention`; for a mask, dropout, a regulariser of another family, a prior
        that doesn't cover the sequence; and where ranks differ in dtype, heads or options.
        What depends on options alone is refused before anything is sent. Shards are compared by
        the first exchange, and if one of them is refused, every rank raises the same error.

    Notes
    -----
    All ranks must call it, and must call backward if one does. Memory per rank is linear in its
    shard, whatever alpha; above alpha = 2 also in the number of keys a query gives weight to.
    A row is remembered by one number, so that a bias of size B on all of its keys costs the digits
    that eps B has, in gradients above all; `eotcourse.attention` has no such loss.
    Liu, Zaharia and Abbeel, "Ring attention with blockwise transformers for near-infinite
    context", arXiv:2310.01889; see the module for what is different for alpha > 1.

    Examples
    --------
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> q, k, v = torch.tensor([[1.0]]), torch.tensor([[4.0], [2.0], [0.0]]), torch.eye(3)
    >>> ring_attention(q, k, v, scale=0.5)
    tensor([[0.6652, 0.2447, 0.0900]])
    >>> ring_attention(q, k, v, scale=0.5, regularizer=Tsallis(1.5))
    tensor([[0.8307, 0.1693, 0.0000]])
    >>> dist.destroy_process_group()
    """
    if attn_mask is not None:
        raise ValueError("attn_mask is refused: use a prior (Padding, Window, LogPrior)")
    if _number(dropout_p, "dropout_p") != 0:
        raise ValueError(f"dropout_p must be 0 over a ring, got {dropout_p}")
    _check_layout(layout)
    if causal_align not in ("top_left", "bottom_right"):
        raise ValueError(f"causal_align must be top_left or bottom_right, got {causal_align!r}")
    regularizer = member(regularizer)
    if type(regularizer).solve not in (Shannon.solve, Tsallis.solve):
        raise TypeError(
            f"over a ring the regularizer is Shannon or Tsallis, got {type(regularizer).__name__}"
        )
    _check_scale(scale, 1)
    ring = group if isinstance(group, Ring) else Ring(group)

    problem, mine = None, [0, 0]
    try:
        query, key, value = _inputs(query, key, value)
        lead, groups = _heads(query, key, value, enable_gqa)
        alpha = _order(regularizer, working(query), (*lead, 1, 1))
        mine = [query.shape[-2], key.shape[-2]]
        prior = regularizer.prior
        tensors = [] if prior is None else [*prior.parameters(), *prior.buffers()]
        learned = [x for x in tensors if x.requires_grad]
        records = any(
            isinstance(x, torch.Tensor) and x.requires_grad
            for x in (query, key, value, alpha, *learned)
        )
        options = {
            "dtype": query.dtype,
            "leading dimensions": tuple(lead),
            "key heads": key.shape[:-2],
            "d": query.shape[-1],
            "d_v": value.shape[-1],
            "is_causal": bool(is_causal),
            "scale": scale,
            "layout": layout,
            "causal_align": causal_align,
            "regularizer": type(regularizer).__name__,
            "alpha": tuple(alpha.shape) if isinstance(alpha, torch.Tensor) else alpha,
            "prior": (type(prior).__name__, [tuple(x.shape) for x in tensors]),
            "requires_grad": records and torch.is_grad_enabled(),
        }
    except (TypeError, ValueError) as error:
        problem, options = error, {}
    q_lengths, k_lengths = _agree(ring, mine, options, problem)
    if layout == "zigzag":
        for name, lengths in (("query", q_lengths), ("key", k_lengths)):
            wanted = _zigzag_lengths(sum(lengths), ring.size)
            if lengths != wanted:
                raise ValueError(f"zigzag needs {name} shards of lengths {wanted}, got {lengths}")
    first = sum(k_lengths) - sum(q_lengths) if causal_align == "bottom_right" else 0

    scale = _check_scale(scale, query.shape[-1])
    scores = Scores(tuple(lead), groups, scale, is_causal, prior)
    if scores.prior is not None and sum(q_lengths) and sum(k_lengths):
        _probe(scores, sum(q_lengths), sum(k_lengths), first, query)
    heads = key.shape[:-2].numel()
    q = query.reshape(heads, groups, *query.shape[-2:])
    k, v = (x.reshape(heads, *x.shape[-2:]) for x in (key, value))
    order, steep = alpha, not isinstance(alpha, torch.Tensor) and alpha > 2
    if isinstance(alpha, torch.Tensor):
        steep = bool((alpha > 2).any())
        wide = alpha.to(torch.float64 if steep else alpha.dtype)
        alpha = wide.expand(*lead, 1, 1).reshape(heads, groups, 1, 1)
        order = wide.item() if wide.numel() == 1 else alpha.detach()
    call = _Call(ring, scores, order, steep, layout, q_lengths, k_lengths, first, learned)
    with torch.autocast(query.device.type, enabled=False):
        out, zeta = _RingAttention.apply(
            call, q, k, v, alpha if isinstance(alpha, torch.Tensor) else None, *learned
        )
    out = out.reshape(*query.shape[:-1], value.shape[-1]).to(query.dtype)
    zeta = zeta.reshape(query.shape[:-1]).to(working(query).dtype)
    return (out, Aux(zeta)) if return_aux else out


def _inputs(query, key, value):
    """The tensors checked, in the dtype in which autocast wants them."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        check_floating(x, name)
    kind = query.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        query, key, value = (
            x if x.dtype == torch.float64 else x.to(dtype) for x in (query, key, value)
        )
    _check_inputs(query, key, value, None)
    return query, key, value


def _heads(query, key, value, enable_gqa):
    """Leading dimensions of the queries, and how many of their heads share one of the keys."""
    lead, shared = query.shape[:-2], key.shape[:-2]
    if value.shape[:-2] != shared:
        raise ValueError(
            f"leading dimensions of key {tuple(shared)} and value {tuple(value.shape[:-2])} differ"
        )
    if 0 in lead:
        raise ValueError(f"there must be a head, got leading dimensions {tuple(lead)}")
    if lead == shared:
        return lead, 1
    fits = enable_gqa and lead and shared and lead[:-1] == shared[:-1]
    if not fits or shared[-1] == 0 or lead[-1] % shared[-1]:
        raise ValueError(
            f"leading dimensions of query {tuple(lead)} and key {tuple(shared)} must be equal"
            + (", up to a factor in the number of heads" if enable_gqa else "")
        )
    return lead, lead[-1] // shared[-1]


def _agree(ring, mine, options, problem):
    """All ranks' lengths of queries and keys, or the same error on every rank."""
    digest = hashlib.sha256(repr(options).encode()).digest()
    told = ring.numbers([problem is not None, int.from_bytes(digest[:7]), *mine])
    if any(x[0] for x in told) or any(x[1] != told[0][1] for x in told):
        shown = {name: str(value) for name, value in options.items()}
        answers = ring.texts((type(problem), str(problem), shown))
        for rank, (kind, text, _) in enumerate(answers):
            if kind is not type(None):
                raise (TypeError if issubclass(kind, TypeError) else ValueError)(
                    f"rank {rank}: {text}" if ring.size > 1 else text
                )
        first = answers[0][2]
        rank, name = next(
            (rank, name) for name in first for rank, x in enumerate(answers)
            if x[2][name] != first[name]
        )
        raise ValueError(
            f"ranks differ in {name}: {first[name]} on rank 0, {answers[rank][2][name]} on "
            f"rank {rank}"
        )
    return [x[2] for x in told], [x[3] for x in told]


def _probe(scores, q_len, k_len, first, like):
    """Ask the prior for the corners of the matrix, so that it fails here if it fails."""
    for i in {first, first + q_len - 1}:
        for j in {0, k_len - 1}:
            rows, keys = (_Piece(slice(0, 1), range(x, x + 1)) for x in (i, j))
            with torch.no_grad():
                scores.bias(rows, keys, like)


# ------------------------------------------------------------------ what it costs


class RingCost(NamedTuple):
    """What one rank sends and computes in `ring_attention`; see `ring_cost`."""

    forward_bytes: int
    backward_bytes: int
    forward_flops: int
    backward_flops: int


def ring_cost(
    n,
    ranks,
    *,
    heads,
    head_dim,
    kv_heads=None,
    value_dim=None,
    batch=1,
    itemsize=2,
    alpha=1.0,
    newton_rounds=0,
    is_causal=False,
    layout="contiguous",
):
    r"""Bytes sent and operations done by the busiest rank of `ring_attention`.

    A block of b keys, with its values, has b (d + e) numbers per head of keys. Over P ranks, and
    with n / P = b for all of them, a rank sends P - 1 blocks in the forward pass (for alpha > 1
    the keys once more beforehand) and, in the backward pass, P - 1 blocks and P blocks of
    gradients; so it sends about n (d + e) numbers whatever P. Its pairs of query and key are
    n b, or n b / 2 under a causal mask and the zigzag layout. Per pair and head of queries,

    - softmax multiplies and adds d + e times in the forward pass;
    - alpha > 1: 2 d + 2 e (twice scores, the values under p and under u), d per Newton round;
    - the backward pass: 3 d + 2 e.

    For alpha > 1 this is the most: where few keys have weight, a CPU takes all products but those
    for the scores over these alone.

    Parameters
    ----------
    n : int
        Length of the sequence, of queries and of keys.
    ranks : int
    heads, head_dim : int
        Of queries; `kv_heads` (default `heads`) and `value_dim` (default `head_dim`) of the rest.
    batch : int
    itemsize : int
        Bytes of a number of query, key and value: 2, 4 or 8. Gradients travel in at least 4.
    alpha : float
    newton_rounds : int
        Rounds in which Newton's sums go over the ring: 0 unless many keys have weight.
    is_causal : bool
    layout : {"contiguous", "zigzag"}

    Returns
    -------
    RingCost
        Integers; bytes are exact (a test compares them with the bytes counted by `Ring`), two
        operations (flops) are counted for a multiplication and an addition, exponentials and
        pairs that a tile computes and masks are not counted.

    Raises
    ------
    ValueError
        For a layout that isn't known, and for numbers of which there is no ring, by name.

    Examples
    --------
    >>> cost = ring_cost(1 << 20, 1024, heads=32, head_dim=128, kv_heads=8, is_causal=True,
    ...                  layout="zigzag")
    >>> round(cost.forward_bytes / 1e9, 2), round(cost.forward_flops / 1e12, 2)
    (4.29, 8.8)
    """
    _check_layout(layout)
    kv_heads = heads if kv_heads is None else kv_heads
    e = head_dim if value_dim is None else value_dim
    least = dict(n=0, ranks=1, heads=1, kv_heads=1, head_dim=0, batch=0, itemsize=1, newton_rounds=0)
    given = locals()
    for name, low in least.items():
        if not (isinstance(given[name], int) and given[name] >= low):
            raise ValueError(f"{name} must be an integer from {low} on, got {given[name]}")
    if heads % kv_heads:
        raise ValueError(f"{heads} heads of queries can't share {kv_heads} heads of keys evenly")
    if not 1 <= alpha < math.inf:
        raise ValueError(f"alpha must be at least 1 and finite, got {alpha}")
    lengths = np.array(_split(n, ranks, layout))
    # A rank passes on every block but the one it receives last, its successor's.
    hops = int(n - lengths.min()) * batch * kv_heads
    pairs = _most_pairs(lengths, layout, is_causal) * batch * heads
    wide = 8 if alpha > 2 else max(4, itemsize)
    soft = alpha == 1
    key_rounds = 0 if soft else 1 + newton_rounds
    home = n * batch * kv_heads * (head_dim + e) * wide if ranks > 1 else 0
    return RingCost(
        forward_bytes=hops * (head_dim * (1 + key_rounds) + e) * itemsize,
        backward_bytes=hops * (head_dim + e) * itemsize + home,
        forward_flops=2 * pairs * (head_dim * (1 + key_rounds) + (e if soft else 2 * e)),
        backward_flops=2 * pairs * (3 * head_dim + 2 * e),
    )


def _most_pairs(lengths, layout, is_causal):
    """The most pairs of query and key that a rank has."""
    if not is_causal:
        return int(lengths.max() * lengths.sum())
    if layout == "contiguous":
        stop = np.cumsum(lengths)
        return int(_triangle(stop - lengths, stop).max())
    edge = np.array(_edges(int(lengths.sum()), 2 * len(lengths)))
    half = _triangle(edge[:-1], edge[1:])
    return int((half + half[::-1]).max())


def _triangle(start, stop):
    """Pairs of the queries start to stop with the keys up to each of them."""
    return (stop * (stop + 1) - start * (start + 1)) // 2
