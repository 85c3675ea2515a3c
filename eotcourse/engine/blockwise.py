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

import math
import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch.autograd.forward_ad import unpack_dual
from torch.nn import functional as F

from .. import _newton, _ragged
from ..priors import ALiBi, Causal, LogPrior, Padding, Window, bias_of_rows, fitting
from ..simplex import centred, dense_pullback, pullback

_BLOCK = 1 << 20
_CROWD = 0.35


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

    def exclude_(self, theta, rows, keys):
        """Write -inf where a query may not attend to a key that another one may."""
        first = rows.start + self.first
        last = rows.stop - 1 + self.first
        if first + self.right < keys.stop - 1:
            part = slice(max(keys.start, int(first + self.right) + 1), keys.stop)
            later = _lag(rows, part, self.first) > self.right
            theta[:, part.start - keys.start :].masked_fill_(later, -math.inf)
        if last - self.left > keys.start:
            part = slice(keys.start, min(keys.stop, int(last - self.left)))
            earlier = _lag(rows, part, self.first) < -self.left
            theta[:, : part.stop - keys.start].masked_fill_(earlier, -math.inf)


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


class Table:
    """A mask, or a term of which every number is given: it broadcasts to (*lead, q, k)."""

    def __init__(self, lead, values):
        self.lead, self.tensors = lead, (values,)

    def _tile(self, values, head, rows, keys):
        matrix = matrix_of(values, self.lead, head)
        matrix = matrix[rows] if len(matrix) > 1 else matrix
        return matrix[:, keys] if matrix.shape[1] > 1 else matrix

    def add(self, theta, head, rows, keys):
        tile = self._tile(self.tensors[0], head, rows, keys)
        if tile.dtype == torch.bool:
            theta.masked_fill_(~tile, -math.inf)
        else:
            _add(theta, tile)

    def pull(self, grads, grad_theta, head, rows, keys):
        tile = self._tile(grads[0], head, rows, keys)
        tile += grad_theta.sum_to_size(tile.shape)


class Linear:
    """ALiBi: minus slope times distance."""

    def __init__(self, lead, slopes, first):
        self.lead, self.tensors, self.first = lead, (slopes,), first

    def _distance(self, like, rows, keys):
        return _lag(rows, keys, self.first, like.dtype).abs_()

    def add(self, theta, head, rows, keys):
        slope = matrix_of(self.tensors[0], self.lead, head).item()
        theta.add_(self._distance(theta, rows, keys), alpha=-slope)

    def pull(self, grads, grad_theta, head, rows, keys):
        slope = matrix_of(grads[0], self.lead, head)
        slope -= (grad_theta * self._distance(grad_theta, rows, keys)).sum()


class General:
    """Any other prior, asked for one tile at a time, in the backward pass again."""

    def __init__(self, lead, prior, first):
        self.lead, self.prior, self.first = lead, prior, first
        self.tensors = tuple(
            x for x in (*prior.parameters(), *prior.buffers()) if x.requires_grad
        )

    def _tile(self, theta, head, rows, keys):
        queries = torch.arange(rows.start, rows.stop) + self.first
        *batch, heads = self.lead or (1,)
        bias = self.prior.bias(
            queries, torch.arange(keys.start, keys.stop), head % heads if self.lead else None
        )
        return matrix_of(bias.to(theta.dtype), (*batch, 1), head // heads)

    def add(self, theta, head, rows, keys):
        _add(theta, self._tile(theta, head, rows, keys))

    def pull(self, grads, grad_theta, head, rows, keys):
        with torch.enable_grad():
            tile = self._tile(grad_theta, head, rows, keys)
        upstream = grad_theta.sum_to_size(tile.shape)
        for grad, part in zip(grads, torch.autograd.grad(tile, self.tensors, upstream)):
            grad += part


class Dropout(NamedTuple):
    """Which weights are dropped: drawn from the same seed whenever it is asked."""

    probability: float
    seed: int

    def factor(self, weights, block):
        """What the weights of a block are multiplied by, or None."""
        if self.probability == 0:
            return None
        if self.probability == 1:
            return torch.zeros_like(weights)
        generator = torch.Generator().manual_seed(self.seed + block)
        kept = torch.rand(weights.shape, generator=generator) >= self.probability
        return kept.to(weights.dtype).div_(1 - self.probability)


class Call(NamedTuple):
    """What there is to know of a call besides its tensors."""

    scale: float
    reach: Reach
    terms: tuple
    dropout: Dropout


class Scores:
    """The scaled scores of a call, one block in memory."""

    def __init__(self, q, k, call):
        self.q, self.k, self.call = q, k, call
        self._memory = q.new_empty(0)

    def blocks(self, head):
        """The blocks of a head: a number of its own, rows, and the keys these may attend to."""
        _, q_len, _ = self.q.shape
        k_len = self.k.shape[1]
        step = max(16, _BLOCK // max(1, k_len))
        for start in range(0, q_len, step):
            rows = slice(start, min(start + step, q_len))
            yield head * q_len + start, rows, self.call.reach.keys(rows, k_len)

    def form(self, head, rows, keys):
        """The scores of a block, and the memory they are in: -inf up to a `MULTIPLE` of columns."""
        size, width = rows.stop - rows.start, keys.stop - keys.start
        padded = width + -width % _ragged.MULTIPLE
        if self._memory.numel() < size * padded:
            self._memory = self.q.new_empty(size * padded)
        memory = self._memory[: size * padded].view(size, padded)
        theta = memory[:, :width]
        memory[:, width:] = -math.inf
        torch.mm(self.q[head, rows] * self.call.scale, self.k[head, keys].mT, out=theta)
        for term in self.call.terms:
            term.add(theta, head, rows, keys)
        self.call.reach.exclude_(theta, rows, keys)
        return theta, memory


# ---------------------------------------------------------------- the problem of every row


class Kept(NamedTuple):
    """The weights of a block that aren't zero, row by row: how many, at which keys, what."""

    count: torch.Tensor
    key: torch.Tensor
    weight: torch.Tensor


def _screen(memory, alpha):
    """What `_ragged.screen` says, or None where it says nothing about this alpha or width."""
    if alpha < _newton.NEAR or memory.shape[1] < _ragged.SHORTEST:
        return None
    return _ragged.screen(memory, alpha, 1.0)


def _keep(memory, alpha, screened, first_key):
    """`Kept` and soft maxima of a block, or None where its support isn't sparse."""
    width = memory.shape[1]
    support = _ragged.survivors(memory, alpha, 1.0, screened, width, _CROWD)
    if support is None:
        return None
    on = torch.from_numpy(np.flatnonzero(support.p.numpy()))
    row = support.row.index_select(0, on)
    key = support.flat.index_select(0, on) - row * width + first_key
    count = torch.bincount(row, minlength=len(memory))
    return Kept(count, key.int(), support.p.index_select(0, on)), support.zeta.squeeze(-1)


class Rows(NamedTuple):
    """What a block leaves behind for each row, shapes (q, 1): its soft maximum is top + rest.

    Where a mask has added -1e30 to all of a row, the sum alone would have lost the rest.
    """

    top: torch.Tensor
    rest: torch.Tensor

    def zeta(self):
        return (self.top + self.rest).squeeze(-1)


def _solve(theta, alpha, screened):
    """Weights of a block up to a factor per row, their sums, and `Rows`; overwrites `theta`."""
    top = theta.amax(-1, keepdim=True) if screened is None else screened.top
    empty = top == -math.inf
    top = torch.where(empty, 0.0, top)
    z = theta.sub_(top)
    if alpha == 1:
        p = z.exp_()
        mass = p.sum(-1, keepdim=True)
        rest = mass.log()
    elif screened is None or alpha > 2:
        p, rest = _newton.solve(z, alpha)
        mass, rest = p.sum(-1, keepdim=True), rest.unsqueeze(-1)
    else:
        a = alpha - 1
        bound = torch.where(empty, -1.0, screened.kappa)
        kappa, step = _newton.climb(z.mul_(a), bound, alpha)
        p, _ = _newton.power(z.sub_(kappa).sub_(step).clamp_min_(0), 1 / a)
        if bool(empty.any()):  # where Newton's steps make NaN
            p.masked_fill_(empty, 0)
        mass, rest = p.sum(-1, keepdim=True), (1 + (kappa + step)) / a
    return p, mass.masked_fill_(empty, 1), Rows(top, rest.masked_fill_(empty, -math.inf))


def _weights_of(theta, rows, alpha):
    """Weights of a block that was solved before; overwrites `theta`.

    Also their responses, or None where these cost more.
    """
    z = theta.sub_(rows.top)
    if alpha > 2:  # small weights need more digits than `Rows` has
        return _newton.solve(z, alpha)[0], None
    a = alpha - 1
    rest = torch.where(rows.rest == -math.inf, 0.0, rows.rest)
    if alpha == 1:
        p = z.sub_(rest).exp_()
        return p, p
    if alpha < _newton.NEAR:
        p, t = _newton.near_weights(z.sub_(rest).clamp_min_(-2 / a), a)
        return p.masked_fill_(t <= -1, 0), None
    return _newton.power(z.mul_(a).add_(1 - a * rest).clamp_min_(0), 1 / a)


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


# ---------------------------------------------------------------- forward and backward


class Attend(torch.autograd.Function):
    """Outputs (b, q, e) and soft maxima (b, q) from q, k, v and the order alpha (b,) of heads."""

    @staticmethod
    def forward(ctx, call, q, k, v, alpha, *tensors):
        scores = Scores(q, k, call)
        out = v.new_zeros(*q.shape[:2], v.shape[2])
        zeta = q.new_full(q.shape[:2], -math.inf)
        left = {}
        for head, order in enumerate(alpha.tolist()):
            for block, rows, keys in scores.blocks(head):
                if keys.start == keys.stop:
                    continue
                theta, memory = scores.form(head, rows, keys)
                screened = _screen(memory, order)
                found = screened and _keep(memory, order, screened, keys.start)
                if found:
                    left[block], zeta[head, rows] = found
                    p = left[block].weight
                else:
                    p, mass, left[block] = _solve(theta, order, screened)
                    zeta[head, rows] = left[block].zeta()
                factor = call.dropout.factor(p, block)
                if factor is not None:
                    p = p * factor
                if found:
                    ends, key = _ends(left[block].count), left[block].key
                    out[head, rows] = _gather(p, ends, key, v[head])
                else:
                    torch.mm(p, v[head, keys], out=out[head, rows]).div_(mass)
        ctx.call, ctx.left = call, left
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, alpha, zeta, *tensors)
        return out, zeta

    @staticmethod
    def backward(ctx, grad_out, grad_zeta):
        with torch.no_grad():
            needed = ctx.needs_input_grad[5:]
            grads = _Backward(ctx, grad_out, grad_zeta).run(ctx.left, needed)
        if torch.is_grad_enabled():
            origins = [x for x in (*ctx.saved_tensors, grad_out, grad_zeta) if x is not None]
            there = [g for g in grads if g is not None]
            there = iter(_Once.apply(len(there), *there, *origins))
            grads = [g if g is None else next(there) for g in grads]
        return None, *grads


class _Once(torch.autograd.Function):
    """The first tensors as they are; to differentiate them in any of the others is an error."""

    @staticmethod
    def forward(ctx, number, *tensors):
        return tuple(x.view_as(x) for x in tensors[:number])

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError(
            "attention by blocks can't be differentiated twice: use backend='dense'"
        )


class _Backward:
    def __init__(self, ctx, grad_out, grad_zeta):
        self.q, self.k, self.v, self.alpha, self.zeta, *self.tensors = ctx.saved_tensors
        self.call = ctx.call
        if grad_out is None:
            grad_out = self.v.new_zeros(*self.q.shape[:2], self.v.shape[2])
        self.grad_out, self.grad_zeta = grad_out.contiguous(), grad_zeta
        self.with_alpha = ctx.needs_input_grad[4]
        self.dq, self.dk, self.dv, self.dalpha = (
            torch.zeros_like(x) for x in (self.q, self.k, self.v, self.alpha)
        )

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
        scores = Scores(self.q, self.k, self.call)
        for head, order in enumerate(self.alpha.tolist()):
            sparse = []
            for block, rows, keys in scores.blocks(head):
                if keys.start == keys.stop:
                    continue
                if isinstance(left[block], Kept):
                    sparse.append((block, rows, keys, left[block]))
                else:
                    theta, _ = scores.form(head, rows, keys)
                    p, u = _weights_of(theta, left[block], order)
                    self._dense(p, u, head, order, block, rows, keys)
            if sparse:
                self._sparse(head, order, sparse)
        grads = [g if g is None else g.to(x.dtype) for g, x in zip(grads, self.tensors)]
        return self.dq, self.dk, self.dv, self.dalpha if self.with_alpha else None, *grads

    def _dense(self, p, u, head, order, block, rows, keys):
        q, k, v = self.q[head, rows], self.k[head, keys], self.v[head, keys]
        grad_out, scale = self.grad_out[head, rows], self.call.scale
        factor = self.call.dropout.factor(p, block)
        g = grad_out @ v.mT
        if factor is not None:
            g *= factor
        if not bool(g.sum().isfinite()):
            g.masked_fill_(p == 0, 0)
        self.dv[head, keys].addmm_((p if factor is None else p * factor).mT, grad_out)
        grad_zeta = self._grad_zeta(head, rows)
        if u is None or self.with_alpha:
            grad_theta = self._pull_rows(p, head, order, g, grad_zeta)
        else:
            grad_theta, _ = centred(u, g, grad_zeta.unsqueeze(-1))
        torch.mm(grad_theta, k, out=self.dq[head, rows]).mul_(scale)
        self.dk[head, keys].addmm_(grad_theta.mT, q, alpha=scale)
        for term, grads in self.pulls:
            term.pull(grads, grad_theta, head, rows, keys)

    def _grad_zeta(self, head, rows):
        """The gradient of the soft maxima, 0 where a row may attend to nothing."""
        zeta = self.zeta[head, rows]
        if self.grad_zeta is None:
            return torch.zeros_like(zeta)
        return torch.where(zeta == -math.inf, 0.0, self.grad_zeta[head, rows])

    def _sparse(self, head, order, blocks):
        """The blocks of one head whose weights were kept, all at once."""
        q, k, v, grad_out = (x[head] for x in (self.q, self.k, self.v, self.grad_out))
        scale = self.call.scale
        count = torch.zeros(len(q), dtype=torch.int64)
        for _, rows, _, kept in blocks:
            count[rows] = kept.count
        key = torch.cat([kept.key for *_, kept in blocks])
        p = torch.cat([kept.weight for *_, kept in blocks])
        ends, row = _ends(count), torch.repeat_interleave(count)
        g = _products(grad_out, v, ends, key)
        dropped = p
        if self.call.dropout.probability:
            factors = [self.call.dropout.factor(kept.weight, block) for block, *_, kept in blocks]
            factor = torch.cat(factors)
            g, dropped = g * factor, p * factor
        ds = self._pull_kept(p, head, order, g, count, row)
        self.dq[head].add_(_gather(ds, ends, key, k), alpha=scale)
        ends, query, place = _by_key(ends, key, len(k))
        self.dk[head].add_(_gather(ds.index_select(0, place), ends, query, q), alpha=scale)
        self.dv[head].add_(_gather(dropped.index_select(0, place), ends, query, grad_out))
        if self.pulls:
            self._pull_terms(head, blocks, ds, row, key)

    def _pull_kept(self, p, head, order, g, count, row):
        """The gradient of kept scores; that of alpha is added up."""
        grad_zeta = self._grad_zeta(head, slice(None))
        if order > 2:  # see `_pull_rows`
            rank = torch.arange(len(p)) - (torch.cumsum(count, 0) - count).index_select(0, row)
            rows = p.new_zeros(2, len(count), int(count.max()))
            rows[0, row, rank], rows[1, row, rank] = p, g
            return self._pull_rows(rows[0], head, order, rows[1], grad_zeta)[row, rank]

        def centre(u, x, total):
            return centred(u, x, total, row_sums)

        def row_sums(x):
            return x.new_zeros(len(count)).index_add_(0, row, x).index_select(0, row)

        grad_zeta = grad_zeta.index_select(0, row)
        ds, slope = pullback(p, order, g, grad_zeta, self.with_alpha, centre)
        if self.with_alpha:
            self.dalpha[head] += slope.sum()
        return ds

    def _pull_rows(self, p, head, order, g, grad_zeta):
        """As `_pull_kept`, for rows of equal length: what responses of any size need."""
        if order <= 2:
            ds, slope = pullback(p, order, g, grad_zeta.unsqueeze(-1), self.with_alpha)
        else:
            alpha = self.alpha[head].to(p.dtype)
            ds, slope = dense_pullback(p, alpha, g, grad_zeta, self.with_alpha)
        if self.with_alpha:
            self.dalpha[head] += slope.sum()
        return ds

    def _pull_terms(self, head, blocks, ds, row, key):
        begin = 0
        for _, rows, keys, kept in blocks:
            part = slice(begin, begin + len(kept.key))
            tile = ds.new_zeros(rows.stop - rows.start, keys.stop - keys.start)
            tile[row[part] - rows.start, key[part].long() - keys.start] = ds[part]
            for term, grads in self.pulls:
                term.pull(grads, tile, head, rows, keys)
            begin = part.stop


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
    tensors = [x for term in terms for x in term.tensors]
    heads = math.prod(whole)
    q, k, v = (
        x.expand(*whole, *x.shape[-2:]).reshape(heads, *x.shape[-2:]).contiguous()
        for x in (q, k, v)
    )
    out, zeta = Attend.apply(call, q, k, v, alpha.expand(*whole, 1, 1).flatten(), *tensors)
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
        return Linear(lead, slopes, first)
    if isinstance(prior, LogPrior | Padding):
        return Table(lead, bias_of_rows(prior, theta, first))
    return General(lead, prior, first)
