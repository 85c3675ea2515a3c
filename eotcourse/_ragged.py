"""The Tsallis problem on long rows, where few entries matter: find these, solve, scatter.

One fact does the work: the threshold kappa over a part of a row's entries is a lower bound of the
threshold over all of them, since the sum that defines it only gains terms. The maxima over groups
of entries are such a part. They cost one pass over the scores, the bound excludes almost every
group, and from there on only the entries that are left are touched, in the backward pass too.
Estimates of a threshold that select the keys to look at are known from sparse attention (EntmaxKV,
arXiv:2605.21649; AdaSplash-2, arXiv:2604.15180).

Shapes depend on the data here, which suits eager execution on a CPU; `eotcourse.simplex` takes
the plain way everywhere else and where the support isn't sparse.
"""

import math
from typing import NamedTuple

import numpy as np
import torch

from . import _newton

SHORTEST = 128
DENSEST = 0.5
_GROUP = 8
MULTIPLE = 4 * _GROUP
_CHUNK = 1 << 22


class Support(NamedTuple):
    """The entries that may have weight, and the soft maximum of every row, shape (r, 1)."""

    flat: torch.Tensor
    row: torch.Tensor
    p: torch.Tensor
    zeta: torch.Tensor


def pays(rows, alpha, tau):
    """Whether `find` is worth a try: see there."""
    least, most = torch.as_tensor(alpha).aminmax() if rows.numel() else (1, 1)
    return (
        type(rows) in (torch.Tensor, torch.nn.Parameter)
        and rows.device.type == "cpu"
        and rows.shape[-1] >= SHORTEST
        and rows.numel() > 0
        and not isinstance(tau, torch.Tensor)
        and bool(_newton.NEAR <= least and most <= 2)
    )


def find(rows, alpha, tau):
    """The support of every row of `rows` (r, n), or None where this way doesn't pay.

    `alpha` is a number or of shape (r, 1), between `_newton.NEAR` and 2; `tau` is a number. It
    doesn't pay for a support that isn't sparse, and isn't made for NaN and +inf.
    """
    r, n = rows.shape
    step = max(1, _CHUNK // n)
    found = []
    for i in range(0, r, step):
        part = slice(i, i + step)
        order = alpha[part] if isinstance(alpha, torch.Tensor) else alpha
        chunk = _find(rows[part], order, tau)
        if chunk is None:
            return None
        found.append(chunk._replace(flat=chunk.flat + i * n, row=chunk.row + i) if i else chunk)
    return Support(*(torch.cat(parts) for parts in zip(*found)))


def _find(x, alpha, tau):
    r, n = x.shape
    missing = -n % MULTIPLE
    if missing:
        x = torch.nn.functional.pad(x, (0, missing), value=-math.inf)
    screened = screen(x, alpha, tau)
    if screened is None:
        return None
    support = survivors(x, alpha, tau, screened, DENSEST * n)
    if support is not None and missing:
        support.flat.sub_(support.row * missing)
    return support


class Screened(NamedTuple):
    """What one pass over the scores says: the top of every row, maxima over groups, a bound.

    `kappa`, shape (r, 1), is a lower bound of the threshold for scores relative to the top.
    """

    top: torch.Tensor
    maxima: torch.Tensor
    kappa: torch.Tensor


def screen(x, alpha, tau):
    """`Screened` for rows whose length is a `MULTIPLE`, or None if one holds NaN or +inf.

    `alpha` is at least `_newton.NEAR`; above 2 it must be a number.
    """
    r, n = x.shape
    # Groups of entries a stride of m apart: their maxima are sums over vectors of neighbours.
    m = n // _GROUP
    maxima = x.view(r, _GROUP, m).amax(1)
    split = 8 if m >= 1024 else 4 if m >= 256 else 1
    coarse = maxima.view(r, split, m // split).amax(1) if split > 1 else maxima
    top = coarse.amax(-1, keepdim=True)
    if not bool(top.amax() < math.inf):
        return None
    return Screened(top, maxima, _bound(coarse, top, alpha, tau))


def survivors(x, alpha, tau, screened, most, mean=math.inf):
    """The support of rows that were screened, or None where it isn't sparse.

    Sparse is at most `most` entries that may have weight in a row, and at most `mean` in a row on
    average.
    """
    r, n = x.shape
    top, maxima, kappa = screened
    m = n // _GROUP
    a = alpha - 1
    eps = torch.finfo(x.dtype).eps
    # Rounding of the bound, and of its way back to the units of the scores. Comparing and listing
    # is several times faster by NumPy.
    reach = tau / a
    cut = top + kappa * reach - 4 * eps * (top.abs() + 4 * reach)
    above = maxima.numpy() > cut.numpy()
    if np.count_nonzero(above) > mean * r:  # each has one such entry at least
        return None
    group = torch.from_numpy(np.flatnonzero(above))
    group_row = torch.div(group, m, rounding_mode="floor")
    # Places as short as they can be: reading them is most of what reading the entries costs.
    short = torch.int32 if x.numel() < 1 << 31 else torch.int64
    first = (group + group_row * (_GROUP - 1) * m).to(short)
    index = first.unsqueeze(1) + torch.arange(0, _GROUP * m, m, dtype=short)
    values = x.view(-1).index_select(0, index.view(-1))
    above = values.view(-1, _GROUP).numpy() > cut.index_select(0, group_row).numpy()
    keep = torch.from_numpy(np.flatnonzero(above))
    if len(keep) > mean * r:
        return None
    row = group_row.index_select(0, torch.div(keep, _GROUP, rounding_mode="floor"))
    flat = index.view(-1).index_select(0, keep).long()
    count = torch.bincount(row, minlength=r)
    width = int(count.max())
    if width > most:
        return None
    # Column by column: the sums of Newton's method then run over whole vectors of rows.
    rank = torch.arange(len(flat)) - (torch.cumsum(count, 0) - count).index_select(0, row)
    place = rank * r + row
    y = torch.full((width * r,), -math.inf, dtype=x.dtype)
    y.scatter_(0, place, values.index_select(0, keep))
    empty = top == -math.inf
    y = (y.view(width, r) - torch.where(empty, 0.0, top).mT) * _columns(a / tau)
    if not isinstance(alpha, torch.Tensor) and alpha > 2:
        p, zeta = _newton.solve(y.mT / a, alpha)
        p, zeta = p.mT.reshape(-1), zeta.unsqueeze(-1)
    else:
        alpha = _columns(alpha)
        base = y.sub_(kappa.mT).clamp_min_(0)
        kappa = _newton.climb(base, kappa.mT, alpha, 0)
        p, _ = _newton.power(base, 1 / (alpha - 1))
        p, zeta = (p / p.sum(0)).view(-1), (1 + kappa.mT) / a
    zeta = torch.where(empty, -math.inf, top / tau + zeta)
    return Support(flat, row, p.index_select(0, place), zeta)


def _columns(x):
    """A number, or one value per row as one per column."""
    return x.mT if isinstance(x, torch.Tensor) else x


def _bound(entries, top, alpha, tau):
    """A lower bound of kappa, shape (r, 1), from some entries of each row, `top` among them."""
    if not isinstance(alpha, torch.Tensor) and alpha > 2:  # Newton's steps could overshoot
        _, zeta = _newton.solve((entries - top) / tau, alpha)
        return (alpha - 1) * zeta.unsqueeze(-1) - 1
    kappa = torch.full_like(top.mT, -1.0)
    y = ((entries - top) * ((alpha - 1) / tau)).mT.contiguous()
    base = y.add_(1).clamp_min_(0)
    return _newton.rise(base, kappa, _columns(1 / (alpha - 1)), 0, times=3)[0].mT
