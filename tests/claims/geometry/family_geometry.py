"""Claims of the page "Every member has its geometry"."""

import math

import mpmath
import numpy as np
import torch
from claims import claim
from claims.geometry.sphere import riemann
from scipy.special import softmax

from eotcourse import Shannon, Tsallis, geometry

ORDERS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)


def rows(seed, count, orders=ORDERS, low=2):
    """Weights of a member away from every edge, with the scores, the temperature and a step of the
    face; every third row is made sparse where its member can be."""
    rng, found = np.random.default_rng(seed), 0
    while found < count:
        alpha, tau = orders[found % len(orders)], float(rng.choice([0.6, 1.0, 2.3]))
        n = int(rng.integers(low, 8))
        s = torch.as_tensor(rng.normal(0, (0.3, 0.3, 1.5)[found % 3] * tau, n))
        rule = Tsallis(alpha)
        margin = (alpha - 1) * (s / tau - rule.threshold(s, tau)) + 1
        p = rule(s, tau)
        on = p > 0
        if margin.abs().min() < 0.05 or on.sum() < 2:
            continue
        found += 1
        v = torch.where(on, torch.as_tensor(rng.normal(size=n)), 0.0)
        v = torch.where(on, v - v.sum() / on.sum(), 0.0)
        yield rng, rule, alpha, tau, s, p, v


def weights_change(rule, s, tau, h=1e-6):
    """The Jacobian of the map by central differences."""
    steps = h * torch.eye(len(s), dtype=s.dtype)
    return torch.stack([(rule(s + d, tau) - rule(s - d, tau)) / (2 * h) for d in steps], -1)


def lower(p, v, alpha, tau):
    return geometry.Metric(p, Tsallis(alpha), tau) @ v


def remove(x, u, on):
    """What J G leaves of a vector on the support."""
    x = torch.where(on, x, 0.0)
    return x - u * x.sum() / u.sum()


@claim(
    "thm-family-metric",
    part="(a) inverse on the face",
    result="T5.7",
    tol=2e-7,
    instances=63,
    real=dict(
        lower=lower,
        left=remove,
        penalty=lambda x, al: mpmath.mpf(x) * mpmath.log(x) if al == 1 else x**al / (al * (al - 1)),
    ),
    mutants={
        "response in the numerator": dict(
            lower=lambda p, v, al, tau: lower(p, v, 4 - al, tau)
        ),
        "temperature missing": dict(lower=lambda p, v, al, tau: lower(p, v, al, 1.0)),
        "Fisher-Rao for all": dict(lower=lambda p, v, al, tau: lower(p, v, 1.0, tau)),
        "plain mean removed": dict(
            left=lambda x, u, on: torch.where(on, x - x[on].mean(), 0.0)
        ),
        "penalty without alpha": dict(
            penalty=lambda x, al: mpmath.mpf(x) * mpmath.log(x) if al == 1 else x**al / (al - 1)
        ),
    },
    covers=("eq-family-geometry-metric",),
)
def inverse(impl):
    """J by central differences of the map: J G v = v for a step of the face, J G J = J, and J G x
    for any x on the support against the oblique projection; <v, G v> against a second difference of
    the regulariser with 40 digits.  Orders 1 to 3, with sparse rows."""
    for rng, rule, alpha, tau, s, p, v in rows(0, 63):
        on = p > 0
        u = torch.where(on, torch.where(on, p, 1.0) ** (2 - alpha), 0.0)
        J = weights_change(rule, s, tau)
        w = torch.as_tensor(rng.normal(size=len(s)))
        x = torch.where(on, w, 0.0)
        with mpmath.workdps(40):
            h = mpmath.mpf("1e-12")
            values = [
                mpmath.fsum(
                    impl.penalty(mpmath.mpf(a) + k * h * mpmath.mpf(b), mpmath.mpf(alpha))
                    for a, b in zip(p[on].tolist(), v[on].tolist(), strict=True)
                )
                for k in (-1, 0, 1)
            ]
            second = float((values[0] - 2 * values[1] + values[2]) / h**2)
        square = float(v @ impl.lower(p, v, alpha, tau))
        worst = [abs(tau * second - square) / (1 + abs(square))]
        for y, expected in ((v, v), (J @ w, J @ w), (x, impl.left(x, u, on))):
            low = impl.lower(p, y, alpha, tau)
            worst.append(float((J @ low - expected).abs().max() / (1 + low.abs().max())))
        yield max(worst)


def loss_of(rng, n):
    v, w = torch.as_tensor(rng.normal(size=(n, 3))), torch.as_tensor(rng.normal(size=3))
    return lambda p: torch.sin(p @ v).sum() + torch.exp((p @ v) @ w / 3)


@claim(
    "thm-family-metric",
    part="(b) gradients",
    result="T5.7",
    tol=2e-6,
    instances=63,
    real=dict(
        inner=lambda p, v, w, alpha, tau: geometry.Metric(p, Tsallis(alpha), tau).inner(v, w),
        centre=lambda g, p: geometry.project(g, p > 0),
    ),
    mutants={
        "Fisher-Rao for all": dict(
            inner=lambda p, v, w, al, tau: geometry.Metric(p, Shannon(), tau).inner(v, w)
        ),
        "temperature missing": dict(
            inner=lambda p, v, w, al, tau: geometry.Metric(p, Tsallis(al)).inner(v, w)
        ),
        "mean under the weights": dict(
            centre=lambda g, p: torch.where(p > 0, g - p @ g, 0.0)
        ),
        "keys without weight answer": dict(centre=lambda g, p: geometry.project(g)),
        "other sign": dict(centre=lambda g, p: -geometry.project(g, p > 0)),
    },
)
def gradients(impl):
    """A nonlinear loss through the map, by central differences in the scores: its inner product in
    G with a step of the face against the directional derivative of the loss, and numpy's
    pseudo-inverse of the differences of the map applied to it against the centred gradient in the
    weights; at orders 1.25 and 1.5 every other row has one more key, at the edge (nearer to order
    2 the differences converge too slowly there)."""
    h = 1e-6
    for i, (rng, rule, alpha, tau, s, p, v) in enumerate(rows(1, 63)):
        if alpha in (1.25, 1.5) and i % 2:
            edge = tau * (rule.threshold(s, tau) - 1 / (alpha - 1))
            s = torch.cat([s, edge.reshape(1)])
            p, v = (torch.cat([x, x.new_zeros(1)]) for x in (p, v))
        loss, q = loss_of(rng, len(s)), p.clone().requires_grad_()
        steps = h * torch.eye(len(s), dtype=s.dtype)
        ends = [torch.stack([loss(rule(s + d, tau)) for d in x]) for x in (steps, -steps)]
        gs = (ends[0] - ends[1]) / (2 * h)
        (g,) = torch.autograd.grad(loss(q), q)
        J = weights_change(rule, s, tau)
        back = torch.from_numpy(np.linalg.pinv(J.numpy(), rcond=1e-4)) @ gs
        gs = torch.where(p > 0, gs, 0.0)  # rounding of the differences
        yield max(
            float((impl.inner(p, gs, v, alpha, tau) - g @ v).abs()),
            float((back - impl.centre(g, p)).abs().max()),
        ) / (1 + float(g.abs().max()))


def embed(p, alpha, tau):
    return geometry.embedding(p, Tsallis(alpha), tau)


@claim(
    "thm-family-metric",
    part="(c) the surface",
    result="T5.7",
    tol=1e-7,
    instances=105,
    real=dict(embed=embed, radius=lambda alpha, tau: 2 * math.sqrt(tau) / alpha),
    mutants={
        "half the power": dict(
            embed=lambda p, al, tau: 2 * math.sqrt(tau) / al * p**al
        ),
        "temperature without its root": dict(
            embed=lambda p, al, tau: embed(p, al, 1.0) * tau
        ),
        "factor 2/alpha forgotten": dict(embed=lambda p, al, tau: embed(p, al, tau) * al / 2),
        "a sphere for all": dict(radius=lambda al, tau: 2 * math.sqrt(tau)),
    },
    covers=("eq-family-geometry-surface",),
)
def surface(impl):
    """Central differences of the embedding along a step against tau sum v^2 p^(alpha-2) in numpy,
    and its equation; positive rows of all orders."""
    rng = np.random.default_rng(2)
    for i in range(105):
        alpha, tau, n = ORDERS[i % 7], (0.6, 1.0, 2.3)[i % 3], int(rng.integers(2, 8))
        p, v = softmax(rng.normal(size=n)), rng.normal(size=n)
        v -= v.mean()
        ends = [impl.embed(torch.as_tensor(p + h * v), alpha, tau).numpy() for h in (-1e-6, 1e-6)]
        y = impl.embed(torch.as_tensor(p), alpha, tau).numpy()
        square = tau * (v * v * p ** (alpha - 2)).sum()
        yield max(
            abs((((ends[1] - ends[0]) / 2e-6) ** 2).sum() / square - 1),
            abs((y ** (2 / alpha)).sum() / impl.radius(alpha, tau) ** (2 / alpha) - 1),
        )


@claim(
    "thm-family-metric",
    part="(d) a key is split",
    result="T5.7",
    tol=1e-12,
    instances=105,
    real=dict(factor=lambda r, alpha: (r**alpha).sum(), blind=1.0),
    mutants={
        "no member sees it": dict(factor=lambda r, al: 1.0),
        "power of the response": dict(factor=lambda r, al: (r ** (2 - al)).sum()),
        "copies counted": dict(factor=lambda r, al: len(r) ** (1 - al)),
        "sparsemax is blind": dict(blind=2.0),
    },
)
def split(impl):
    """Squared lengths of a step before and after one key is shared among two to four copies, in the
    package's metric; the term's factor is 1 for one order only."""
    rng = np.random.default_rng(3)
    for i in range(105):
        alpha, n, k = ORDERS[i % 7], int(rng.integers(2, 6)), int(rng.integers(2, 5))
        p, v = softmax(rng.normal(size=n)), rng.normal(size=n)
        v -= v.mean()
        r = softmax(rng.normal(size=k))
        big = [torch.as_tensor(np.concatenate([x[0] * r, x[1:]])) for x in (p, v)]
        after = geometry.Metric(big[0], Tsallis(alpha)).inner(big[1], big[1])
        rest = (v[1:] ** 2 / p[1:] ** (2 - alpha)).sum()
        term = v[0] ** 2 / p[0] ** (2 - alpha)
        seen = abs((r**alpha).sum() - 1) > 1e-9
        yield max(
            abs(float(after) - rest - impl.factor(r, alpha) * term) / (rest + term),
            float(seen == (alpha == impl.blind)),
        )


def minimal(alpha, tau):
    """The metric in the first n - 1 weights."""
    second = lambda p: p ** (alpha - 2)  # noqa: E731
    return lambda q: tau * (torch.diag(second(q)) + second(1 - q.sum()))


def planes(seed, count, sizes=(3, 4, 5)):
    rng = np.random.default_rng(seed)
    for i in range(count):
        n = sizes[i % len(sizes)]
        p = torch.as_tensor(0.8 * softmax(rng.normal(size=n)) + 0.2 / n)
        x, y = torch.as_tensor(rng.normal(size=(2, n)))
        yield ORDERS[i % 7], (0.6, 1.0, 2.3)[i % 2], p, x - x.mean(), y - y.mean()


def formula(p, x, y, alpha, tau, power=1.0):
    """The formula of the statement, pair by pair."""
    u = p ** (2 - alpha)
    xi, eta = x / u.sqrt(), y / u.sqrt()
    top = bottom = 0.0
    for i in range(len(p)):
        for j in range(i):
            area = float(xi[i] * eta[j] - xi[j] * eta[i]) ** 2
            top += float(p[i] * p[j]) ** (power * (1 - alpha)) * area
            bottom += area
    return (2 - alpha) ** 2 / (4 * tau * float(u.sum())) * top / bottom


def package(p, x, y, alpha, tau):
    return float(geometry.sectional_curvature(p, x, y, Tsallis(alpha), tau))


@claim(
    "prop-family-curvature",
    part="(a) Gauss against Christoffel",
    result="T5.7",
    tol=1e-8,
    instances=7,
    real=dict(formula=formula, package=package, metric=minimal),
    mutants={
        "a quarter for all": dict(package=lambda p, x, y, al, tau: 1 / (4 * tau)),
        "temperature multiplies": dict(
            package=lambda p, x, y, al, tau: package(p, x, y, al, 1.0) * tau
        ),
        "square missing": dict(
            formula=lambda p, x, y, al, tau: formula(p, x, y, al, tau) / (2 - al if al != 2 else 1)
        ),
        "power of the response": dict(
            formula=lambda p, x, y, al, tau: formula(p, x, y, al, tau, -1.0)
        ),
        "last key forgotten": dict(
            metric=lambda al, tau: lambda q: tau * torch.diag(q ** (al - 2))
        ),
    },
    covers=("eq-family-geometry-curvature",),
)
def gauss(impl):
    """Riemann's tensor from Christoffel symbols in minimal coordinates, by automatic
    differentiation, against the formula written out pair by pair and against the package."""
    for alpha, tau, p, x, y in planes(4, 7):
        K = riemann(impl.metric(alpha, tau), p[:-1], x[:-1], y[:-1])
        yield max(
            abs(K - impl.formula(p, x, y, alpha, tau)), abs(K - impl.package(p, x, y, alpha, tau))
        )


@claim(
    "prop-family-curvature",
    part="(b) special values",
    result="T5.7",
    tol=1e-11,
    instances=105,
    real=dict(
        package=package,
        centre=lambda m, alpha, tau: (2 - alpha) ** 2 / (4 * tau) * m ** (alpha - 1),
    ),
    mutants={
        "number of keys forgotten": dict(centre=lambda m, al, tau: (2 - al) ** 2 / (4 * tau)),
        "number of keys squared": dict(
            centre=lambda m, al, tau: (2 - al) ** 2 / (4 * tau) * m ** (2 * al - 2)
        ),
        "temperature missing": dict(package=lambda p, x, y, al, tau: package(p, x, y, al, 1.0)),
        "sign": dict(package=lambda p, x, y, al, tau: -package(p, x, y, al, tau)),
        "curvature one": dict(package=lambda p, x, y, al, tau: 4 * package(p, x, y, al, tau)),
    },
)
def special(impl):
    """The package at random rows: 1/(4 tau) at order 1, 0 at 2, positive elsewhere; and at equal
    weights in random planes, up to eight keys."""
    for alpha, tau, p, x, y in planes(5, 105, (3, 4, 5, 8)):
        K, m = impl.package(p, x, y, alpha, tau), len(p)
        known = {1.0: 1 / (4 * tau), 2.0: 0.0}.get(alpha)
        off = float(K <= 0) if known is None else abs(K - known)
        equal = impl.package(torch.full_like(p, 1 / m), x, y, alpha, tau)
        yield max(off, abs(equal - impl.centre(m, alpha, tau)))


def three(p, alpha, tau):
    u = p ** (2 - alpha)
    return float((2 - alpha) ** 2 * p.prod() ** (1 - alpha) / (4 * tau * u.sum() ** 2))


@claim(
    "prop-family-curvature",
    part="(c) three keys and the rim",
    result="T5.7",
    tol=1e-10,
    instances=56,
    real=dict(
        three=three,
        package=package,
        rim=lambda alpha: 1 - alpha if alpha < 2 else alpha - 3,
    ),
    mutants={
        "sum of responses not squared": dict(
            three=lambda p, al, tau: three(p, al, tau) * float((p ** (2 - al)).sum())
        ),
        "factor missing": dict(three=lambda p, al, tau: three(p, al, tau) * 2),
        "one behaviour at the rim": dict(rim=lambda al: 1 - al),
        "temperature squared": dict(
            package=lambda p, x, y, al, tau: package(p, x, y, al, tau) / tau
        ),
    },
)
def triangle(impl):
    """The closed form against the package at random rows, and the exponent with which curvature
    moves when the third weight falls from 1e-30 to 1e-32, to a thousandth; orders 1.25 to 3.5."""
    rng = np.random.default_rng(6)
    for i in range(56):
        alpha, tau = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5)[i % 7], (0.6, 2.3)[i % 2]
        p = torch.as_tensor(softmax(rng.normal(size=3)))
        x, y = torch.as_tensor(rng.normal(size=(2, 3)))
        x, y = x - x.mean(), y - y.mean()
        K = impl.package(p, x, y, alpha, tau)
        off = abs(K - impl.three(p, alpha, tau)) / (1 + K)
        if alpha != 2:
            ends = []
            for small in (1e-30, 1e-32):
                q = torch.tensor([0.4, 0.6 - small, small], dtype=torch.float64)
                ends.append(math.log(impl.three(q, alpha, tau)))
            slope = (ends[0] - ends[1]) / math.log(100)
            off = max(off, abs(slope - impl.rim(alpha)) - 1e-3)
        yield off


def block(s, sizes, alphas, taus, shared=False):
    """Rows one after the other, each with its member."""
    parts = s.split(sizes)
    if shared:
        return Tsallis(alphas[0])(s, taus[0])
    return torch.cat([Tsallis(a)(x, t) for x, a, t in zip(parts, alphas, taus, strict=True)])


@claim(
    "prop-product-geometry",
    part="(a) blocks",
    result="E41",
    tol=1e-7,
    instances=24,
    real=dict(
        rows=block,
        lower=lambda p, v, alpha, tau: geometry.Metric(p, Tsallis(alpha), tau) @ v,
        raised=lambda p, g, alpha, tau: geometry.Metric(p, Tsallis(alpha), tau).sharp(g),
    ),
    mutants={
        "one simplex for all keys": dict(
            rows=lambda s, sizes, alphas, taus: block(s, sizes, alphas, taus, shared=True)
        ),
        "one temperature for all rows": dict(
            lower=lambda p, v, al, tau: geometry.Metric(p, Tsallis(al)) @ v
        ),
        "one member for all rows": dict(
            raised=lambda p, g, al, tau: geometry.Metric(p, Shannon(), tau).sharp(g)
        ),
        "Euclidean gradient": dict(raised=lambda p, g, al, tau: geometry.project(g, p > 0)),
    },
)
def blocks(impl):
    """Central differences of all rows in all scores, three rows with different members and
    temperatures: entries between rows are 0, the matrix undoes the metrics of the rows, and applied
    to the gradient of a loss that couples the rows it is the gradient row by row."""
    rng = np.random.default_rng(7)
    for i in range(24):
        sizes = [int(k) for k in rng.integers(2, 5, 3)]
        alphas, taus = (1.0, (1.25, 1.5)[i % 2], 1.75), (0.6, 1.0, 2.3)
        s = torch.as_tensor(rng.normal(0, 0.3, sum(sizes)))
        f = lambda s, _: impl.rows(s, sizes, alphas, taus)  # noqa: E731
        J = weights_change(f, s, None)
        p = f(s, None)
        g = torch.autograd.functional.jacobian(loss_of(rng, len(s)), p)
        row = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
        worst = [float(J[row[:, None] != row].abs().max())]
        at = 0
        for k, a, t in zip(sizes, alphas, taus, strict=True):
            part = slice(at, at + k)
            at += k
            v = torch.as_tensor(rng.normal(size=k))
            v = v - v.mean()
            step = torch.zeros_like(s)
            step[part] = impl.lower(p[part], v, a, t)
            moved = torch.zeros_like(s)
            moved[part] = v
            worst.append(float((J @ step - moved).abs().max()))
            worst.append(float(((J @ g)[part] - impl.raised(p[part], g[part], a, t)).abs().max()))
        yield max(worst) / (1 + float(g.abs().max()))


def pythagoras(p, q, tau):
    return float((tau * geometry.fisher_rao_distance(p, q) ** 2).sum().sqrt())


@claim(
    "prop-product-geometry",
    part="(b) Pythagoras",
    result="E41",
    tol=2e-6,
    instances=40,
    real=dict(
        distance=pythagoras,
        product=lambda p, q: float(geometry.fisher_rao_distance(p, q, product=0)),
        path=geometry.fisher_rao_geodesic,
    ),
    mutants={
        "distances add": dict(
            distance=lambda p, q, tau: float(
                (tau.sqrt() * geometry.fisher_rao_distance(p, q)).sum()
            )
        ),
        "temperature missing": dict(
            distance=lambda p, q, tau: pythagoras(p, q, torch.ones_like(tau))
        ),
        "temperature not under the root": dict(
            distance=lambda p, q, tau: pythagoras(p, q, tau**2)
        ),
        "one long row": dict(
            product=lambda p, q: float(
                geometry.fisher_rao_distance(p.flatten() / len(p), q.flatten() / len(q))
            )
        ),
        "rows one after the other": dict(
            path=lambda p, q, t: torch.cat(
                [
                    geometry.fisher_rao_geodesic(p[:1], q[:1], (2 * t).clamp(max=1)),
                    geometry.fisher_rao_geodesic(p[1:], q[1:], (2 * t - 1).clamp(min=0)),
                ],
                1,
            )
        ),
    },
    covers=("eq-family-geometry-pythagoras",),
)
def product(impl):
    """Length of the joint path by sums of sqrt(sum tau v^2/p) over its steps, against the root of
    the summed squares; bent paths and other speeds are longer."""
    rng = np.random.default_rng(8)
    t = torch.linspace(0, 1, 1001, dtype=torch.float64)
    for _ in range(40):
        p, q = torch.as_tensor(softmax(rng.normal(size=(2, 3, 4)), axis=-1))
        tau = torch.tensor([0.6, 1.0, 2.3], dtype=p.dtype)

        def length(path, tau=tau):
            v, middle = path[1:] - path[:-1], (path[1:] + path[:-1]) / 2
            return float((tau[:, None] * v * v / middle).sum((-2, -1)).sqrt().sum())

        path, d = impl.path(p, q, t), impl.distance(p, q, tau)
        w = torch.as_tensor(rng.normal(0, 0.5, (3, 4)))
        bent = path * (torch.sin(torch.pi * t)[:, None, None] * w).exp()
        slow = torch.stack(
            [geometry.fisher_rao_geodesic(p[k], q[k], t ** (1 + k)) for k in range(3)], 1
        )
        square = float((geometry.fisher_rao_distance(p, q) ** 2).sum())
        yield max(
            abs(length(path) - d) / d,
            max(0.0, d - length(bent / bent.sum(-1, keepdim=True))),
            max(0.0, d - length(slow)),
            abs(impl.product(p, q) - math.sqrt(square)),
        )


@claim(
    "prop-product-geometry",
    part="(c) no curvature across rows",
    result="E41",
    tol=1e-8,
    instances=6,
    real=dict(metric=lambda one, two: torch.block_diag(one, two), second=lambda y: y),
    mutants={
        "rows coupled": dict(
            metric=lambda one, two: torch.block_diag(one * two[0, 0], two)
        ),
        "plane within one row": dict(second=lambda y: y.flip(0)),
        "one row scales the other": dict(
            metric=lambda one, two: torch.block_diag(one, two / one[0, 0])
        ),
    },
)
def across(impl):
    """Riemann's tensor of two rows of three keys, from Christoffel symbols of the metric in four
    coordinates, for a step of the one row and a step of the other."""
    rng = np.random.default_rng(9)
    for i in range(6):
        a, b = minimal(ORDERS[i % 3], 0.6), minimal((1.5, 1.0)[i % 2], 2.3)
        p, q = softmax(rng.normal(size=(2, 3)), axis=-1)
        at = torch.as_tensor(np.concatenate([p[:2], q[:2]]))
        x, y = torch.zeros(2, 4, dtype=at.dtype)
        x[:2], y[2:] = torch.as_tensor(rng.normal(size=(2, 2)))
        metric = lambda z, a=a, b=b: impl.metric(a(z[:2]), b(z[2:]))  # noqa: E731
        yield abs(riemann(metric, at, x, impl.second(y)))
