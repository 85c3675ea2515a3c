"""Claims of the page "Design your own mechanism"."""

import numpy as np
import torch
import torch.nn.functional as F
from claims import claim
from scipy.optimize import brentq, minimize
from scipy.special import rel_entr, xlogy

from eotcourse import Regularizer, Shannon, Tsallis, attention, fenchel_young_loss

f64 = torch.float64


def tensor(x):
    return torch.as_tensor(np.asarray(x), dtype=f64)


class Reluctant(Regularizer):
    """From its penalty alone."""

    def penalty(self, p):
        return (p**2 / 2 + p**3).sum(-1)


class ReluctantRule(Regularizer):
    """The same mechanism, from its rule alone."""

    def pointwise(self, gap):
        return ((1 + 12 * gap.relu()).sqrt() - 1) / 6


class Softplus(Regularizer):
    def pointwise(self, gap):
        return F.softplus(gap)


class Logarithm(Regularizer):
    """Rule log(1 + x), phi = exp(p) - 1 - p."""

    def pointwise(self, gap):
        return torch.log1p(gap.relu())


# Each with its phi in numpy, for the solvers that know nothing of the classes.
MINE = {
    "reluctant": (ReluctantRule(), lambda p: p**2 / 2 + p**3),
    "logarithm": (Logarithm(), lambda p: np.expm1(p) - p),
    "sparsemax": (Tsallis(2.0), lambda p: (p**2 - p) / 2),
    "shannon": (Shannon(), lambda p: xlogy(p, p)),
}


def weights(name, s, tau):
    return MINE[name][0](tensor(s), tau).numpy()


def divided(name, s, tau):
    g = MINE[name][0].pointwise(tensor(s) / tau + 1).numpy()
    return g / g.sum(-1, keepdims=True)


def best(f, sizes):
    """The maximiser of a concave function on a product of simplices, by SLSQP."""
    ends = np.cumsum(sizes)
    blocks = [slice(b - n, b) for n, b in zip(sizes, ends)]
    x0 = np.concatenate([np.full(n, 1 / n) for n in sizes])
    return minimize(
        lambda p: -f(np.maximum(p, 0)), x0, method="SLSQP", bounds=[(0, 1)] * ends[-1],
        constraints=[
            {"type": "eq", "fun": lambda p, b=b: p[b].sum() - 1} for b in blocks
        ],
        options={"ftol": 1e-14, "maxiter": 300},
    ).x


@claim(
    "prop-threshold-rule",
    part="maximiser",
    result="T3.6",
    tol=1e-6,
    instances=80,
    real=dict(weights=weights),
    mutants={
        "divided by the sum instead of shifted": dict(weights=divided),
        "temperature twice": dict(weights=lambda name, s, tau: weights(name, s, tau**2)),
        "temperature ignored": dict(weights=lambda name, s, tau: weights(name, s, 1.0)),
        "rule of the neighbour": dict(
            weights=lambda name, s, tau: weights(
                {"shannon": "sparsemax", "sparsemax": "logarithm"}.get(name, "shannon"), s, tau
            )
        ),
        "worst key first": dict(weights=lambda name, s, tau: weights(name, -s, tau)),
    },
)
def maximiser(impl):
    """Weights of threshold rules against SLSQP on the objective with phi written out in numpy: how
    much better SLSQP's point is, and one hundredth of how far it is."""
    rng = np.random.default_rng(0)
    for i in range(80):
        name = list(MINE)[i % 4]
        phi = MINE[name][1]
        n, tau = int(rng.integers(2, 5)), rng.uniform(0.5, 2)
        s = rng.normal(0, 1, n)

        def objective(p):
            return s @ p - tau * phi(p).sum()

        p, q = impl.weights(name, s, tau), best(objective, [n])
        yield max(abs(p.sum() - 1), objective(q) - objective(p), np.abs(p - q).max() / 100)


def penalty_way(s, tau):
    R = Reluctant()
    p = R(s, tau)
    return p, R.omega(p), R.response(p)


def rule_way(s, tau):
    R = ReluctantRule()
    p = R(s, tau)
    return p, R.omega(p), R.response(p)


@claim(
    "prop-threshold-rule",
    part="two ways to say it",
    result="T3.6",
    tol=1e-10,
    instances=6,
    real=dict(one=penalty_way, other=rule_way),
    mutants={
        "penalty of the other rule": dict(
            one=lambda s, tau: (p := Logarithm()(s, tau), Logarithm().omega(p), 1 + 0 * p)
        ),
        "regulariser without its cube": dict(
            one=lambda s, tau: (
                penalty_way(s, tau)[0], penalty_way(s, tau)[0].square().sum(-1) / 2,
                penalty_way(s, tau)[2],
            )
        ),
        "second derivative for its inverse": dict(
            other=lambda s, tau: (*rule_way(s, tau)[:2], 1 / rule_way(s, tau)[2])
        ),
    },
)
def two_ways(impl):
    """One mechanism from its penalty and from its rule: the same weights, the same regulariser
    (the second one integrated), the same response."""
    rng = np.random.default_rng(1)
    for _ in range(6):
        s, tau = tensor(rng.normal(0, 1.5, 3)), float(rng.uniform(0.3, 2))
        a, b = impl.one(s, tau), impl.other(s, tau)
        yield max(float((x - y).abs().max()) for x, y in zip(a, b))


SLOPES = {"reluctant": (0.0, 4.0), "logarithm": (0.0, np.e - 1), "sparsemax": (0.0, 1.0)}


@claim(
    "prop-threshold-rule",
    part="zeros and margin",
    result="T3.6",
    tol=0.0,
    instances=120,
    real=dict(weights=weights, margin=lambda name, tau: tau * (SLOPES[name][1] - SLOPES[name][0])),
    mutants={
        "margin in scaled units": dict(margin=lambda name, tau: SLOPES[name][1]),
        "values of phi for slopes": dict(
            margin=lambda name, tau: tau * (MINE[name][1](1.0) - MINE[name][1](0.0))
        ),
        "margin of sparsemax for all": dict(margin=lambda name, tau: tau),
        "softmax has a margin": dict(weights=lambda name, s, tau: weights("shannon", s, tau)),
        "divided by the sum": dict(weights=divided),
    },
)
def margin(impl):
    """Violations: a lead a little over the margin gives exactly one-hot weights, a little less does
    not, with further keys further behind; softplus and softmax never give a zero."""
    rng = np.random.default_rng(2)
    for i in range(120):
        tau, n = rng.uniform(0.4, 2), int(rng.integers(2, 6))
        if i % 4 == 3:
            s = tensor(rng.normal(0, 3, n))
            yield float((Softplus()(s, tau) == 0).any() + (Shannon()(s, tau) == 0).any())
            continue
        name = list(SLOPES)[i % 4]
        lead = impl.margin(name, tau)
        behind = np.concatenate([[0.0, lead], lead + rng.exponential(1.0, n - 2)])
        over, under = (impl.weights(name, -behind * f, tau) for f in (1.001, 0.999))
        yield float((over[1:] != 0).sum()) + float(under[1] == 0)


def by_response(name, p, tau):
    """The theorem's matrix, with u = 1/phi'' written by hand."""
    with np.errstate(divide="ignore"):
        second = {
            "reluctant": 1 + 6 * p, "logarithm": np.exp(p), "sparsemax": 1 + 0 * p, "shannon": 1 / p
        }[name]
    u = np.where(p > 0, 1 / second, 0)
    return (np.diag(u) - np.outer(u, u) / u.sum()) / tau


@claim(
    "prop-threshold-rule",
    part="Jacobian",
    result="T3.6",
    tol=1e-6,
    instances=100,
    real=dict(weights=weights, jacobian=by_response),
    mutants={
        "temperature missing": dict(jacobian=lambda name, p, tau: tau * by_response(name, p, tau)),
        "not centred": dict(
            jacobian=lambda name, p, tau: np.diag(np.diag(by_response(name, p, tau)))
        ),
        "softmax's covariance for all": dict(
            jacobian=lambda name, p, tau: (np.diag(p) - np.outer(p, p)) / tau
        ),
        "dropped keys still answer": dict(
            jacobian=lambda name, p, tau: by_response(name, np.maximum(p, 1e-9), tau)
        ),
        "divided by the sum": dict(weights=divided),
    },
    covers=("eq-design-jacobian",),
)
def jacobian(impl):
    """Central differences of the weights against the matrix with u = 1/phi'' by hand; draws with a
    key within 1e-3 of entering or leaving are redrawn."""
    rng, h, done = np.random.default_rng(3), 1e-6, 0
    while done < 100:
        name = list(MINE)[done % 4]
        n, tau = int(rng.integers(2, 6)), rng.uniform(0.5, 2)
        s = rng.normal(0, 1, n)
        p = weights(name, s, tau)
        around = np.concatenate([np.eye(n), -np.eye(n)])
        if ((weights(name, s + 1e-3 * around, tau) > 0) != (p > 0)).any():
            continue
        done += 1
        plus, minus = np.split(impl.weights(name, s + h * around, tau), 2)
        slopes = (plus - minus).T / (2 * h)
        yield np.abs(slopes - impl.jacobian(name, p, tau)).max()


def loss(alpha, s, y, tau):
    return fenchel_young_loss(tensor(s), tensor(y), Tsallis(alpha), tau, reduction="none").numpy()


def omega(alpha, p):
    if alpha == 1:
        return xlogy(p, p).sum(-1)
    return ((p**alpha).sum(-1) - 1) / (alpha * (alpha - 1))


def entmax(alpha, s, tau):
    """Weights by a root of scipy's, from the textbook threshold."""
    if alpha == 1:
        p = np.exp((s - s.max()) / tau)
        return p / p.sum()
    z = (alpha - 1) * s / tau

    def weight(kappa):
        return np.maximum(z - kappa, 0) ** (1 / (alpha - 1))

    p = weight(brentq(lambda k: weight(k).sum() - 1, z.max() - 1 - 1e-12, z.max(), xtol=1e-15))
    return p / p.sum()


def draws(seed, count):
    """alpha, scores, a target with some zeros or one-hot, a temperature."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        n, alpha = int(rng.integers(2, 7)), float(rng.choice([1.0, 1.3, 1.5, 2.0, 3.0]))
        y = np.eye(n)[0] if i % 5 == 0 else rng.dirichlet(np.ones(n))
        if i % 3 == 0 and n > 2:
            y[-1] = 0
            y /= y.sum()
        yield alpha, rng.normal(0, 1.5, n), y, float(rng.uniform(0.4, 2))


LOSS_MUTANTS = {
    "regulariser without tau": dict(
        loss=lambda a, s, y, tau: loss(a, s, y, tau) + (1 - tau) * omega(a, y)
    ),
    "regulariser with the wrong sign": dict(
        loss=lambda a, s, y, tau: loss(a, s, y, tau) - 2 * tau * omega(a, y)
    ),
    "temperature squared": dict(loss=lambda a, s, y, tau: loss(a, s, y, tau**2)),
    "in scaled units": dict(loss=lambda a, s, y, tau: loss(a, s, y, tau) / tau),
    "cross-entropy whatever alpha": dict(loss=lambda a, s, y, tau: loss(1.0, s, y, tau)),
    "squared distance": dict(
        loss=lambda a, s, y, tau: ((entmax(a, s, tau) - y) ** 2).sum() / 2
    ),
}


@claim(
    "thm-fenchel-young",
    part="shortfall",
    result="T3.10",
    tol=1e-10,
    instances=300,
    real=dict(loss=loss),
    mutants=LOSS_MUTANTS,
    covers=("eq-design-loss",),
)
def shortfall(impl):
    """The loss against the objective at brentq's maximiser minus the objective at the target, in
    numpy; never negative; zero when the target is that maximiser."""
    for alpha, s, y, tau in draws(4, 300):
        p = entmax(alpha, s, tau)
        gain = [s @ q - tau * omega(alpha, q) for q in (p, y)]
        given = impl.loss(alpha, s, y, tau)
        yield max(abs(given - (gain[0] - gain[1])), -given, abs(impl.loss(alpha, s, p, tau)))


@claim(
    "thm-fenchel-young",
    part="gradient",
    result="T3.10",
    tol=1e-6,
    instances=80,
    real=dict(loss=loss, gradient=lambda alpha, s, y, tau: entmax(alpha, s, tau) - y),
    mutants={
        "target minus prediction": dict(gradient=lambda a, s, y, tau: y - entmax(a, s, tau)),
        "divided by tau": dict(gradient=lambda a, s, y, tau: (entmax(a, s, tau) - y) / tau),
        "softmax for all": dict(gradient=lambda a, s, y, tau: entmax(1.0, s, tau) - y),
        "through the Jacobian, like a squared distance": LOSS_MUTANTS["squared distance"],
        "temperature squared": LOSS_MUTANTS["temperature squared"],
    },
)
def gradient(impl):
    """Central differences of the loss in the scores against prediction minus target; a shift of all
    scores changes nothing; the loss at a midpoint is at most the mean of the losses."""
    h = 1e-5
    for alpha, s, y, tau in draws(5, 80):
        slope = np.array([
            (impl.loss(alpha, s + e, y, tau) - impl.loss(alpha, s - e, y, tau)) / (2 * h)
            for e in h * np.eye(len(s))
        ])
        here, far = impl.loss(alpha, s, y, tau), impl.loss(alpha, s[::-1] + 1, y, tau)
        middle = impl.loss(alpha, (s + s[::-1] + 1) / 2, y, tau)
        yield max(
            np.abs(slope - impl.gradient(alpha, s, y, tau)).max(),
            abs(impl.loss(alpha, s + 7, y, tau) - here),
            middle - (here + far) / 2,
        )


def kl_loss(s, y, tau):
    return float(fenchel_young_loss(s, y, Shannon(), tau, reduction="sum"))


@claim(
    "thm-fenchel-young",
    part="Shannon",
    result="T3.10",
    tol=1e-11,
    instances=100,
    real=dict(loss=kl_loss),
    mutants={
        "without the factor tau": dict(loss=lambda s, y, tau: kl_loss(s, y, tau) / tau),
        "divergence the other way": dict(
            loss=lambda s, y, tau: tau * float(
                rel_entr(torch.softmax(s / tau, -1).numpy(), y.numpy() + 1e-9).sum()
            ) if y.is_floating_point() else kl_loss(s, y, tau)
        ),
        "scores not divided": dict(loss=lambda s, y, tau: tau * kl_loss(s, y, 1.0)),
        "entropy of the target kept": dict(
            loss=lambda s, y, tau: kl_loss(s, y, tau) - (
                tau * xlogy(y.numpy(), y.numpy()).sum() if y.is_floating_point() else 0
            )
        ),
        "over the rows": dict(
            loss=lambda s, y, tau: float(
                fenchel_young_loss(s, y, Shannon(), tau, dim=0, reduction="sum")
            ) if y.is_floating_point() else kl_loss(s, y, tau)
        ),
    },
)
def shannon(impl):
    """Against scipy's relative entropy for distributions, and torch's cross-entropy for classes."""
    rng = np.random.default_rng(6)
    for i in range(100):
        m, n, tau = int(rng.integers(1, 5)), int(rng.integers(2, 6)), rng.uniform(0.4, 2)
        s = tensor(rng.normal(0, 2, (m, n)))
        if i % 2:
            y = torch.as_tensor(rng.integers(0, n, m))
            expected = tau * float(F.cross_entropy(s / tau, y, reduction="sum"))
        else:
            y = tensor(rng.dirichlet(np.ones(n), m))
            p = np.stack([entmax(1, row, tau) for row in s.numpy()])
            expected = tau * rel_entr(y.numpy(), p).sum()
        yield abs(impl.loss(s, y, tau) - expected)


@claim(
    "thm-fenchel-young",
    part="mean target",
    result="T3.10",
    tol=1e-11,
    instances=100,
    real=dict(loss=loss),
    mutants={
        "absolute distance": dict(
            loss=lambda a, s, y, tau: np.abs(entmax(a, s, tau) - y).sum()
        ),
        "square of the loss": dict(loss=lambda a, s, y, tau: loss(a, s, y, tau) ** 2),
        "divergence the other way": dict(
            loss=lambda a, s, y, tau: rel_entr(entmax(1, s, tau), y + 1e-3).sum()
        ),
    },
)
def mean_target(impl):
    """Expected loss minus the loss of the mean target is the same number at two random scores."""
    rng = np.random.default_rng(7)
    for alpha, s, _, tau in draws(8, 100):
        n = len(s)
        chance, y = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(n), 4)
        excess = [
            sum(c * impl.loss(alpha, x, row, tau) for c, row in zip(chance, y))
            - impl.loss(alpha, x, chance @ y, tau)
            for x in (s, rng.normal(0, 1.5, n))
        ]
        yield abs(excess[0] - excess[1])


@claim(
    "thm-fenchel-young",
    part="what a small loss means",
    result="T3.10",
    tol=1e-12,
    instances=200,
    real=dict(loss=loss, bound=lambda tau, distance: tau / 2 * distance**2),
    mutants={
        "twice the bound": dict(bound=lambda tau, distance: tau * distance**2),
        "bound without tau": dict(bound=lambda tau, distance: distance**2 / 2),
        "bound linear in the distance": dict(bound=lambda tau, distance: tau / 2 * distance),
        "loss in scaled units": LOSS_MUTANTS["in scaled units"],
    },
)
def small_loss(impl):
    """Shannon is 1-strongly convex for the 1-norm, the square for the 2-norm; the loss is at least
    the bound, and for the square equal to it while no weight is zero."""
    rng = np.random.default_rng(9)
    for i in range(200):
        n, tau = int(rng.integers(2, 6)), rng.uniform(0.4, 2)
        y, s = rng.dirichlet(np.ones(n)), rng.normal(0, 1, n)
        if i % 2:
            distance = np.abs(entmax(1, s, tau) - y).sum()
            yield max(0.0, impl.bound(tau, distance) - impl.loss(1.0, s, y, tau))
        else:
            p = rng.dirichlet(np.full(n, 5.0)) * 0.9 + 0.1 / n
            s = tau * p + rng.normal()
            distance = np.linalg.norm(p - y)
            yield abs(impl.bound(tau, distance) - impl.loss(2.0, s, y, tau))


def rows_apart(rows):
    """Weights of every row and the sum of the values."""
    p = [MINE[name][0](tensor(s), tau).numpy() for name, s, tau in rows]
    v = sum(float(MINE[name][0].conjugate(tensor(s), tau)) for name, s, tau in rows)
    return p, v


def one_long_row(rows):
    """All keys of all rows compete in one simplex."""
    s = np.concatenate([s for _, s, _ in rows])
    p = weights(rows[0][0], s, rows[0][2]) * len(rows)
    cuts = np.cumsum([len(s) for _, s, _ in rows])[:-1]
    return np.split(p, cuts), rows_apart(rows)[1]


@claim(
    "thm-products",
    part="maximiser",
    result="T3.14",
    tol=1e-6,
    instances=40,
    real=dict(solve=rows_apart),
    mutants={
        "one simplex for all rows": dict(solve=one_long_row),
        "one temperature for all rows": dict(
            solve=lambda rows: rows_apart([(name, s, rows[0][2]) for name, s, _ in rows])
        ),
        "one mechanism for all rows": dict(
            solve=lambda rows: rows_apart([("shannon", s, tau) for _, s, tau in rows])
        ),
        "largest value instead of the sum": dict(
            solve=lambda rows: (rows_apart(rows)[0], max(rows_apart([r])[1] for r in rows))
        ),
    },
)
def product(impl):
    """Two rows with their own mechanism and temperature against SLSQP on the product: the sum of
    values, how much better its point is, and one hundredth of how far."""
    rng = np.random.default_rng(10)
    for _ in range(40):
        names = rng.choice(["reluctant", "logarithm", "sparsemax"], 2, replace=False)
        sizes = [int(n) for n in rng.integers(2, 4, 2)]
        rows = [
            (str(name), rng.normal(0, 1, n), rng.uniform(0.5, 2)) for name, n in zip(names, sizes)
        ]

        def objective(x):
            p = np.split(x, sizes[:1])
            return sum(s @ q - tau * MINE[name][1](q).sum() for (name, s, tau), q in zip(rows, p))

        x = best(objective, sizes)
        p, value = impl.solve(rows)
        p = np.concatenate(p)
        yield max(abs(value - objective(p)), objective(x) - objective(p), np.abs(x - p).max() / 100)


HEADS = (Shannon(), Tsallis(2.0), ReluctantRule())


def all_weights(q, k, tau):
    """Weights (heads, rows, keys) through attention, each head with its own mechanism."""
    eye = torch.eye(k.shape[-2], dtype=f64)
    return torch.stack(
        [attention(a, b, eye, scale=1 / tau, regularizer=R) for R, a, b in zip(HEADS, q, k)]
    )


@claim(
    "thm-products",
    part="blocks",
    result="T3.14",
    tol=1e-12,
    instances=8,
    real=dict(weights=all_weights),
    mutants={
        "normalised over the heads": dict(
            weights=lambda q, k, tau: (
                w := all_weights(q, k, tau)) / w.sum(0, keepdim=True).clamp(min=1e-3)
        ),
        "normalised over the rows": dict(
            weights=lambda q, k, tau: torch.softmax(q @ k.mT / tau, -2)
        ),
        "heads talk": dict(weights=lambda q, k, tau: all_weights(q + q.roll(1, 0), k, tau)),
    },
)
def blocks(impl):
    """With unit vectors as keys the scores are the queries: autograd's Jacobian of all weights in
    all scores has the blocks (diag u - uu'/sum u)/tau by hand, and zeros elsewhere."""
    rng = np.random.default_rng(11)
    for _ in range(8):
        m, n, tau = 2, int(rng.integers(2, 5)), rng.uniform(0.8, 2)
        s, k = tensor(rng.normal(0, 1, (3, m, n))), torch.eye(n, dtype=f64).expand(3, n, n)
        J = torch.autograd.functional.jacobian(lambda s: impl.weights(s, k, tau), s).numpy()
        expected = np.zeros((3, m, n, 3, m, n))
        for h, name in enumerate(("shannon", "sparsemax", "reluctant")):
            for i in range(m):
                p = weights(name, s[h, i].numpy(), tau)
                expected[h, i, :, h, i] = by_response(name, p, tau)
        yield np.abs(J - expected).max()


def output_loss(c, W):
    """A loss of the outputs (heads, e) in which an output projection makes heads meet."""
    return (c.unsqueeze(1) @ W).sum(0).tanh().square().sum()


def mixed(J, X, second):
    """The theorem's second derivative between two rows."""
    return J[0] @ X[0] @ second @ X[1].mT @ J[1]


@claim(
    "thm-products",
    part="coupling",
    result="T3.14",
    tol=1e-11,
    instances=8,
    real=dict(first=lambda J, X, g: J @ X @ g, mixed=mixed),
    mutants={
        "first derivative without J": dict(first=lambda J, X, g: X @ g),
        "values forgotten on one side": dict(
            mixed=lambda J, X, second: J[0] @ X[0] @ second @ X[0].mT @ J[1]
        ),
        "heads don't meet": dict(mixed=lambda J, X, second: 0 * mixed(J, X, second)),
        "transposed": dict(mixed=lambda J, X, second: mixed(J, X, second.mT)),
        "one Jacobian only": dict(mixed=lambda J, X, second: J[0] @ X[0] @ second @ X[1].mT),
    },
    covers=("eq-design-coupling",),
)
def coupling(impl):
    """Autograd through weights, outputs, projection and loss at once, against the formulas with the
    Jacobians by hand and the derivatives of the loss in the outputs only."""
    rng = np.random.default_rng(12)
    names, hessian = ("shannon", "sparsemax", "reluctant"), torch.autograd.functional.hessian
    for _ in range(8):
        n, tau = 3, rng.uniform(1, 2)
        S, X, W = (tensor(rng.normal(0, 0.7, shape)) for shape in ((3, n), (3, n, 2), (3, 2, 2)))

        def outputs(S):
            p = torch.stack([MINE[name][0](s, tau) for name, s in zip(names, S)])
            return (p.unsqueeze(1) @ X).squeeze(1)

        S.requires_grad_()
        (slope,) = torch.autograd.grad(output_loss(outputs(S), W), S)
        S = S.detach()
        c = outputs(S).requires_grad_()
        (g,) = torch.autograd.grad(output_loss(c, W), c)
        H = hessian(lambda S: output_loss(outputs(S), W), S)
        inner = hessian(lambda c: output_loss(c, W), c.detach())
        p = [weights(name, s.numpy(), tau) for name, s in zip(names, S)]
        J = [tensor(by_response(name, row, tau)) for name, row in zip(names, p)]
        errors = [(slope[h] - impl.first(J[h], X[h], g[h])).abs().max() for h in range(3)]
        for a, b in ((0, 1), (0, 2), (2, 1)):
            both = impl.mixed((J[a], J[b]), (X[a], X[b]), inner[a, :, b])
            errors.append((H[a, :, b] - both).abs().max())
        yield float(max(errors))
