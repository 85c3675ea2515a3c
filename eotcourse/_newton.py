"""The soft maximum of the Tsallis family by Newton's method, on plain rows without gradient.

The weights are p = exp_a(z - zeta) with exp_a the inverse of log_a(x) = (x^(a-1) - 1)/(a-1), and
zeta makes them sum to one. The function solved is log_a of the sum of the weights: as a function
of zeta it is convex and decreasing for 1 <= a <= 2 (minus a constant it is the r-norm of
(y - kappa)_+, r = 1/(a-1)), so that Newton's steps from a lower bound rise to the root and need
no bracket; at a = 1 the first step is the log-sum-exp.

Three ways to write the same weights share the work. Below `NEAR` the gap z - zeta is kept and
log1p turns it into log p, which survives a = 1. Up to 2, kappa = (a-1) zeta - 1 is kept and
p = (y - kappa)_+^r with y = (a-1) z, which doesn't cancel for small weights. Above 2 an error of
kappa moves small weights by its (a-1)-th root, and the smallest weight itself is the unknown.
"""

import math

import torch

NEAR = 1.2
_CHUNK = 1 << 18
_STEPS = 300


def solve(theta, alpha):
    """Weights and soft maxima for rows of scaled scores; `alpha` is a number or broadcasts.

    >>> solve(torch.tensor([[1.0, 0.5, 0.0]]), 1.5)
    (tensor([[0.6242, 0.2917, 0.0841]]), tensor([1.4199]))
    """
    n = theta.shape[-1]
    p = torch.empty(theta.shape, dtype=theta.dtype, device=theta.device)
    if n == 0:
        return p, theta.new_full(theta.shape[:-1], -math.inf)
    rows, weights = theta.reshape(-1, n), p.view(-1, n)
    zeta = rows.new_empty(len(rows), 1)
    if isinstance(alpha, torch.Tensor):
        alpha = alpha.expand(theta.shape[:-1] + (1,)).reshape(-1, 1)
    step = max(1, _CHUNK // n)
    for i in range(0, len(rows), step):
        part = slice(i, i + step)
        order = alpha[part] if isinstance(alpha, torch.Tensor) else alpha
        weights[part], zeta[part] = _solve_rows(rows[part], order)
    return p, zeta.reshape(theta.shape[:-1])


def _solve_rows(rows, alpha):
    top = rows.amax(-1, keepdim=True)
    empty = top == -math.inf
    z = torch.where(empty, 0.0, rows - top)
    if not isinstance(alpha, torch.Tensor):
        p, zeta = (_near if alpha < NEAR else _far if alpha <= 2 else _steep)(z, alpha)
    else:
        near, steep = (alpha < NEAR).squeeze(-1), (alpha > 2).squeeze(-1)
        p, zeta = torch.empty_like(z), torch.empty_like(top)
        for select, method in ((near, _near), (~near & ~steep, _far), (steep, _steep)):
            if bool(select.any()):
                p[select], zeta[select] = method(z[select], alpha[select])
    return torch.where(empty, 0.0, p), torch.where(empty, -math.inf, top + zeta)


def near_weights(gap, a):
    """exp_a of z - zeta, and t = a * gap cut off at -1, where the weight is 0."""
    t = (a * gap).clamp_min(-1)
    return torch.where(t == 0, gap, gap * (t.log1p() / t)).exp(), t


def _near(z, alpha):
    a = alpha - 1
    info = torch.finfo(z.dtype)
    z = z.clamp_min(-math.sqrt(info.max))  # a * -inf is NaN at alpha = 1
    zeta = torch.zeros_like(z[:, :1])
    for _ in range(_STEPS):
        p, t = near_weights(z - zeta, a)
        mass = p.sum(-1, keepdim=True)
        response = (p / (1 + t).clamp_min(info.tiny)).sum(-1, keepdim=True)
        log_mass = mass.log()
        t = a * log_mass
        step = torch.where(t == 0, log_mass, log_mass * (t.expm1() / t))
        step = step * (-t).exp() * mass / response
        zeta = zeta + step
        if not bool((step > 4 * info.eps * zeta.clamp_min(1)).any()):
            break
    return p / mass, zeta


def power(base, r):
    """`base` >= 0 to the power r, and to the power r - 1 (0 where the base is 0)."""
    whole = isinstance(r, float) and round(r)
    if 1 <= whole <= 5 and abs(r - whole) < 1e-12:
        if whole == 1:
            return base, base.sign()
        lower = base
        for _ in range(whole - 2):
            lower = lower * base
        return base * lower, lower
    # Not torch.pow: the last entries of a row must be rounded like the others. The clamps keep
    # zeros and subnormal numbers, which are slow, out of the elementary functions.
    positive = base.clamp_min(torch.finfo(base.dtype).tiny)
    least = math.log(torch.finfo(base.dtype).tiny) + 1
    upper = (positive.log() * r).clamp_min_(least).exp_().mul_(base.sign())
    return upper, upper / positive


def newton_step(base, r, dim):
    """Newton's step of kappa towards sum one, from base = (y - kappa)_+."""
    if isinstance(r, float) and r == 2 and dim == -1:  # one pass where the norm is a fast one
        norm = torch.linalg.vector_norm(base, dim=dim, keepdim=True)
        return (norm - 1) * norm / base.sum(dim, keepdim=True)
    upper, lower = power(base, r)
    mass = upper.sum(dim, keepdim=True)
    return (mass - mass ** (1 - 1 / r)) / lower.sum(dim, keepdim=True)


def rise(base, kappa, r, dim, times=1):
    """Some of Newton's steps from a lower bound: where they end, and the last of them.

    `base` is (y - kappa)_+ and is kept so. No step is downward: at the root rounding would make
    one, and give weight to entries that have none.
    """
    for _ in range(times):
        step = newton_step(base, r, dim).clamp_min_(0)
        base.sub_(step).clamp_min_(0)
        kappa = kappa + step
    return kappa, step


def climb(base, kappa, alpha, dim=-1):
    """Root kappa of sum (y - kappa)_+^r = 1 for alpha <= 2, from a lower bound; rows top at 0.

    `base` is (y - kappa)_+ at the bound and becomes that of the root.
    """
    r = 1 / (alpha - 1)
    eps = torch.finfo(base.dtype).eps
    most = alpha.max() if isinstance(alpha, torch.Tensor) else alpha
    # Where Newton's method doubles the digits with every step, the one after a small step is exact.
    enough = 0.03 * math.sqrt(eps) if most <= 1.5 else 4 * eps
    for _ in range(_STEPS):
        kappa, step = rise(base, kappa, r, dim)
        if not bool((step > -enough * kappa).any()):
            break
    return kappa


def _far(z, alpha):
    base = ((alpha - 1) * z).add_(1).clamp_min_(0)
    kappa = climb(base, torch.full_like(base[:, :1], -1.0), alpha)
    p, _ = power(base, 1 / (alpha - 1))
    return p / p.sum(-1, keepdim=True), (1 + kappa) / (alpha - 1)


def _steep(z, alpha):
    """Above 2: the unknown is w, the smallest weight of the support, at the entry z_k.

    The others are p_i = (a (z_i - z_k) + w^a)^(1/a) with a = alpha - 1: norms of a pair of which w
    is one part, hence convex in w, so that Newton's steps fall from w = 1/|S| to the root.
    """
    a = alpha - 1
    edge = _edge(z, a)
    on = z >= edge
    other = _above_edge(z, edge, a)
    w = 1 / on.sum(-1, keepdim=True).to(z.dtype)
    for _ in range(_STEPS):
        big, small = torch.maximum(other, w), torch.minimum(other, w)
        p = torch.where(on, big * (1 + (small / big) ** a) ** (1 / a), 0.0)
        slope = torch.where(on, (w / p) ** (a - 1), 0.0).sum(-1, keepdim=True)
        step = (p.sum(-1, keepdim=True) - 1) / slope
        if not bool((step > 4 * torch.finfo(z.dtype).eps * w).any()):
            break
        w = w - step.clamp_min(0)  # an upward step is rounding at the root
    return p / p.sum(-1, keepdim=True), (1 - w**a) / a + edge


def _above_edge(z, edge, a):
    return (a * (z - edge).clamp_min(0)) ** (1 / a)


def _edge(z, a):
    """The smallest entry of the support: the last, in order, for which the others leave room."""
    down = z.sort(-1, descending=True).values
    low = torch.zeros_like(z[:, :1], dtype=torch.long)
    high = torch.full_like(low, z.shape[-1] - 1)
    while bool((low < high).any()):
        middle = (low + high + 1) // 2
        fits = _above_edge(z, down.gather(1, middle), a).sum(-1, keepdim=True) < 1
        low, high = torch.where(fits, middle, low), torch.where(fits, high, middle - 1)
    return down.gather(1, low)
