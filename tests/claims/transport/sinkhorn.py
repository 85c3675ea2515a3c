"""Claims of the page transport/sinkhorn."""

from itertools import islice, repeat

import numpy as np
import ot
import torch
from scipy.optimize import linprog, minimize
from scipy.special import xlogy

from claims import claim
from eotcourse.transport import (
    contraction_factor,
    hilbert_distance,
    sinkhorn,
    sinkhorn_steps,
)


def _problems(seed, count, coldest=0.2):
    """Random problems; the first ones are square, for mutants that swap sides."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        m, n = (4, 4) if k < 3 else rng.integers(1, 7, size=2)
        C = rng.random(size=(m, n)) if k % 2 else rng.normal(size=(m, n))
        mu, nu = rng.dirichlet(np.full(m, 4)), rng.dirichlet(np.full(n, 4))
        yield C, mu, nu, rng.uniform(coldest, 2.0), rng


def _solve(C, mu, nu, eps):
    plan = sinkhorn(*map(torch.tensor, (C, mu, nu)), eps=eps, tol=1e-13)
    return plan.P.numpy(), plan.f.numpy(), plan.g.numpy()


def _steps(C, mu, nu, eps):
    return ((f.numpy(), g.numpy(), D.item())
            for f, g, D in sinkhorn_steps(*map(torch.tensor, (C, mu, nu)), eps=eps))


def _gibbs(C, f, g, eps):
    return np.exp((f[:, None] + g - C) / eps)


def _kl(p, q):
    return (xlogy(p, p) - xlogy(p, q) - p + q).sum()


def _entropy(p):
    return -xlogy(p, p).sum()


def _objective(C, P, eps):
    return np.vdot(C, P) - eps * _entropy(P)


def _random_plan(C, mu, nu, rng):
    """A vertex mixed with the product and with a cycle: a plan that solves nothing."""
    vertex = ot.emd(mu, nu, rng.normal(size=C.shape))
    t = rng.uniform(0.1, 1)
    return t * np.outer(mu, nu) + (1 - t) * vertex


def _transposed_masses(C, mu, nu, eps):
    return _solve(C, nu, mu, eps)


def _row_softmax(C, mu, nu, eps):
    f, g, _ = next(_steps(C, mu, nu, eps))
    return _gibbs(C, f, g, eps), f, g


SOLVE_MUTANTS = {
    "score instead of cost": dict(solve=lambda C, mu, nu, eps: _solve(-C, mu, nu, eps)),
    "eps used twice": dict(solve=lambda C, mu, nu, eps: _solve(C, mu, nu, eps**2)),
    "row and column masses swapped": dict(solve=_transposed_masses),
    "stopped after the rows": dict(solve=_row_softmax),
    "masses forgotten": dict(
        solve=lambda C, mu, nu, eps: _solve(C, *(np.full(k, 1 / k) for k in C.shape), eps)),
}


@claim(
    "thm-sinkhorn",
    part="form",
    result="T1.7",
    tol=1e-9,
    instances=20,
    real=dict(solve=_solve),
    mutants=SOLVE_MUTANTS,
)
def form(impl):
    """The plan is positive, has its masses, is a row factor times K times a column factor (the
    double differences of C + eps log P vanish), and is the plan of POT's log-domain solver."""
    for C, mu, nu, eps, _ in _problems(0, 20, coldest=0.4):
        P, f, g = impl.solve(C, mu, nu, eps)
        A = C + eps * np.log(P)
        pot = ot.sinkhorn(mu, nu, C, eps, method="sinkhorn_log", stopThr=1e-14, numItermax=20_000)
        yield max(
            np.abs(P.sum(1) - mu).max(), np.abs(P.sum(0) - nu).max(),
            np.abs(A - A[:, :1] - A[:1] + A[0, 0]).max(),
            np.abs(P - _gibbs(C, f, g, eps)).max(),
            np.abs(P - pot).max(),
            0.0 if P.min() > 0 else 1.0,
        )


@claim(
    "thm-sinkhorn",
    part="minimum",
    result="T1.7",
    tol=1e-7,
    instances=12,
    real=dict(solve=_solve),
    mutants=SOLVE_MUTANTS,
)
def minimum(impl):
    """The objective of the plan is the maximum of the dual, found by scipy's BFGS from f = g = 0,
    and the potentials attain it; no random plan, and no plan of a small step, is better."""
    for C, mu, nu, eps, rng in _problems(1, 12, coldest=0.4):
        P, f, g = impl.solve(C, mu, nu, eps)
        m = len(mu)

        def loss(x):
            Q = _gibbs(C, x[:m], x[m:], eps)
            value = x[:m] @ mu + x[m:] @ nu - eps * Q.sum() + eps
            return -value, -np.r_[mu - Q.sum(1), nu - Q.sum(0)]

        found = minimize(loss, np.zeros(sum(C.shape)), jac=True, method="BFGS",
                         options={"gtol": 1e-11, "maxiter": 2000})
        value = _objective(C, P, eps)
        better = 0.0
        for size in (1, 0.1, 1e-3):
            other = (1 - size) * P + size * _random_plan(C, mu, nu, rng)
            better = max(better, value - _objective(C, other, eps))
        yield max(abs(value + found.fun), abs(value + loss(np.r_[f, g])[0]), better)


@claim(
    "thm-sinkhorn",
    part="gap",
    result="T1.7",
    tol=1e-10,
    instances=100,
    real=dict(steps=_steps, kl=_kl),
    mutants={
        "dual without the constant eps": dict(
            steps=lambda C, mu, nu, eps: ((f, g, D - eps) for f, g, D in _steps(C, mu, nu, eps))),
        "column potential with the wrong sign": dict(
            steps=lambda C, mu, nu, eps: ((f, -g, D) for f, g, D in _steps(C, mu, nu, eps))),
        "potentials in units of eps": dict(
            steps=lambda C, mu, nu, eps: (
                (f / eps, g / eps, D) for f, g, D in _steps(C, mu, nu, eps))),
        "divergence the other way round": dict(kl=lambda p, q: _kl(q, p)),
    },
    covers=("eq-sinkhorn-gap",),
)
def gap(impl):
    """For random plans and the potentials after one to six half-steps, cost minus eps times
    entropy minus dual is eps times the divergence; the plans solve nothing."""
    for k, (C, mu, nu, eps, rng) in enumerate(_problems(2, 100)):
        f, g, D = next(islice(impl.steps(C, mu, nu, eps), k % 6, None))
        P = _random_plan(C, mu, nu, rng)
        Q = _gibbs(C, f, g, eps)
        yield abs(_objective(C, P, eps) - D - eps * impl.kl(P, Q))


def _damped(C, mu, nu, eps):
    f, g = np.zeros(len(mu)), np.zeros(len(nu))
    while True:
        f = f + eps / 2 * np.log(mu / _gibbs(C, f, g, eps).sum(1))
        yield f, g, _dual(C, mu, nu, eps, f, g)
        g = g + eps / 2 * np.log(nu / _gibbs(C, f, g, eps).sum(0))
        yield f, g, _dual(C, mu, nu, eps, f, g)


def _dual(C, mu, nu, eps, f, g):
    return f @ mu + g @ nu - eps * _gibbs(C, f, g, eps).sum() + eps


@claim(
    "thm-sinkhorn",
    part="half-step",
    result="T1.7",
    tol=1e-10,
    instances=40,
    real=dict(steps=_steps, kl=_kl),
    mutants={
        "half of the step": dict(steps=_damped),
        "columns first": dict(
            steps=lambda C, mu, nu, eps: (
                (f, g, D) for g, f, D in _steps(C.T, nu, mu, eps))),
        "masses forgotten": dict(
            steps=lambda C, mu, nu, eps: _steps(C, *(np.full(k, 1 / k) for k in C.shape), eps)),
        "divergence the other way round": dict(kl=lambda p, q: _kl(q, p)),
        "divergence of distributions only": dict(kl=lambda p, q: (p * np.log(p / q)).sum()),
    },
    covers=("eq-sinkhorn-rise",),
)
def half_step(impl):
    """From g = 0, eight half-steps: the dual, computed here, rises by eps times the divergence
    of the masses from the sums, is flat in every direction of the updated block (central
    differences), and the new plan is the projection: Pythagoras for a random plan."""
    for C, mu, nu, eps, rng in _problems(3, 40):
        f, g = np.zeros(len(mu)), np.zeros(len(nu))
        worst = 0.0
        for k, (f2, g2, D) in enumerate(islice(impl.steps(C, mu, nu, eps), 8)):
            Q, Q2 = _gibbs(C, f, g, eps), _gibbs(C, f2, g2, eps)
            want, axis = (mu, 1) if k % 2 == 0 else (nu, 0)
            # The iteration has no f before its first step; the rise holds from f = 0 as from any.
            kl = impl.kl(want, Q.sum(axis))
            rise = D - _dual(C, mu, nu, eps, f, g) - eps * kl
            P = rng.dirichlet(np.ones(C.size)).reshape(C.shape)
            P *= np.expand_dims(want / P.sum(axis), axis)
            pythagoras = impl.kl(P, Q) - impl.kl(P, Q2) - kl
            h = 1e-4 * eps
            step, turn = rng.choice([-h, h], len(mu)), rng.choice([-h, h], len(nu))
            step, turn = (step, 0.0) if axis else (0.0, turn)
            slope = (_dual(C, mu, nu, eps, f2 + step, g2 + turn)
                     - _dual(C, mu, nu, eps, f2 - step, g2 - turn)) / (2 * h)
            worst = max(worst, abs(rise), abs(pythagoras), 1e-2 * abs(slope))
            f, g = f2, g2
        yield worst


def _pairs(rng):
    """Random positive vectors, then the extremal ones of the proof."""
    for _ in range(20):
        n = rng.integers(2, 6)
        K = np.exp(rng.normal(size=(rng.integers(2, 6), n)) * rng.uniform(0.2, 2))
        yield K, *np.exp(rng.normal(size=(2, n)) * rng.uniform(0.1, 3)), False
    for _ in range(20):
        m, n = rng.integers(2, 6, size=2)
        L = rng.normal(size=(m, n)) * rng.uniform(0.3, 1.2)
        K = np.exp(L)
        cross = (L[:, None, :, None] + L[None, :, None, :]
                 - L[None, :, :, None] - L[:, None, None, :])
        i, k, j, l = np.unravel_index(cross.argmax(), cross.shape)
        y = np.full(n, 1e-12)
        y[j], y[l] = np.sqrt(K[i, l] * K[k, l] / (K[i, j] * K[k, j])), 1.0
        x, delta = y.copy(), 1e-3
        x[j], y[j] = y[j] * np.exp(delta / 2), y[j] * np.exp(-delta / 2)
        yield K, x, y, True


@claim(
    "lem-contraction",
    result="T1.7",
    tol=1e-6,
    instances=40,
    real=dict(factor=contraction_factor, distance=hilbert_distance),
    mutants={
        "an eighth of the diameter": dict(
            factor=lambda C, eps: np.tanh(np.arctanh(contraction_factor(C, eps)) / 2)),
        "squared, as for a full iteration": dict(
            factor=lambda C, eps: contraction_factor(C, eps) ** 2),
        "half of the diameter: true, not sharp": dict(
            factor=lambda C, eps: np.tanh(2 * np.arctanh(contraction_factor(C, eps)))),
        "only the largest ratio": dict(
            distance=lambda x, y: np.log(np.asarray(x) / np.asarray(y)).max()),
    },
)
def contraction(impl):
    """A random positive matrix contracts Hilbert's distance of random vectors by the factor or
    more; for the extremal vectors of the proof by the factor itself."""
    for K, x, y, sharp in _pairs(np.random.default_rng(4)):
        ratio = impl.distance(K @ x, K @ y) / impl.distance(x, y)
        excess = ratio - impl.factor(-np.log(K), 1.0)
        yield abs(excess) if sharp else max(excess, 0.0)


def _near(C, mu, nu, eps):
    """Sinkhorn's iteration, started near the solution: v after every full iteration."""
    K = np.exp(-C / eps)
    v = np.exp(_solve(C, mu, nu, eps)[2] / eps) * np.exp(1e-3 * np.arange(len(nu)))
    while True:
        yield v
        u = mu / (K @ v)
        v = nu / (K.T @ u)


def _from_ones(C, mu, nu, eps):
    yield np.ones(len(nu))
    yield from (np.exp(g / eps) for _, g, _ in islice(_steps(C, mu, nu, eps), 1, None, 2))


@claim(
    "thm-sinkhorn",
    part="rate",
    result="T1.7",
    tol=1e-5,
    instances=40,
    real=dict(
        factor=contraction_factor, distance=hilbert_distance, iterates=_from_ones,
        within=lambda k, t: (k + k**2) * k ** (2 * t - 2),
    ),
    mutants={
        "columns alone in the bound": dict(within=lambda k, t: k ** (2 * t)),
        "the bound one round early": dict(within=lambda k, t: (k + k**2) * k ** (2 * t)),
        "four factors an iteration": dict(
            factor=lambda C, eps: contraction_factor(C, eps) ** 2),
        "diameter without eps": dict(factor=lambda C, eps: contraction_factor(C, 2.0)),
        "columns never updated": dict(
            iterates=lambda C, mu, nu, eps: repeat(np.ones(len(nu)))),
        "half of the step": dict(
            iterates=lambda C, mu, nu, eps: (
                np.exp(g / eps) for _, g, _ in islice(_damped(C, mu, nu, eps), 1, None, 2))),
        "one factor an iteration: true, not sharp": dict(
            factor=lambda C, eps: contraction_factor(C, eps) ** 0.5),
    },
)
def rate(impl):
    """Five iterations on random problems: the distance to the solution shrinks by the square of
    the factor or more, and the plan is within the stated bound. On symmetric 2x2 problems,
    started near the solution, the rate is the square itself."""
    for C, mu, nu, eps, _ in _problems(5, 30):
        k = impl.factor(C, eps)
        P, _, g = _solve(C, mu, nu, eps)
        K, goal = np.exp(-C / eps), np.exp(g / eps)
        vs = list(islice(impl.iterates(C, mu, nu, eps), 6))
        d = np.array([impl.distance(v, goal) for v in vs])
        worst = np.maximum(d[1:] - k**2 * d[:-1], 0).max()
        for t in range(1, 6):
            u = mu / (K @ vs[t - 1])
            off = np.abs(np.log(u[:, None] * K * vs[t] / P)).max()
            worst = max(worst, off - impl.within(k, t) * d[0])
        yield worst
    rng = np.random.default_rng(6)
    for _ in range(10):
        C, half, eps = np.array([[0.0, 1.0], [1.0, 0.0]]), np.full(2, 0.5), rng.uniform(0.3, 2)
        goal = np.ones(2)
        d = [impl.distance(v, goal) for v in islice(_near(C, half, half, eps), 3)]
        yield abs(d[2] / d[1] - impl.factor(C, eps) ** 2)


@claim(
    "thm-entropic-limits",
    part="price",
    result="T1.8",
    tol=1e-9,
    instances=26,
    real=dict(solve=_solve, least=min),
    mutants={
        **{k: SOLVE_MUTANTS[k] for k in ("score instead of cost", "stopped after the rows")},
        "hotter than asked": dict(solve=lambda C, mu, nu, eps: _solve(C, mu, nu, 8 * eps)),
        "a colder bath is dearer": dict(solve=lambda C, mu, nu, eps: _solve(C, mu, nu, 0.4 / eps)),
        "no room at all": dict(least=lambda a, b: 0.0),
        "half of the entropy": dict(least=lambda a, b: min(a, b) / 2),
    },
    covers=("eq-sinkhorn-price",),
)
def price(impl):
    """Between the optimum of scipy's linear program and eps min(H(mu), H(nu)) above it, on random
    5x5 problems; cost and entropy grow with eps; the proof's bound eps (H(P_eps) - H(P_0)), P_0
    being the linear program's vertex. Last, 50 places that would rather stay, where the plan
    costs more than half of the bound."""
    rng = np.random.default_rng(7)
    for _ in range(25):
        n = 5
        C = rng.normal(size=(n, n))
        mu, nu = rng.dirichlet(np.full(n, 4)), rng.dirichlet(np.full(n, 4))
        A = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
        lp = linprog(C.ravel(), A_eq=A, b_eq=np.r_[mu, nu])
        vertex = lp.x.reshape(n, n)
        temperatures = (0.3, 0.6, 1.5)
        costs, entropies = [], []
        for eps in temperatures:
            P, _, _ = impl.solve(C, mu, nu, eps)
            costs.append(np.vdot(C, P))
            entropies.append(_entropy(P))
        worst = max(-np.diff(costs).min(), -np.diff(entropies).min())
        for eps, cost, entropy in zip(temperatures, costs, entropies):
            extra = cost - lp.fun
            worst = max(
                worst, -extra,
                extra - eps * impl.least(_entropy(mu), _entropy(nu)),
                extra - eps * (entropy - _entropy(vertex)),
            )
        yield worst
    same, eps = np.full(50, 1 / 50), 0.35
    P, _, _ = impl.solve(-np.eye(50), same, same, eps)
    yield max(1 - np.trace(P) - eps * impl.least(np.log(50), np.log(50)), 0.0)


def _best_routes(C, mu, nu):
    """The routes that some best plan uses, one linear program for each."""
    m, n = C.shape
    A = np.vstack([np.kron(np.eye(m), np.ones(n)), np.kron(np.ones(m), np.eye(n))])
    b = np.r_[mu, nu]
    value = linprog(C.ravel(), A_eq=A, b_eq=b).fun
    most = [linprog(-e, A_eq=np.vstack([A, C.ravel()]), b_eq=np.r_[b, value]).fun
            for e in np.eye(m * n)]
    return (np.array(most) < -1e-7).reshape(m, n)


@claim(
    "thm-entropic-limits",
    part="cold",
    result="T1.8",
    tol=1e-6,
    instances=8,
    real=dict(solve=_solve),
    mutants={
        "row and column masses swapped": SOLVE_MUTANTS["row and column masses swapped"],
        "not cold": dict(solve=lambda C, mu, nu, eps: _solve(C, mu, nu, 10 * eps)),
        "a vertex": dict(solve=lambda C, mu, nu, eps: (ot.emd(mu, nu, C), None, None)),
        "stopped after the rows": SOLVE_MUTANTS["stopped after the rows"],
    },
)
def cold(impl):
    """On integer costs with many best plans the plan at eps = 0.04 is the best plan of largest
    entropy: the matrix of ones on the routes that best plans use (linear programs), scaled to
    the masses by plain division."""
    rng = np.random.default_rng(8)
    for k in range(8):
        n = 3 + k % 2
        C = np.abs(np.arange(n)[:, None] - np.arange(1, n + 1)).astype(float)
        mu = nu = np.full(n, 1 / n)
        if k >= 2:
            # With unequal masses the best routes hang together, and the iteration is quick.
            C = rng.integers(0, 2, size=(n, n)).astype(float)
            mu, nu = rng.dirichlet(np.full(n, 5), size=2)
        Q = _best_routes(C, mu, nu).astype(float)
        for _ in range(4000):
            Q *= (mu / Q.sum(1))[:, None]
            Q *= nu / Q.sum(0)
        P, _, _ = impl.solve(C, mu, nu, 0.04)
        yield np.abs(P - Q).max()


@claim(
    "thm-entropic-limits",
    part="hot",
    result="T1.8",
    tol=1e-10,
    instances=60,
    real=dict(solve=_solve, kl=_kl, room=np.ptp),
    mutants={
        **{k: SOLVE_MUTANTS[k] for k in ("score instead of cost", "eps used twice")},
        "half of the room": dict(room=lambda C: np.ptp(C) / 2),
        "twice the room: true, not sharp": dict(room=lambda C: 2 * np.ptp(C)),
        "one divergence twice": dict(kl=lambda p, q: _kl(np.maximum(p, q), np.minimum(p, q))),
        "no room at all": dict(room=lambda C: 0.0),
    },
    covers=("eq-sinkhorn-hot",),
)
def hot(impl):
    """Both divergences between plan and product add up to the saved cost over eps, for eps from
    0.2 to 200; the L1 distance is within the bound B, and for symmetric 2x2 costs it is tanh B,
    which is B in the limit."""
    for k, (C, mu, nu, eps, rng) in enumerate(_problems(9, 60)):
        eps = eps * (1, 10, 100)[k % 3]
        symmetric = k % 4 == 3
        if symmetric:
            C, mu, nu = rng.uniform(0.5, 2) * (1 - np.eye(2)), np.full(2, 0.5), np.full(2, 0.5)
        P, _, _ = impl.solve(C, mu, nu, eps)
        M = np.outer(mu, nu)
        both = impl.kl(P, M) + impl.kl(M, P)
        far, bound = np.abs(P - M).sum(), impl.room(C) / (2 * eps)
        off = abs(far - np.tanh(bound)) if symmetric else far - bound
        yield max(abs(both - np.vdot(C, M - P) / eps), off)
