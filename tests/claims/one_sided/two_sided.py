"""Claims of the page "Two-sided attention, for comparison"."""

from itertools import islice

import numpy as np
import ot
import torch
from claims import claim
from scipy.optimize import linprog, minimize
from scipy.special import entr, rel_entr

from eotcourse import LogPrior, Shannon, Window, attention, softmax
from eotcourse.transport import sinkhorn, sinkhorn_steps


def worst(difference):
    return float(torch.as_tensor(difference).abs().max())


def masses(rng, n):
    return rng.dirichlet(np.full(n, 3.0))


# Causal and doubly stochastic -------------------------------------------------------------------


def reach(n, ahead=0):
    """Which keys each query may see, from the package's own mask."""
    place = torch.arange(n)
    return (Window(None, ahead).bias(place, place) == 0).numpy()


@claim(
    "prop-causal-identity",
    part="nothing off the diagonal",
    tol=1e-9,
    instances=60,
    real=dict(keep=reach, least=0.0, columns=lambda mu: mu),
    mutants={
        "one key ahead is allowed": dict(keep=lambda n: reach(n, 1)),
        "no mask": dict(keep=lambda n: reach(n, n)),
        "negative entries are allowed": dict(least=-1.0),
        "other column sums": dict(columns=lambda mu: np.sort(mu)[::-1]),
        "no column constraint": dict(columns=lambda mu: None),
    },
)
def birkhoff(impl):
    """The largest value that an entry below the diagonal can take over all causal matrices with
    row and column sums mu, by scipy's linear programming."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        n = int(rng.integers(2, 6))
        mu = np.full(n, 1 / n) if rng.random() < 0.3 else np.sort(masses(rng, n))
        i = int(rng.integers(1, n))
        entry = i * n + int(rng.integers(0, i))
        rows, columns = np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))
        nu = impl.columns(mu)
        A = rows if nu is None else np.vstack([rows, columns])
        b = mu if nu is None else np.r_[mu, nu]
        bounds = [(impl.least, 1.0) if ok else (0.0, 0.0) for ok in impl.keep(n).ravel()]
        found = linprog(-np.eye(n * n)[entry], A_eq=A, b_eq=b, bounds=bounds)
        yield -found.fun if found.status == 0 else np.nan


def causal_cost(S):
    return torch.where(torch.as_tensor(reach(len(S))), -S, torch.inf)


def after(rounds, C, mu, eps):
    """The plan whose rows are right, after full rounds of Sinkhorn's iteration."""
    f, g, _ = next(islice(sinkhorn_steps(C, mu, mu, eps), 2 * rounds, None))
    return torch.exp((f[:, None] + g - C) / eps)


def stuck(C, mu, nu, eps):
    """Sinkhorn that never updates the columns."""
    first = next(sinkhorn_steps(C, mu, nu, eps))
    while True:
        yield first


@claim(
    "prop-causal-identity",
    part="Sinkhorn tends to it",
    tol=1e-10,
    instances=8,
    real=dict(cost=causal_cost, steps=sinkhorn_steps, gain=lambda mu, r: rel_entr(mu, r).sum()),
    mutants={
        "no mask": dict(cost=lambda S: -S),
        "one key ahead is allowed": dict(
            cost=lambda S: torch.where(torch.as_tensor(reach(len(S), 1)), -S, torch.inf)
        ),
        "rows only": dict(steps=stuck),
        "KL arguments swapped": dict(gain=lambda mu, r: rel_entr(r, mu).sum()),
    },
)
def slowly(impl):
    """Over 200 rounds each row update raises the dual by eps KL(mu | row sums), the dual stays
    below the value of diag(mu), and less than 0.02 of the mass is left off the diagonal."""
    rng = np.random.default_rng(1)
    for _ in range(8):
        n, eps = int(rng.integers(2, 5)), float(rng.uniform(0.5, 2))
        S, mu = torch.as_tensor(rng.normal(0, 1, (n, n))), torch.as_tensor(masses(rng, n))
        C, worst_gain = impl.cost(S), 0.0
        ceiling = -float(mu @ S.diagonal()) - eps * entr(mu.numpy()).sum()
        for i, (f, g, dual) in enumerate(islice(impl.steps(C, mu, mu, eps), 401)):
            P = torch.exp((f[:, None] + g - C) / eps)
            if i % 2:
                before, r = float(dual), P.sum(1).numpy()
            elif i:
                rise = float(dual) - before
                worst_gain = max(worst_gain, abs(rise - eps * impl.gain(mu.numpy(), r)))
        left = 1 - float(P.diagonal().sum())
        yield max(worst_gain, float(dual) - ceiling, 0.0 if left < 0.02 else left)


@claim(
    "prop-causal-identity",
    part="two tokens, explicitly",
    tol=1e-12,
    instances=60,
    real=dict(cost=causal_cost, steps=after, rate=2),
    mutants={
        "no mask": dict(cost=lambda S: -S),
        "half the rate": dict(rate=1),
        "the rounds miscounted": dict(
            steps=lambda rounds, C, mu, eps: after(rounds + 1, C, mu, eps)
        ),
    },
    covers=("eq-causal-slow",),
)
def two_tokens(impl):
    """The weight of query 2 on key 1 after t rounds against x / (1 + 2 t x), x its softmax."""
    rng = np.random.default_rng(2)
    for _ in range(60):
        S, eps = torch.as_tensor(rng.normal(0, 2, (2, 2))), float(rng.uniform(0.3, 2))
        t = int(rng.integers(0, 30))
        x = 1 / (1 + np.exp(float(S[1, 1] - S[1, 0]) / eps))
        A = 2 * impl.steps(t, impl.cost(S), torch.full((2,), 0.5, dtype=torch.float64), eps)
        yield abs(float(A[1, 0]) - x / (1 + impl.rate * t * x))


# A key bias -------------------------------------------------------------------------------------


def problem(rng):
    m, n = (int(x) for x in rng.integers(2, 6, 2))
    S = torch.as_tensor(rng.normal(0, 1.2, (m, n)))
    mu, nu = torch.as_tensor(masses(rng, m)), torch.as_tensor(masses(rng, n))
    return S, mu, nu, float(rng.uniform(0.5, 2.0))


def bias_of_keys(S, mu, nu, eps):
    """The column potential in scaled units."""
    return sinkhorn(-S, mu, nu, eps, tol=1e-13).g / eps


def biased(S, bias, eps):
    """One-sided attention with scores S and a bias of the keys: values are unit vectors."""
    eye = torch.eye(S.shape[1], dtype=S.dtype)
    return attention(S, eye, eye, bias.expand_as(S), scale=1 / eps)


@claim(
    "thm-key-bias",
    part="the plan is a biased row softmax",
    result="T2.7",
    tol=1e-9,
    instances=25,
    real=dict(bias=bias_of_keys),
    mutants={
        "sign of g": dict(bias=lambda S, mu, nu, eps: -bias_of_keys(S, mu, nu, eps)),
        "g not divided by eps": dict(
            bias=lambda S, mu, nu, eps: eps * bias_of_keys(S, mu, nu, eps)
        ),
        "log nu added once more": dict(
            bias=lambda S, mu, nu, eps: bias_of_keys(S, mu, nu, eps) + nu.log()
        ),
        "no bias": dict(bias=lambda S, mu, nu, eps: 0 * nu),
        "bias from half a step": dict(
            bias=lambda S, mu, nu, eps: nu.log() - torch.logsumexp(S / eps, 0)
        ),
    },
)
def key_bias(impl):
    """diag(mu) times attention with attn_mask = g / eps, against POT's Sinkhorn plan."""
    rng = np.random.default_rng(3)
    for _ in range(25):
        S, mu, nu, eps = problem(rng)
        P = ot.sinkhorn(
            mu.numpy(), nu.numpy(), -S.numpy(), eps, method="sinkhorn_log", stopThr=1e-13,
            numItermax=20000,
        )
        A = biased(S, impl.bias(S, mu, nu, eps), eps)
        yield worst(mu[:, None] * A - torch.as_tensor(P))


@claim(
    "thm-key-bias",
    part="every key bias is a column potential",
    result="T2.7",
    tol=1e-9,
    instances=60,
    real=dict(attend=biased, recover=bias_of_keys),
    mutants={
        "bias of queries": dict(
            attend=lambda S, bias, eps: softmax(S + bias.mean() * torch.arange(len(S))[:, None])
        ),
        "bias before the division": dict(
            attend=lambda S, bias, eps: biased(S, bias / eps, eps)
        ),
        "recovered with the wrong sign": dict(
            recover=lambda S, mu, nu, eps: -bias_of_keys(S, mu, nu, eps)
        ),
    },
)
def every_bias(impl):
    """Draw a bias, compute its column sums, solve the two-sided problem with them: the potential
    over eps is the bias again, up to a constant."""
    rng = np.random.default_rng(4)
    for _ in range(60):
        S, mu, nu, eps = problem(rng)
        bias = torch.as_tensor(rng.normal(0, 1.5, len(nu)))
        c = mu @ impl.attend(S, bias, eps)
        off = impl.recover(S, mu, c / c.sum(), eps) - bias
        yield worst(off - off.mean())


def cloud(rng):
    """Points, masses, and the potentials for KL(P | mu x nu), by soft minima in plain numpy."""
    m, n, d = int(rng.integers(2, 6)), int(rng.integers(2, 6)), int(rng.integers(1, 4))
    x, y = rng.normal(0, 1, (m, d)), rng.normal(0.5, 1, (n, d))
    mu, nu, eps = masses(rng, m), masses(rng, n), float(rng.uniform(0.5, 1.5))
    C = ((x[:, None] - y) ** 2).sum(-1) / 2
    g = np.zeros(n)
    for _ in range(3000):
        f = -eps * np.log(np.exp((g - C) / eps) @ nu)
        new = -eps * np.log(mu @ np.exp((f[:, None] - C) / eps))
        done, g = np.abs(new - g).max() < 1e-14, new
        if done:
            break
    return x, y, mu, nu, eps, C, f, g


def tensors(*arrays):
    return [torch.as_tensor(a) for a in arrays]


def entropic_map(x, y, nu, eps, g, half=0.5, with_nu=1, sign=1):
    """Single-head attention with keys = values = y and a bias of the keys, in the package."""
    x, y, nu, g = tensors(x, y, nu, g)
    bias = (sign * g - half * y.square().sum(1)) / eps + with_nu * nu.log()
    return attention(x, y, y, bias.expand(len(x), -1), scale=1 / eps).numpy()


@claim(
    "thm-key-bias",
    part="the entropic map is attention",
    result="T2.7",
    tol=1e-9,
    instances=25,
    real=dict(T=entropic_map),
    mutants={
        "half of the cost missing": dict(
            T=lambda *a: entropic_map(*a, half=1.0)
        ),
        "squared norms of the keys missing": dict(T=lambda *a: entropic_map(*a, half=0.0)),
        "log nu missing": dict(T=lambda *a: entropic_map(*a, with_nu=0)),
        "sign of g": dict(T=lambda *a: entropic_map(*a, sign=-1)),
        "temperature inverted": dict(
            T=lambda x, y, nu, eps, g: entropic_map(x, y, nu, 1 / eps, g)
        ),
    },
)
def barycentre(impl):
    """Attention against the mean destination sum_j P_ij y_j / mu_i, with P from POT and g from soft
    minima with the product reference in numpy."""
    rng = np.random.default_rng(5)
    for _ in range(25):
        x, y, mu, nu, eps, C, _, g = cloud(rng)
        P = ot.sinkhorn(mu, nu, C, eps, method="sinkhorn_log", stopThr=1e-13, numItermax=20000)
        yield np.abs(impl.T(x, y, nu, eps, g) - P @ y / mu[:, None]).max()


def potential_at(x, y, nu, eps, g):
    """f at any point, product reference: minus eps log sum nu e^((g - cost) / eps)."""
    x, y, nu, g = tensors(x, y, nu, g)
    cost = (x[:, None] - y).square().sum(-1) / 2
    # The potential of the one-sided problem with prior nu, in raw units.
    return -Shannon(LogPrior(nu.log())).conjugate(g - cost, eps).numpy()


@claim(
    "thm-key-bias",
    part="the map is x minus the gradient of f",
    result="T2.7",
    tol=1e-7,
    instances=40,
    real=dict(T=entropic_map, f=potential_at, sign=1),
    mutants={
        "half of the cost missing": dict(T=lambda *a: entropic_map(*a, half=1.0)),
        "x plus the gradient": dict(sign=-1),
        "log nu missing in the map": dict(T=lambda *a: entropic_map(*a, with_nu=0)),
        "f without its factor eps": dict(
            f=lambda x, y, nu, eps, g: potential_at(x, y, nu, eps, g) / eps
        ),
    },
)
def gradient(impl):
    """Central differences of f at points that need not be data; at the data, f is the potential
    that the numpy iteration found."""
    rng = np.random.default_rng(6)
    for _ in range(40):
        x, y, _, nu, eps, _, f, g = cloud(rng)
        z, h = rng.normal(0, 1, x.shape), 1e-5
        slope = np.stack(
            [
                (impl.f(z + h * e, y, nu, eps, g) - impl.f(z - h * e, y, nu, eps, g)) / (2 * h)
                for e in np.eye(x.shape[1])
            ],
            -1,
        )
        off = np.abs(impl.T(z, y, nu, eps, g) - (z - impl.sign * slope)).max()
        yield max(off, np.abs(impl.f(x, y, nu, eps, g) - f).max())


# A prior that answers back ----------------------------------------------------------------------


def weights(S, b, eps):
    """Softmax with prior b."""
    return Shannon(LogPrior(b.log()))(S, eps)


def step(S, mu, b, eps):
    """One round: the weights for this prior, then their column sums as the next prior."""
    return mu @ weights(S, b, eps)


def level(S, mu, b, eps):
    """The objective as a function of the prior alone."""
    return -float(mu @ Shannon(LogPrior(b.log())).conjugate(S, eps))


def optimum(S, mu, eps):
    """The least level over the simplex, and where, by scipy's SLSQP."""
    E, m = np.exp(S.numpy() / eps), mu.numpy()
    n = E.shape[1]
    best = minimize(
        lambda b: -eps * m @ np.log(E @ b),
        np.full(n, 1 / n),
        jac=lambda b: -eps * (m / (E @ b)) @ E,
        bounds=[(0, 1)] * n,
        constraints={"type": "eq", "fun": lambda b: b.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return best.fun, best.x


@claim(
    "thm-rate-distortion",
    part="each of the two lines is optimal",
    result="T2.6",
    tol=1e-11,
    instances=100,
    real=dict(weights=weights, columns=lambda P: P.sum(0), level=level),
    mutants={
        "prior ignored": dict(weights=lambda S, b, eps: softmax(S, eps)),
        "prior before the division": dict(
            weights=lambda S, b, eps: weights(S, b ** (1 / eps), eps)
        ),
        "uniform prior as answer": dict(columns=lambda P: torch.full_like(P[0], 1 / P.shape[1])),
        "level with the wrong sign": dict(level=lambda *a: -level(*a)),
    },
)
def two_lines(impl):
    """F(P, b) = <C, P> + eps KL(P | mu b) exceeds its minimum over P by eps KL(P | diag(mu) A(b))
    and its minimum over b by eps KL(column sums | b), at random P and b."""
    rng = np.random.default_rng(7)
    for _ in range(100):
        S, mu, b, eps = problem(rng)
        P = mu[:, None] * torch.as_tensor(rng.dirichlet(np.full(len(b), 0.5), len(mu)))

        def F(b, P=P, S=S, mu=mu, eps=eps):
            return float(-(S * P).sum()) + eps * rel_entr(P.numpy(), np.outer(mu, b)).sum()

        over_P = rel_entr(P.numpy(), (mu[:, None] * impl.weights(S, b, eps)).numpy()).sum()
        c = impl.columns(P)
        over_b = rel_entr(c.numpy(), b.numpy()).sum()
        yield max(
            abs(F(b) - impl.level(S, mu, b, eps) - eps * over_P),
            abs(F(b) - F(c) - eps * over_b),
        )


@claim(
    "thm-rate-distortion",
    part="monotone, at the stated rate",
    result="T2.6",
    tol=1e-8,
    instances=15,
    real=dict(step=step),
    mutants={
        "queries all alike": dict(
            step=lambda S, mu, b, eps: step(S, torch.full_like(mu, 1 / len(mu)), b, eps)
        ),
        "prior forgotten": dict(step=lambda S, mu, b, eps: mu @ softmax(S, eps)),
        "cost for score": dict(step=lambda S, mu, b, eps: step(-S, mu, b, eps)),
        "step with the square root": dict(
            step=lambda S, mu, b, eps: (r := step(S, mu, b, eps).sqrt()) / r.sum()
        ),
    },
    covers=("eq-blahut-rate",),
)
def rate(impl):
    """From uniform b, the level never rises and is within eps log(n) / t of SLSQP's minimum after
    t = 1, ..., 80 rounds."""
    rng = np.random.default_rng(8)
    for _ in range(15):
        S, mu, b, eps = problem(rng)
        S = 2 * S
        b = torch.full_like(b, 1 / len(b))
        least, _ = optimum(S, mu, eps)
        bad, last = 0.0, np.inf
        for t in range(1, 81):
            b = impl.step(S, mu, b, eps)
            now = level(S, mu, b, eps)
            bad, last = max(bad, now - last, now - least - eps * np.log(len(b)) / t), now
        yield max(bad, least - last)


@claim(
    "thm-rate-distortion",
    part="the first step is attention",
    result="T2.6",
    tol=1e-13,
    instances=60,
    real=dict(weights=weights),
    mutants={
        "prior added to raw scores with weight eps squared": dict(
            weights=lambda S, b, eps: softmax(S + b * eps, eps**2)
        ),
        "softmax over queries": dict(weights=lambda S, b, eps: softmax(S, eps, dim=0)),
        "eps missing": dict(weights=lambda S, b, eps: weights(S, b, 1.0)),
    },
)
def first(impl):
    """Weights for the uniform prior against PyTorch's attention with unit keys and values."""
    rng = np.random.default_rng(9)
    for _ in range(60):
        S, _, b, eps = problem(rng)
        eye = torch.eye(S.shape[1], dtype=S.dtype)
        A = torch.nn.functional.scaled_dot_product_attention(
            S[None], eye[None], eye[None], scale=1 / eps
        )[0]
        yield worst(impl.weights(S, torch.full_like(b, 1 / len(b)), eps) - A)


def gain(S, mu, b, eps):
    """The factor by which one round multiplies each b_j, also where b_j = 0."""
    E = torch.exp(S / eps)
    return (mu / (E @ b)) @ E


@claim(
    "thm-rate-distortion",
    part="the optimality condition",
    result="T2.6",
    tol=2e-5,
    instances=60,
    real=dict(gain=gain),
    mutants={
        "eps missing": dict(gain=lambda S, mu, b, eps: gain(S, mu, b, 1.0)),
        "queries all alike": dict(
            gain=lambda S, mu, b, eps: gain(S, torch.full_like(mu, 1 / len(mu)), b, eps)
        ),
        "normalised without b": dict(
            gain=lambda S, mu, b, eps: gain(S, mu, torch.full_like(b, 1 / len(b)), eps)
        ),
    },
)
def kkt(impl):
    """At SLSQP's minimum no factor exceeds one, and it is one where b is positive; at random b the
    largest factor minus one bounds the excess over that minimum, so the condition suffices."""
    rng = np.random.default_rng(10)
    for _ in range(60):
        S, mu, b, eps = problem(rng)
        least, best = optimum(S, mu, eps)
        c = impl.gain(S, mu, torch.as_tensor(best), eps).numpy()
        excess = level(S, mu, b, eps) - least
        bound = eps * (float(impl.gain(S, mu, b, eps).max()) - 1)
        yield max(c.max() - 1, np.abs(best * (c - 1)).max(), excess - bound)


def alone(S, mu, k, eps):
    """The collapse condition: largest value over j of sum_i mu_i e^((S_ij - S_ik) / eps)."""
    return float((mu @ torch.exp((S - S[:, [k]]) / eps)).max())


@claim(
    "thm-rate-distortion",
    part="collapse onto one key",
    result="T2.6",
    tol=0.0,
    instances=30,
    real=dict(alone=alone),
    mutants={
        "difference the other way round": dict(
            alone=lambda S, mu, k, eps: alone(-S, mu, k, eps)
        ),
        "eps doubled": dict(alone=lambda S, mu, k, eps: alone(S, mu, k, 2 * eps)),
        "worst query instead of the mean": dict(
            alone=lambda S, mu, k, eps: float(torch.exp((S - S[:, [k]]) / eps).max())
        ),
        "queries all alike": dict(
            alone=lambda S, mu, k, eps: alone(S, torch.full_like(mu, 1 / len(mu)), k, eps)
        ),
    },
)
def collapse(impl):
    """Bisect the condition for its threshold; SLSQP puts all of b on the key with the best mean
    score 5 percent above it and not 5 percent below, where other keys hold weight."""
    rng = np.random.default_rng(11)
    done = 0
    while done < 30:
        S, mu, _, _ = problem(rng)
        mean = mu @ S
        k = int(mean.argmax())
        rival = float(mean.topk(2).values.diff().abs())
        if rival < 0.2 or bool((S.argmax(1) == k).all()):
            continue
        done += 1
        low, high = 0.02, 100.0
        for _ in range(50):
            middle = (low + high) / 2
            # The key itself gives sum(mu), which is 1 only up to rounding.
            holds = impl.alone(S, mu, k, middle) <= 1 + 1e-12
            low, high = (low, middle) if holds else (middle, high)
        _, above = optimum(S, mu, 1.05 * high)
        _, below = optimum(S, mu, 0.95 * high)
        yield 0.0 if above[k] > 1 - 1e-4 and below[k] < 1 - 1e-3 else 1.0
