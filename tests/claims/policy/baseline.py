"""Claims of the page "The baseline that kernels read off the output"."""

import itertools

import numpy as np
import torch
from claims import claim
from torch.nn.functional import scaled_dot_product_attention

from eotcourse import Shannon, Tsallis, entmax, policy, softmax

ORDERS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)


def member(alpha):
    return Shannon() if alpha == 1 else Tsallis(alpha)


def normal(rng, *shape):
    return torch.as_tensor(rng.normal(size=shape))


def temperature(rng):
    return float(rng.choice([0.6, 1.0, 2.3]))


def largest(x):
    return float(x.detach().abs().max())


def slopes(f, x, h=1e-6):
    """Central differences of f, which takes a batch of rows, in each entry of x, in front.

    The backward pass of the package is built on the Jacobian in question: no witness.
    """
    steps = h * torch.eye(len(x), dtype=x.dtype)
    return (f(x + steps) - f(x - steps)) / (2 * h)


def excess(smaller, larger):
    """By how much an inequality fails, allowing for rounding of quantities of order one."""
    return max(0.0, float(smaller - larger) - 1e-12)


def inside(alpha, s, tau):
    """Whether no key is close to the edge of the support."""
    z = (alpha - 1) * (s / tau - member(alpha).threshold(s, tau)) + 1
    return alpha < 2 or float(z.abs().min()) > 1e-2


def rows(seed, count, orders=ORDERS, low=2, high=8):
    """A member, one row of scores with no key at the edge, a temperature, and its weights."""
    rng, found = np.random.default_rng(seed), 0
    while found < count:
        alpha, tau = orders[found % len(orders)], temperature(rng)
        s = 1.5 * normal(rng, int(rng.integers(low, high)))
        if inside(alpha, s, tau):
            found += 1
            yield rng, alpha, s, tau, member(alpha)(s, tau)


def score_grads(p, v, out, g, tau, delta):
    return p * (g @ v.T + delta(g, out)[:, None]) / tau


@claim(
    "thm-flash-baseline",
    part="(a) softmax: the product with the output",
    result="T4.2",
    tol=1e-11,
    instances=100,
    real=dict(delta=policy.flash_baseline, grads=score_grads),
    mutants={
        "sign flipped": dict(delta=lambda g, o: -policy.flash_baseline(g, o)),
        "summed over the rows": dict(delta=lambda g, o: -(g * o).sum(0)),
        "mean instead of sum": dict(delta=lambda g, o: -(g * o).mean(-1)),
        "no baseline": dict(delta=lambda g, o: 0 * g.sum(-1)),
        "temperature missing": dict(
            grads=lambda p, v, o, g, tau, d: score_grads(p, v, o, g, 1.0, d)
        ),
        "plus, as in the source": dict(
            grads=lambda p, v, o, g, tau, d: -score_grads(p, v, o, g, tau, d)
        ),
    },
    covers=("eq-flash-backward",),
)
def output_product(impl):
    """rowsum(dO * O) against the weighted mean of the utilities by numpy, the advantages against
    -<g, v_j - c>, and P (dP - rowsum)/tau against the gradient that autograd takes through torch's
    SDPA, read off with keys e_j so that the query is the row of scores.  Square, so that a wrong
    axis has a fitting shape."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        n, tau = int(rng.integers(2, 9)), temperature(rng)
        s = (2 * normal(rng, n, n)).requires_grad_()
        v, g = normal(rng, n, n), normal(rng, n, n)
        keys = torch.eye(n, dtype=s.dtype)
        out = scaled_dot_product_attention(s[None], keys[None], v[None], scale=1 / tau)[0]
        (auto,) = torch.autograd.grad(out, s, g)
        p, out = softmax(s.detach(), tau), out.detach()
        use = -np.einsum("id,jd->ij", g, v)
        mean = torch.as_tensor((p.numpy() * use).sum(-1))
        far = torch.einsum("id,ijd->ij", g, v[None] - out[:, None])
        yield max(
            largest(impl.delta(g, out) - mean),
            largest(torch.as_tensor(use) - impl.delta(g, out)[:, None] + far),
            largest(impl.grads(p, v, out, g, tau, impl.delta) - auto),
        )


def mean_value(p, v, alpha):
    u = member(alpha).response(p)
    return u @ v / u.sum()


@claim(
    "thm-flash-baseline",
    part="(b) other members: the mean under the response",
    result="T4.2",
    tol=1e-7,
    instances=140,
    real=dict(mean=mean_value),
    mutants={
        "the output": dict(mean=lambda p, v, al: p @ v),
        "plain mean over the support": dict(mean=lambda p, v, al: v[p > 0].mean(0)),
        "plain mean over all keys": dict(mean=lambda p, v, al: v.mean(0)),
        "not normalised": dict(mean=lambda p, v, al: member(al).response(p) @ v),
        "power alpha of the weights": dict(mean=lambda p, v, al: p**al @ v / (p**al).sum()),
    },
)
def response_mean(impl):
    """Central differences of <g, output> in the scores must be (u/tau)(<g, v_j> - <g, c_u>), with u
    from numpy; and c_u is the output exactly for softmax and for equal positive weights."""
    for i, (rng, alpha, s, tau, _) in enumerate(rows(1, 140)):
        s = torch.where(s > s.median(), s.max(), s.max() - 50) if i % 4 == 3 else s
        v, g, p = normal(rng, len(s), 3), normal(rng, 3), member(alpha)(s, tau)
        slope = slopes(lambda x, v=v, g=g, m=member(alpha), t=tau: m(x, t) @ v @ g, s)
        on = p.numpy() > 0
        u = torch.as_tensor(np.where(on, np.where(on, p.numpy(), 1.0) ** (2 - alpha), 0.0))
        c_u = impl.mean(p, v, alpha)
        off = largest(u * (v @ g - c_u @ g) / tau - slope) / (1 + largest(u) / tau)
        equal = alpha == 1 or float(p[p > 0].max() - p[p > 0].min()) < 1e-14
        apart = largest(c_u - p @ v)
        yield max(off, apart if equal else float(apart < 1e-6))


@claim(
    "thm-flash-baseline",
    part="(c) multipliers, as in dropout",
    result="T4.2",
    tol=1e-11,
    instances=100,
    real=dict(
        delta=policy.flash_baseline,
        grads=lambda p, m, gv, d, tau: p * (m * gv + d) / tau,
    ),
    mutants={
        "baseline of the output without dropout": dict(delta=lambda g, o: -(g * o).sum(-1) / 0.7),
        "multiplier on the baseline too": dict(
            grads=lambda p, m, gv, d, tau: p * m * (gv + d) / tau
        ),
        "multiplier forgotten": dict(grads=lambda p, m, gv, d, tau: p * (gv + d) / tau),
        "temperature missing": dict(grads=lambda p, m, gv, d, tau: p * (m * gv + d)),
    },
)
def multipliers(impl):
    """Autograd through (softmax * m) v for random masks divided by the rate kept, against
    P (m dP + baseline)/tau with the baseline from the dropped output alone."""
    rng = np.random.default_rng(2)
    for _ in range(100):
        n, tau = int(rng.integers(2, 9)), temperature(rng)
        s = (2 * normal(rng, n)).requires_grad_()
        v, g = normal(rng, n, 4), normal(rng, 4)
        m = torch.as_tensor((rng.uniform(size=n) < 0.7) / 0.7)
        p = softmax(s, tau)
        out = (m * p) @ v
        (auto,) = torch.autograd.grad(out @ g, s)
        mine = impl.grads(p.detach(), m, v @ g, impl.delta(g, out.detach()), tau)
        yield largest(mine - auto)


def by_torch(q, k, v, tau):
    """Torch's attention for one query, a vector."""
    return scaled_dot_product_attention(q[None, None], k[None], v[None], scale=1 / tau)[0, 0]


def query_jacobian(p, k, v, tau, alpha):
    return policy.query_jacobian(p, k, v, tau, member(alpha))


def second_moment(p, k, v, tau):
    return torch.einsum("j,jx,jy->xy", p, v, k) / tau


COVARIANCE_MUTANTS = {
    "transposed": dict(jacobian=lambda p, k, v, tau, al: query_jacobian(p, v, k, tau, al)),
    "temperature missing": dict(
        jacobian=lambda p, k, v, tau, al: query_jacobian(p, k, v, 1.0, al)
    ),
    "not centred": dict(jacobian=lambda p, k, v, tau, al: second_moment(p, k, v, tau)),
    "weights not used": dict(
        jacobian=lambda p, k, v, tau, al: query_jacobian(
            torch.full_like(p, 1 / len(p)), k, v, tau, al
        )
    ),
}


@claim(
    "thm-covariance",
    part="(a) softmax: the covariance over tau",
    result="T4.3",
    tol=1e-11,
    instances=100,
    real=dict(jacobian=query_jacobian),
    mutants=COVARIANCE_MUTANTS,
    covers=("eq-covariance",),
)
def softmax_covariance(impl):
    """Autograd's Jacobian of torch's SDPA in its query against Cov_p(v, k)/tau; keys and values
    have the same size, so that a transposed covariance has a fitting shape."""
    rng = np.random.default_rng(3)
    for _ in range(100):
        n, tau = int(rng.integers(2, 8)), temperature(rng)
        q, k, v = normal(rng, 3), normal(rng, n, 3), normal(rng, n, 3)

        def attend(x, k=k, v=v, tau=tau):
            return by_torch(x, k, v, tau)

        exact = torch.autograd.functional.jacobian(attend, q)
        yield largest(impl.jacobian(softmax(k @ q, tau), k, v, tau, 1.0) - exact)


@claim(
    "thm-covariance",
    part="(b) gradients of query, keys and values",
    result="T4.3",
    tol=1e-11,
    instances=100,
    real=dict(
        to_query=lambda p, k, v, g, tau: policy.covariance(p, k, v) @ g / tau,
        to_keys=lambda ds, q, k: ds[:, None] * q,
        to_values=lambda p, g: p[:, None] * g,
    ),
    mutants={
        "query: transposed": dict(
            to_query=lambda p, k, v, g, tau: policy.covariance(p, v, k) @ g / tau
        ),
        "query: temperature missing": dict(
            to_query=lambda p, k, v, g, tau: policy.covariance(p, k, v) @ g
        ),
        "query: sign flipped": dict(
            to_query=lambda p, k, v, g, tau: -policy.covariance(p, k, v) @ g / tau
        ),
        "keys: the key for the query": dict(to_keys=lambda ds, q, k: ds[:, None] * k),
        "values: without the weight": dict(to_values=lambda p, g: g.expand(len(p), -1)),
    },
)
def three_gradients(impl):
    """Autograd of <g, SDPA> in query, keys and values against the three closed forms."""
    rng = np.random.default_rng(4)
    for _ in range(100):
        n, tau = int(rng.integers(2, 8)), temperature(rng)
        q, k, v = (normal(rng, *shape).requires_grad_() for shape in ((3,), (n, 3), (n, 3)))
        g = normal(rng, 3)
        out = by_torch(q, k, v, tau)
        dq, dk, dv = torch.autograd.grad(out @ g, (q, k, v))
        q, k, v = (x.detach() for x in (q, k, v))
        p = softmax(k @ q, tau)
        ds = policy.score_gradient(-v @ g, p, tau)
        yield max(
            largest(impl.to_query(p, k, v, g, tau) - dq),
            largest(impl.to_keys(ds, q, k) - dk),
            largest(impl.to_values(p, g) - dv),
        )


def norm(M):
    return float(torch.linalg.matrix_norm(M, 2))


def diameter(x):
    return float(torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").max())


def sharp(dv, dk, tau):
    return dv * dk / (4 * tau)


@claim(
    "thm-covariance",
    part="(c) the bound of softmax, and that it is attained",
    result="T4.3",
    tol=1e-10,
    instances=240,
    real=dict(bound=sharp, diameter=diameter),
    mutants={
        "twice too small": dict(bound=lambda dv, dk, tau: sharp(dv, dk, tau) / 2),
        "twice too large": dict(bound=lambda dv, dk, tau: 2 * sharp(dv, dk, tau)),
        "temperature missing": dict(bound=lambda dv, dk, tau: sharp(dv, dk, 1.0)),
        "temperature squared": dict(bound=lambda dv, dk, tau: sharp(dv, dk, tau**2)),
        "radius for diameter": dict(diameter=lambda x: float((x - x.mean(0)).norm(dim=-1).max())),
        "values do not count": dict(bound=lambda dv, dk, tau: dk / (4 * tau)),
    },
)
def softmax_bound(impl):
    """The operator norm of autograd's Jacobian against the bound, for random rows and for rows
    with few distinct keys; equality for two keys with equal scores."""
    rng = np.random.default_rng(5)
    for i in range(240):
        tau = temperature(rng)
        n = 2 if i % 2 else int(rng.integers(2, 8))
        q, k, v = normal(rng, 4), normal(rng, n, 4), normal(rng, n, 3)
        if i % 2:
            k = k - torch.outer(k @ q, q) / (q @ q)
        J = torch.autograd.functional.jacobian(lambda x, k=k, v=v, t=tau: softmax(k @ x, t) @ v, q)
        limit = impl.bound(impl.diameter(v), impl.diameter(k), tau)
        yield abs(norm(J) - limit) if i % 2 else excess(norm(J), limit)


@claim(
    "thm-covariance",
    part="(d) every member",
    result="T4.3",
    tol=1e-7,
    instances=210,
    real=dict(
        jacobian=query_jacobian,
        factor=lambda p, alpha: float(member(alpha).response(p).sum()),
        most=lambda m, alpha: m ** (alpha - 1),
    ),
    mutants={
        **COVARIANCE_MUTANTS,
        "covariance under p": dict(
            jacobian=lambda p, k, v, tau, al: member(al).response(p).sum()
            * policy.covariance(p, v, k)
            / tau
        ),
        "factor forgotten": dict(
            jacobian=lambda p, k, v, tau, al: policy.covariance(member(al).response(p), v, k) / tau
        ),
        "bound of softmax": dict(factor=lambda p, al: 1.0),
        "exponent of the support": dict(most=lambda m, al: m ** (2 - al)),
        "support counted down": dict(most=lambda m, al: (m - 1) ** (al - 1)),
    },
)
def every_member(impl):
    """Central differences of the output against the covariance form; their norm against the bound
    with the factor, with equality for two equal scores; and the factor against |S| to the power
    alpha - 1 up to order 2, with equality for equal weights.  Diameters over the support."""
    for i, (rng, alpha, s, tau, _) in enumerate(rows(6, 210)):
        n = 2 if i % 3 == 2 else len(s)
        q = normal(rng, 3)
        k, v = 1.5 * normal(rng, n, 3), normal(rng, n, 3)
        if i % 3 == 2:
            k = k - torch.outer(k @ q, q) / (q @ q)
        while not inside(alpha, k @ q, tau):
            k = k + 0.1 * normal(rng, n, 3)
        J = slopes(lambda x, k=k, v=v, a=alpha, t=tau: entmax(x @ k.T, a, t) @ v, q).T
        p = entmax(k @ q, alpha, tau)
        on = p > 0
        limit = impl.factor(p, alpha) * sharp(diameter(v[on]), diameter(k[on]), tau)
        most, m = impl.most(float(on.sum()), alpha), int(on.sum())
        exact = float(member(alpha).response(p).sum())
        level = float(member(alpha).response(torch.full_like(p[on], 1 / m)).sum())
        yield max(
            largest(impl.jacobian(p, k, v, tau, alpha) - J) / (1 + largest(J)),
            (abs(norm(J) - limit) if i % 3 == 2 else excess(norm(J), limit)) / (1 + norm(J)),
            excess(exact, most) if alpha <= 2 else 0.0,
            abs(level - most) / most,
        )


@claim(
    "thm-covariance",
    part="(d) no bound above order 2",
    result="T4.3",
    tol=1e-6,
    instances=60,
    real=dict(order=lambda a: a, growth=lambda t, a, tau: t ** (2 - a) / tau),
    mutants={
        "order 2": dict(order=lambda a: 2.0),
        "temperature missing": dict(growth=lambda t, a, tau: t ** (2 - a)),
        "exponent of the response": dict(growth=lambda t, a, tau: t ** (1 - a) / tau),
        "bounded by twice 1/tau": dict(growth=lambda t, a, tau: min(t ** (2 - a), 2.0) / tau),
    },
)
def no_bound(impl):
    """Scores that give the weights (1 - 2t, t, t): the slope of the output e_2 - e_3 under a small
    change of query along it, by central differences of the map, against its growth as t falls."""
    for i in range(60):
        alpha, tau = (2.25, 2.5, 3.0)[i % 3], (0.7, 1.0, 2.0)[i // 3 % 3]
        t = 10.0 ** -(1 + i // 9 * 0.25)
        a = impl.order(alpha)
        weak = (t ** (a - 1) - (1 - 2 * t) ** (a - 1)) / (a - 1) * tau
        s = torch.tensor([0.0, weak, weak], dtype=torch.float64)
        h = 1e-4 * tau * t ** (alpha - 1)
        d = torch.tensor([0.0, h, -h], dtype=torch.float64)
        moved = (entmax(s + d, a, tau) - entmax(s - d, a, tau)) / (2 * h)
        slope = float(moved[1] - moved[2]) / 2
        yield abs(slope / impl.growth(t, alpha, tau) - 1)


@claim(
    "thm-covariance",
    part="(e) tied keys and values",
    result="T4.3",
    tol=1e-7,
    instances=105,
    real=dict(
        jacobian=query_jacobian,
        potential=lambda s, tau, alpha: member(alpha).conjugate(s, tau),
    ),
    mutants={
        "sign flipped": dict(
            jacobian=lambda p, k, v, tau, al: -query_jacobian(p, k, v, tau, al)
        ),
        "value of scaled scores": dict(
            potential=lambda s, tau, al: member(al).conjugate(s, tau) / tau
        ),
        "soft maximum for the value": dict(
            potential=lambda s, tau, al: tau * member(al).threshold(s, tau)
        ),
        "values not tied": dict(
            jacobian=lambda p, k, v, tau, al: query_jacobian(p, k, v.flip(0), tau, al)
        ),
    },
)
def tied(impl):
    """Central differences of V(Kq) against the output; symmetry, and the smallest eigenvalue."""
    h = 1e-5
    for rng, alpha, s, tau, _ in rows(7, 105):
        q, k = normal(rng, 3), normal(rng, len(s), 3)
        while not inside(alpha, k @ q, tau):
            q = normal(rng, 3)
        p = entmax(k @ q, alpha, tau)
        steps = h * torch.eye(3, dtype=q.dtype)
        slope = torch.stack(
            [
                impl.potential(k @ (q + d), tau, alpha) - impl.potential(k @ (q - d), tau, alpha)
                for d in steps
            ]
        ) / (2 * h)
        J = impl.jacobian(p, k, k, tau, alpha)
        lowest = float(torch.linalg.eigvalsh((J + J.T) / 2)[0])
        yield max(largest(slope - p @ k), largest(J - J.T), max(0.0, -lowest - 1e-12))


def half(spread, tau):
    return spread / (2 * tau)


@claim(
    "thm-gradient-bounds",
    part="(a) softmax",
    result="T4.7",
    tol=1e-11,
    instances=200,
    real=dict(
        gradient=lambda a, p, tau: policy.score_gradient(a, p, tau), bound=half
    ),
    mutants={
        "bound halved": dict(bound=lambda r, tau: half(r, tau) / 2),
        "bound not sharp": dict(bound=lambda r, tau: r / tau),
        "temperature missing in the bound": dict(bound=lambda r, tau: r / 2),
        "gradient of sparsemax": dict(
            gradient=lambda a, p, tau: policy.score_gradient(a, p, tau, Tsallis(2.0))
        ),
        "no baseline": dict(gradient=lambda a, p, tau: -p * a / tau),
    },
)
def softmax_gradient(impl):
    """Sum of absolute gradients (autograd agrees with them) against the range of the utilities,
    for random rows; equality for two keys with equal scores."""
    rng = np.random.default_rng(8)
    for i in range(200):
        tau, n = temperature(rng), 2 if i % 2 else int(rng.integers(2, 8))
        s = ((0.0 if i % 2 else 1.5) * normal(rng, n)).requires_grad_()
        a = 2 * normal(rng, n) + 1
        p = softmax(s, tau)
        (auto,) = torch.autograd.grad(-(p @ a), s)
        mine = impl.gradient(a, p.detach(), tau)
        total, limit = float(mine.abs().sum()), impl.bound(float(a.max() - a.min()), tau)
        gap = abs(total - limit) if i % 2 else excess(total, limit)
        yield max(largest(mine - auto), gap)


@claim(
    "thm-gradient-bounds",
    part="(b) every member",
    result="T4.7",
    tol=1e-7,
    instances=210,
    real=dict(
        factor=lambda p, alpha: float(member(alpha).response(p).sum()),
        times=lambda m, alpha: m ** (alpha - 1),
    ),
    mutants={
        "bound of softmax": dict(factor=lambda p, al: 1.0),
        "size of the support": dict(factor=lambda p, al: float((p > 0).sum())),
        "exponent of the response": dict(times=lambda m, al: m ** (2 - al)),
        "root of the support": dict(times=lambda m, al: m**0.5),
    },
)
def member_gradient(impl):
    """Central differences of <p(s), a>: the sum of their absolute values against the factor times
    half the range on the support; equality, with the stated ratio to softmax's bound, for equal
    scores and two utilities."""
    for i, (rng, alpha, s, tau, _) in enumerate(rows(9, 210)):
        m = 2 * int(rng.integers(1, 6))
        level = i % 2 == 1
        s = torch.zeros(m, dtype=torch.float64) if level else s
        a = 2 * normal(rng, len(s)) + 1
        a = torch.where(torch.arange(m) % 2 == 0, a[0], a[1]) if level else a
        p = member(alpha)(s, tau)
        slope = slopes(lambda x, a=a, m=member(alpha), t=tau: m(x, t) @ a, s)
        spread = float(a[p > 0].max() - a[p > 0].min())
        total, limit = float(slope.abs().sum()), impl.factor(p, alpha) * half(spread, tau)
        gap = abs(total - limit) if level else excess(total, limit)
        ratio = abs(total / half(spread, tau) - impl.times(m, alpha)) if level else 0.0
        yield max(gap, ratio) / (1 + limit)


def corner_bound(n, p_max, alpha, tau):
    return 2 / tau * (n - 1) ** (alpha - 1) * (1 - p_max) ** (2 - alpha)


def response_norm(p, alpha, tau):
    return norm(member(alpha).jacobian(p, tau).dense())


@claim(
    "thm-gradient-bounds",
    part="(c) saturation below order 2",
    result="T4.7",
    tol=1e-11,
    instances=240,
    real=dict(bound=corner_bound, norm=response_norm),
    mutants={
        "half of it": dict(bound=lambda n, p, al, tau: corner_bound(n, p, al, tau) / 2),
        "proportional to the missing weight": dict(
            bound=lambda n, p, al, tau: 2 / tau * (n - 1) ** (al - 1) * (1 - p)
        ),
        "without the number of keys": dict(
            bound=lambda n, p, al, tau: 2 / tau * (1 - p) ** (2 - al)
        ),
        "temperature missing": dict(bound=lambda n, p, al, tau: corner_bound(n, p, al, 1.0)),
        "sparsemax": dict(norm=lambda p, al, tau: response_norm(p, 2.0, tau)),
    },
)
def corner(impl):
    """The operator norm of the Jacobian at weights whose largest is 1 - 10^-k, the others equal or
    random, against the bound."""
    rng = np.random.default_rng(10)
    for i in range(240):
        alpha, tau, n = (1.0, 1.25, 1.5, 1.75)[i % 4], temperature(rng), int(rng.integers(2, 12))
        t = 10.0 ** -rng.uniform(0.5, 8)
        rest = np.full(n - 1, 1 / (n - 1)) if i % 2 else rng.dirichlet(np.ones(n - 1))
        p = torch.as_tensor(np.concatenate([[1 - t], t * rest]))
        p_max = float(p.max())
        yield excess(impl.norm(p, alpha, tau), impl.bound(n, p_max, alpha, tau))


@claim(
    "thm-gradient-bounds",
    part="(c) two keys",
    result="T4.7",
    tol=1e-6,
    instances=60,
    real=dict(
        limit=lambda a, tau: 0.0 if a < 2 else 1 / tau if a == 2 else 2 / tau, norm=response_norm
    ),
    mutants={
        "all members fall silent": dict(limit=lambda a, tau: 0.0),
        "one over tau above order 2 too": dict(limit=lambda a, tau: 0.0 if a < 2 else 1 / tau),
        "temperature missing": dict(limit=lambda a, tau: 0.0 if a < 2 else 1.0 if a == 2 else 2.0),
        "softmax for all": dict(norm=lambda p, a, tau: response_norm(p, 1.0, tau)),
        "sparsemax for all": dict(norm=lambda p, a, tau: response_norm(p, 2.0, tau)),
    },
)
def two_keys(impl):
    """The operator norm, by singular values, at the weights (1 - t, t) against its limit: t is
    10^-40, and at order 2, where every t must give it, 0.1 and smaller."""
    orders = (1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 4.0)
    for i, (alpha, tau) in enumerate(itertools.product(orders, (0.5, 0.9, 1.0, 2.3, 3.0, 5.0))):
        t = 10.0 ** -(1 + i % 6) if alpha == 2 else 1e-40
        p = torch.tensor([1 - t, t], dtype=torch.float64)
        yield abs(impl.norm(p, alpha, tau) - impl.limit(alpha, tau))
