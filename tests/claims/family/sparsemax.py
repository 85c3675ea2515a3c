"""Claims of the page "Sparsemax shaves the scores"."""

import entmax
import numpy as np
import torch
from claims import claim
from scipy.optimize import brentq, minimize

from eotcourse import Tsallis, softmax, sparsemax


def square(s, tau):
    """The value for |p|^2 / 2; the regulariser of the package is (|p|^2 - 1) / 2."""
    return Tsallis(2.0).conjugate(s, tau) - tau / 2


def level(s, tau):
    """The threshold kappa of the scaled scores."""
    return Tsallis(2.0).threshold(s, tau) - 1


def source(s, tau):
    """The positive part of raw scores minus a threshold, as the corrected article has it."""
    return sparsemax(s)


def draw(rng, low=1, high=9):
    n = int(rng.integers(low, high))
    return torch.as_tensor(rng.normal(0, 2, n)), float(np.exp(rng.uniform(-1, 2)))


@claim(
    "thm-sparsemax-projection",
    part="(a) threshold form and the other library",
    result="T3.10",
    tol=1e-12,
    instances=200,
    real=dict(sparsemax=sparsemax, level=level),
    mutants={
        "raw scores, no temperature": dict(sparsemax=source),
        "multiplied by the temperature": dict(sparsemax=lambda s, tau: sparsemax(s, 1 / tau)),
        "threshold called tau": dict(level=lambda s, tau: torch.tensor(tau)),
        "threshold in raw units": dict(level=lambda s, tau: tau * level(s, tau)),
        "soft maximum instead of threshold": dict(level=lambda s, tau: level(s, tau) + 1),
        "softmax": dict(sparsemax=lambda s, tau: softmax(s, tau)),
    },
    covers=("eq-sparsemax-threshold",),
)
def threshold(impl):
    """Weights against the entmax library's sorting sparsemax of s / tau, and against the positive
    part of s / tau - kappa, with kappa found by scipy's brentq and compared too."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        s, tau = draw(rng)
        theta = s.numpy() / tau
        p = impl.sparsemax(s, tau)
        theirs = entmax.sparsemax(s / tau, -1)
        root = brentq(
            lambda k, theta=theta: np.maximum(theta - k, 0).sum() - 1,
            theta.max() - 2,
            theta.max(),
            xtol=1e-15,
            rtol=1e-15,
        )
        formed = torch.as_tensor(np.maximum(theta - root, 0))
        yield max(
            float((p - theirs).abs().max()),
            float((p - formed).abs().max()),
            abs(float(impl.level(s, tau)) - root),
        )


@claim(
    "thm-sparsemax-projection",
    part="(a) closest point of the simplex",
    result="T3.10",
    tol=1e-7,
    instances=40,
    real=dict(sparsemax=sparsemax, value=square),
    mutants={
        "raw scores, no temperature": dict(sparsemax=source),
        "clipped and divided by the sum": dict(
            sparsemax=lambda s, tau: (t := s.clamp(min=0) + 1e-9) / t.sum()
        ),
        "value with the normalised regulariser": dict(
            value=lambda s, tau: square(s, tau) + tau / 2
        ),
        "distance not squared": dict(
            value=lambda s, tau: s @ s / (2 * tau)
            - tau / 2 * (s / tau - sparsemax(s, tau)).norm()
        ),
    },
)
def closest(impl):
    """scipy's SLSQP minimises |p - s/tau|^2 over the simplex: its point against the weights, and
    |s|^2/(2 tau) - tau/2 times its squared distance against the value."""
    rng = np.random.default_rng(1)
    for _ in range(40):
        s, tau = draw(rng, 2, 6)
        theta, n = s.numpy() / tau, len(s)
        found = minimize(
            lambda p, theta=theta: (p - theta) @ (p - theta) / 2,
            rng.dirichlet(np.ones(n)),
            jac=lambda p, theta=theta: p - theta,
            bounds=[(0, 1)] * n,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-18, "maxiter": 500},
        )
        reached = float(s @ s) / (2 * tau) - tau * found.fun
        away = np.abs(found.x - impl.sparsemax(s, tau).numpy()).max()
        yield max(away, abs(reached - float(impl.value(s, tau))) / (1 + tau))


@claim(
    "thm-sparsemax-projection",
    part="(d) Moreau envelope and prox of the maximum",
    result="T3.10",
    tol=1e-11,
    instances=100,
    real=dict(value=square, prox=lambda s, tau: s - tau * sparsemax(s, tau)),
    mutants={
        "prox without the temperature": dict(prox=lambda s, tau: s - sparsemax(s, tau)),
        "prox with the sign flipped": dict(prox=lambda s, tau: s + tau * sparsemax(s, tau)),
        "scores cut at the threshold of scaled scores": dict(
            prox=lambda s, tau: torch.minimum(s, level(s, tau))
        ),
        "value with the normalised regulariser": dict(
            value=lambda s, tau: square(s, tau) + tau / 2
        ),
        "softmax instead of sparsemax": dict(prox=lambda s, tau: s - tau * softmax(s, tau)),
    },
    covers=("eq-sparsemax-envelope",),
)
def envelope(impl):
    """The minimum of max z + |s - z|^2 / (2 tau): for a fixed level m the best z is min(s, m), so
    the level solves a scalar equation, sum (s - m)_+ = tau, by scipy's brentq. Value and
    minimiser against it; and no random z does better than the value."""
    rng = np.random.default_rng(2)
    for _ in range(100):
        s, tau = draw(rng)
        scores = s.numpy()
        m = brentq(
            lambda m, scores=scores, tau=tau: np.maximum(scores - m, 0).sum() - tau,
            scores.max() - 2 * tau,
            scores.max(),
            xtol=1e-14,
            rtol=1e-15,
        )
        cut = np.minimum(scores, m)
        least = m + ((scores - cut) ** 2).sum() / (2 * tau)
        value, z = float(impl.value(s, tau)), impl.prox(s, tau).numpy()
        others = cut + rng.normal(0, 1, (20, len(s))) * 10 ** rng.uniform(-3, 1)
        costs = others.max(-1) + ((scores - others) ** 2).sum(-1) / (2 * tau)
        better = max(0.0, value - costs.min())
        yield max(abs(value - least), np.abs(z - cut).max(), better) / (1 + tau)


@claim(
    "thm-sparsemax-projection",
    part="(b) the sorting algorithm",
    result="T3.10",
    tol=1e-12,
    instances=200,
    real=dict(
        counted=lambda top, sums, k: top > (sums - 1) / k,
        kappa=lambda sums, k: (sums - 1) / k,
    ),
    mutants={
        "one key too few": dict(counted=lambda top, sums, k: (top > (sums - 1) / k) & (k > 1)),
        "all keys counted": dict(counted=lambda top, sums, k: top > -np.inf),
        "threshold without the one": dict(kappa=lambda sums, k: sums / k),
        "threshold not divided by the count": dict(kappa=lambda sums, k: sums - 1),
    },
)
def sort(impl):
    """The threshold from sorted scores and their running sums against scipy's brentq on
    sum (theta - kappa)_+ = 1."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        s, tau = draw(rng)
        theta = s.numpy() / tau
        top = np.sort(theta)[::-1]
        sums, k = top.cumsum(), np.arange(1, len(top) + 1)
        size = max(int(impl.counted(top, sums, k).sum()), 1)
        root = brentq(
            lambda m, theta=theta: np.maximum(theta - m, 0).sum() - 1,
            theta.max() - 2,
            theta.max(),
            xtol=1e-15,
            rtol=1e-15,
        )
        yield abs(impl.kappa(sums[size - 1], size) - root)


@claim(
    "thm-sparsemax-projection",
    part="(c) exact zeros and the margin",
    result="T3.10",
    tol=0.0,
    instances=200,
    real=dict(sparsemax=sparsemax, margin=lambda tau: tau),
    mutants={
        "softmax": dict(sparsemax=lambda s, tau: softmax(s, tau)),
        "margin one": dict(margin=lambda tau: 1.0),
        "margin of two temperatures": dict(margin=lambda tau: 2 * tau),
        "zeros rounded up": dict(sparsemax=lambda s, tau: sparsemax(s, tau).clamp(min=1e-12)),
    },
)
def margin(impl):
    """Whether the weights are one-hot, at gaps between the best score and the second that are a
    hundredth below and above the margin, and that the others are then exactly zero."""
    rng = np.random.default_rng(4)
    for i in range(200):
        s, tau = draw(rng, 2)
        over = i % 2
        s[0] = s[1:].max() + impl.margin(tau) * (1.01 if over else 0.99)
        p = impl.sparsemax(s, tau)
        one_hot = p[0] == 1 and not p[1:].any()
        yield float(bool(one_hot) != bool(over))


def affine(p, tau):
    """(I_S - 1 1^T / |S|) / tau on the support S."""
    on = (p > 0).double()
    return (torch.diag(on) - torch.outer(on, on) / on.sum()) / tau


@claim(
    "thm-sparsemax-projection",
    part="(e) piecewise affine",
    result="T3.10",
    tol=1e-8,
    instances=100,
    real=dict(sparsemax=sparsemax, jacobian=affine),
    mutants={
        "Jacobian of softmax": dict(
            jacobian=lambda p, tau: (torch.diag(p) - torch.outer(p, p)) / tau
        ),
        "all keys in the support": dict(jacobian=lambda p, tau: affine(torch.ones_like(p), tau)),
        "temperature missing": dict(jacobian=lambda p, tau: affine(p, 1.0)),
        "not centred": dict(jacobian=lambda p, tau: torch.diag((p > 0).double()) / tau),
        "raw scores, no temperature": dict(sparsemax=source),
    },
)
def pieces(impl):
    """Central differences of the weights away from a change of support, and a large step inside
    the cell, on which an affine map has no error, against the Jacobian."""
    rng = np.random.default_rng(5)
    done = 0
    while done < 100:
        s, tau = draw(rng, 2)
        kappa = level(s, tau)
        room = float((s / tau - kappa).abs().min()) * tau / 3
        if room < 1e-4:
            continue
        done += 1
        p, n = impl.sparsemax(s, tau), len(s)
        J, step = impl.jacobian(p, tau), 1e-5 * torch.eye(n, dtype=torch.float64)
        slope = torch.stack(
            [(impl.sparsemax(s + e, tau) - impl.sparsemax(s - e, tau)) / 2e-5 for e in step], -1
        )
        h = torch.as_tensor(rng.uniform(-1, 1, n)) * room
        far = impl.sparsemax(s + h, tau) - p - J @ h
        yield max(float((slope - J).abs().max()), float(far.abs().max()))


def free(s, tau):
    return s / tau


def signed(s, tau):
    return s / tau - s.mean() / tau + 1 / len(s)


@claim(
    "thm-linear-attention",
    part="(a) three feasible sets, one regulariser",
    result="T3.12",
    tol=1e-8,
    instances=40,
    real=dict(free=free, signed=signed, simplex=sparsemax),
    mutants={
        "raw scores": dict(free=lambda s, tau: s),
        "mean not subtracted": dict(signed=lambda s, tau: s / tau + 1 / len(s)),
        "not summing to one": dict(signed=lambda s, tau: (s - s.mean()) / tau),
        "divided by the sum": dict(signed=lambda s, tau: s / s.sum()),
        "softmax": dict(simplex=lambda s, tau: softmax(s, tau)),
        "signed weights clipped": dict(simplex=lambda s, tau: signed(s, tau).clamp(min=0)),
    },
)
def nested(impl):
    """<s, w> - tau |w|^2 / 2 maximised by scipy's SLSQP without constraints, with sum 1, and with
    sum 1 and w >= 0, against the three closed forms."""
    rng = np.random.default_rng(6)
    total = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like}
    for _ in range(40):
        s, tau = draw(rng, 2, 6)
        scores, n, worst = s.numpy(), len(s), 0.0
        for form, limits, rows in (
            (impl.free, None, ()),
            (impl.signed, None, total),
            (impl.simplex, [(0, None)] * n, total),
        ):
            found = minimize(
                lambda w, s=scores, tau=tau: w @ w / 2 - s @ w / tau,
                np.full(n, 1 / n),
                jac=lambda w, s=scores, tau=tau: w - s / tau,
                bounds=limits,
                constraints=rows,
                method="SLSQP",
                options={"ftol": 1e-18, "maxiter": 500},
            )
            worst = max(worst, np.abs(found.x - form(s, tau).numpy()).max())
        yield worst


@claim(
    "thm-linear-attention",
    part="(a) projections one after the other",
    result="T3.12",
    tol=1e-13,
    instances=200,
    real=dict(free=free, signed=signed, simplex=sparsemax),
    mutants={
        "raw scores": dict(free=lambda s, tau: s),
        "divided by the sum": dict(signed=lambda s, tau: s / s.sum()),
        "softmax": dict(simplex=lambda s, tau: softmax(s, tau)),
        "mean over one key too few": dict(
            signed=lambda s, tau: (s - s.sum() / max(len(s) - 1, 1)) / tau + 1 / len(s)
        ),
    },
)
def steps(impl):
    """The signed weights are the free ones projected on the plane of sum 1, and the simplex
    weights are the signed ones projected (numpy, by sorting); values only fall on the way."""
    rng = np.random.default_rng(7)
    for _ in range(200):
        s, tau = draw(rng, 2)
        w, a, p = impl.free(s, tau), impl.signed(s, tau), impl.simplex(s, tau)
        plane = w - (w.sum() - 1) / len(w)
        top = np.sort(a.numpy())[::-1]
        k = np.arange(1, len(top) + 1)
        kappa = ((top.cumsum() - 1) / k).max()
        closest = torch.as_tensor(np.maximum(a.numpy() - kappa, 0))
        value = [float(s @ x / tau - x @ x / 2) for x in (w, a, p)]
        fall = max(0.0, value[1] - value[0], value[2] - value[1])
        yield max(float((a - plane).abs().max()), float((p - closest).abs().max()), fall)


def recurrent(q, k, v, tau):
    """Unnormalised linear attention, one key at a time."""
    state = torch.zeros(k.shape[1], v.shape[1], dtype=q.dtype)
    rows = []
    for i in range(len(q)):
        state = state + torch.outer(k[i], v[i])
        rows.append(q[i] @ state / tau)
    return torch.stack(rows)


def recurrent_signed(q, k, v, tau):
    """Attention with the signed weights that sum to one, one key at a time."""
    state = torch.zeros(k.shape[1], v.shape[1], dtype=q.dtype)
    keys, values, rows = torch.zeros_like(k[0]), torch.zeros_like(v[0]), []
    for i in range(len(q)):
        state = state + torch.outer(k[i], v[i])
        keys, values = keys + k[i], values + v[i]
        mean = values / (i + 1)
        rows.append(q[i] @ (state - torch.outer(keys, mean)) / tau + mean)
    return torch.stack(rows)


def late(q, k, v, tau):
    """Reads the state before the own key is written."""
    return recurrent(q, k, v, tau) - (q * k).sum(-1, keepdim=True) * v / tau


@claim(
    "thm-linear-attention",
    part="(b) the recurrent state",
    result="T3.12",
    tol=1e-12,
    instances=50,
    real=dict(free=recurrent, signed=recurrent_signed),
    mutants={
        "state read before it is written": dict(free=late),
        "temperature missing": dict(free=lambda q, k, v, tau: recurrent(q, k, v, 1.0)),
        "keys and values exchanged": dict(free=lambda q, k, v, tau: recurrent(q, v, k, tau)),
        "mean of the values forgotten": dict(
            signed=lambda q, k, v, tau: recurrent_signed(q, k, v, tau)
            - v.cumsum(0) / torch.arange(1, len(v) + 1)[:, None]
        ),
        "keys not centred": dict(
            signed=lambda q, k, v, tau: recurrent(q, k, v, tau)
            + v.cumsum(0) / torch.arange(1, len(v) + 1)[:, None]
        ),
    },
    covers=("eq-sparsemax-state", "eq-sparsemax-signed-state"),
)
def state(impl):
    """Outputs from a state that is carried along against weights of each causal row times its
    values, with the weights written out row by row."""
    rng = np.random.default_rng(8)
    for _ in range(50):
        n, d, tau = int(rng.integers(1, 12)), int(rng.integers(1, 5)), float(rng.uniform(0.5, 3))
        q, k, v = torch.as_tensor(rng.normal(0, 1, (3, n, d)))
        S = q @ k.T
        plain = torch.stack([free(S[i, : i + 1], tau) @ v[: i + 1] for i in range(n)])
        mixed = torch.stack([signed(S[i, : i + 1], tau) @ v[: i + 1] for i in range(n)])
        yield max(
            float((impl.free(q, k, v, tau) - plain).abs().max()),
            float((impl.signed(q, k, v, tau) - mixed).abs().max()),
        )


def elu_plus_one(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def shared(t):
    return t / t.sum(-1, keepdim=True)


@claim(
    "prop-positive-features",
    part="(a, b) optimal for the logarithm, no potential in their own",
    result="T3.12",
    tol=1e-8,
    instances=100,
    real=dict(
        rule=shared,
        score=lambda t, tau: tau * t.log(),
        asymmetry=lambda t: (t - t[:, None]) / t.sum() ** 2,
    ),
    mutants={
        "score without the temperature": dict(score=lambda t, tau: t.log()),
        "raw products as scores": dict(score=lambda t, tau: t),
        "softmax of the products": dict(rule=lambda t: softmax(t)),
        "asymmetry of the transposed matrix": dict(
            asymmetry=lambda t: (t[:, None] - t) / t.sum() ** 2
        ),
        "no asymmetry": dict(asymmetry=lambda t: torch.zeros(len(t), len(t))),
    },
    covers=("eq-sparsemax-features",),
)
def features(impl):
    """Weights t / sum t of positive products of random features against softmax of the score
    tau log t, and the Jacobian in t by central differences against the stated asymmetry."""
    rng = np.random.default_rng(9)
    for _ in range(100):
        n, d, tau = int(rng.integers(2, 6)), int(rng.integers(1, 4)), float(rng.uniform(0.5, 3))
        q, k = rng.normal(0, 1, d), rng.normal(0, 1, (n, d))
        t = torch.as_tensor(elu_plus_one(k) @ elu_plus_one(q))
        step = 1e-5 * torch.eye(n, dtype=torch.float64)
        J = torch.stack([(impl.rule(t + e) - impl.rule(t - e)) / 2e-5 for e in step], -1)
        optimal = impl.rule(t) - softmax(impl.score(t, tau), tau)
        wrong = J - J.T - impl.asymmetry(t)
        yield max(float(optimal.abs().max()), float(wrong.abs().max()))


def feature(x, w):
    return np.exp(w @ x - x @ x / 2)


@claim(
    "prop-positive-features",
    part="(c) random features of the exponential",
    result="T3.12",
    tol=1e-9,
    instances=50,
    real=dict(feature=feature, spread=lambda q, k: np.exp((q + k) @ (q + k)) - 1),
    mutants={
        "length not subtracted": dict(feature=lambda x, w: np.exp(w @ x)),
        "half of the length missing": dict(feature=lambda x, w: np.exp(w @ x - x @ x)),
        "cosine instead of exponential": dict(
            feature=lambda x, w: np.cos(w @ x) * np.exp(x @ x / 2)
        ),
        "spread of the inner product": dict(spread=lambda q, k: np.exp(2 * q @ k) - 1),
        "spread without the one": dict(spread=lambda q, k: np.exp((q + k) @ (q + k))),
    },
    covers=("eq-sparsemax-random",),
)
def random_features(impl):
    """Mean and relative variance of phi(q) phi(k) over a standard normal w in two dimensions, by
    Gauss-Hermite quadrature, against e^<q,k> and e^|q+k|^2 - 1; relative."""
    rng = np.random.default_rng(10)
    x, weight = np.polynomial.hermite_e.hermegauss(48)
    weight = weight / weight.sum()
    w = np.stack(np.meshgrid(x, x), -1).reshape(-1, 2)
    mass = np.outer(weight, weight).ravel()
    for _ in range(50):
        q, k = rng.uniform(-0.8, 0.8, (2, 2))
        product = impl.feature(q, w) * impl.feature(k, w)
        mean, exact = mass @ product, np.exp(q @ k)
        relative = mass @ product**2 / mean**2 - 1
        spread = impl.spread(q, k)
        yield max(abs(mean / exact - 1), abs(relative - spread) / (1 + spread))
