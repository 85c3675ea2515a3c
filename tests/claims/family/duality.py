"""Claims of the page "Which rules solve a problem?"."""

import numpy as np
import torch
from claims import claim
from scipy.optimize import minimize

from eotcourse import Tsallis, entmax, softmax

ORDERS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5)


def weights(s, alpha, tau):
    return entmax(s, alpha, tau)


def value(s, alpha, tau):
    return Tsallis(alpha).conjugate(s, tau)


def omega(p, alpha):
    return Tsallis(alpha).omega(p)


def normalised(f):
    """The rule p_j = f(s_j) / sum f(s_i)."""

    def rule(s, *_):
        t = f(s)
        return t / t.sum(-1, keepdim=True)

    return rule


RIVALS = {
    "normalised scores": normalised(lambda s: s),
    "normalised squares": normalised(lambda s: s**2),
    "normalised sigmoids": normalised(torch.sigmoid),
    "normalised elu + 1": normalised(lambda s: torch.nn.functional.elu(s) + 1),
}


def draw(rng, low=2):
    s = torch.as_tensor(rng.normal(0, 1.5, int(rng.integers(low, 7))))
    return s, float(rng.choice(ORDERS)), float(rng.choice([0.7, 2.0]))


@claim(
    "thm-conjugate-map",
    part="(a) one best point",
    result="T3.1",
    tol=2e-5,
    instances=36,
    real=dict(weights=weights, value=value),
    mutants={
        "argmin instead of argmax": dict(weights=lambda s, a, tau: weights(-s, a, tau)),
        "temperature missing": dict(weights=lambda s, a, tau: weights(s, a, 1.0)),
        "always Shannon": dict(weights=lambda s, a, tau: softmax(s, tau)),
        "value without the factor tau": dict(value=lambda s, a, tau: value(s, a, tau) / tau),
        "hard maximum": dict(value=lambda s, a, tau: s.max()),
    },
)
def optimum(impl):
    """Maximiser and value against scipy's SLSQP, which gets the objective and no formula for its
    optimum, for six members of the Tsallis family at two temperatures, from random starts."""
    rng = np.random.default_rng(0)
    for i in range(36):
        alpha, tau = ORDERS[i % 6], (0.7, 2.0)[i // 6 % 2]
        n = int(rng.integers(2, 6))
        s = rng.normal(0, 1.5, n)

        def cost(p, s=s, alpha=alpha, tau=tau):
            inside = np.maximum(p, 1e-300)
            if alpha == 1:
                return tau * (inside * np.log(inside)).sum() - s @ p
            return tau * ((inside**alpha).sum() - 1) / (alpha * (alpha - 1)) - s @ p

        def slope(p, s=s, alpha=alpha, tau=tau):
            inside = np.maximum(p, 1e-300)
            if alpha == 1:
                return tau * (np.log(inside) + 1) - s
            return tau * inside ** (alpha - 1) / (alpha - 1) - s

        found = minimize(
            cost,
            rng.dirichlet(np.ones(n)),
            jac=slope,
            bounds=[(1e-13, 1)] * n,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-16, "maxiter": 800},
        )
        p = impl.weights(torch.as_tensor(s), alpha, tau).numpy()
        v = float(impl.value(torch.as_tensor(s), alpha, tau))
        yield max(np.abs(found.x - p).max(), abs(found.fun + v))


@claim(
    "thm-conjugate-map",
    part="(b) the gradient is the maximiser",
    result="T3.1",
    tol=1e-8,
    instances=60,
    real=dict(weights=weights, value=value),
    mutants={
        "weights divided by the temperature": dict(
            weights=lambda s, a, tau: weights(s, a, tau) / tau
        ),
        "value of scaled scores": dict(value=lambda s, a, tau: value(s / tau, a, 1.0)),
        "temperature squared": dict(weights=lambda s, a, tau: weights(s, a, tau**2)),
        "neighbour in the family": dict(weights=lambda s, a, tau: weights(s, a + 0.01, tau)),
    },
)
def gradient(impl):
    """Central differences of V in each score, with step 1e-5 tau, against the weights."""
    rng = np.random.default_rng(1)
    for i in range(60):
        s, _, tau = draw(rng)
        alpha, h = ORDERS[i % 6], 1e-5 * tau
        step = h * torch.eye(len(s), dtype=torch.float64)
        rise = impl.value(s + step, alpha, tau) - impl.value(s - step, alpha, tau)
        yield float((rise / (2 * h) - impl.weights(s, alpha, tau)).abs().max())


@claim(
    "thm-conjugate-map",
    part="(b) a step is priced between the old and the new weights",
    result="T3.1",
    tol=1e-12,
    instances=120,
    real=dict(weights=weights, value=value),
    mutants={
        "value with the wrong sign": dict(value=lambda s, a, tau: -value(s, a, tau)),
        "temperature missing": dict(weights=lambda s, a, tau: weights(s, a, 1.0)),
        "argmin instead of argmax": dict(weights=lambda s, a, tau: weights(-s, a, tau)),
        "value without the factor tau": dict(value=lambda s, a, tau: value(s, a, tau) / tau),
    },
    covers=("eq-duality-sandwich",),
)
def sandwich(impl):
    """Both inequalities for V(s+h) - V(s) - <h, p*(s)>, at steps from 1e-4 to 10; the residual is
    how far the worse one is violated, relative to the step."""
    rng = np.random.default_rng(2)
    for _ in range(120):
        s, alpha, tau = draw(rng)
        h = torch.as_tensor(rng.normal(0, 10 ** rng.uniform(-4, 1), len(s)))
        here, there = impl.weights(s, alpha, tau), impl.weights(s + h, alpha, tau)
        rise = impl.value(s + h, alpha, tau) - impl.value(s, alpha, tau)
        excess, room = float(rise - h @ here), float(h @ (there - here))
        yield max(0.0, -excess, excess - room) / (1 + float(h.abs().max()))


@claim(
    "thm-conjugate-map",
    part="(c) shift and monotonicity",
    result="T3.1",
    tol=1e-12,
    instances=120,
    real=dict(weights=weights, value=value),
    mutants={
        "normalised sigmoids": dict(weights=RIVALS["normalised sigmoids"]),
        "shift divided by the temperature": dict(
            value=lambda s, a, tau: value(s - s.max(), a, tau) + s.max() / tau
        ),
        "argmin instead of argmax": dict(weights=lambda s, a, tau: weights(-s, a, tau)),
        "value relative to the mean score": dict(
            value=lambda s, a, tau: value(s, a, tau) - s.mean()
        ),
    },
)
def shift(impl):
    """V(s + c) - V(s) - c, the change of the weights under the same shift, and how far
    <p*(s) - p*(s'), s - s'> is below zero for a second random s'."""
    rng = np.random.default_rng(3)
    for _ in range(120):
        s, alpha, tau = draw(rng)
        c = float(rng.normal(0, 5))
        other = torch.as_tensor(rng.normal(0, 1.5, len(s)))
        p = impl.weights(s, alpha, tau)
        moved = impl.value(s + c, alpha, tau) - impl.value(s, alpha, tau) - c
        turned = (impl.weights(s + c, alpha, tau) - p).abs().max()
        back = (p - impl.weights(other, alpha, tau)) @ (s - other)
        yield max(abs(float(moved)) / (1 + abs(c)), float(turned), -float(back), 0.0)


@claim(
    "thm-conjugate-map",
    part="(d) keys are treated alike",
    result="T3.1",
    tol=1e-14,
    instances=100,
    real=dict(weights=weights),
    mutants={
        "a bias by position": dict(
            weights=lambda s, a, tau: weights(s + 0.1 * torch.arange(len(s)), a, tau)
        ),
        "argmin instead of argmax": dict(weights=lambda s, a, tau: weights(-s, a, tau)),
        "running sums": dict(weights=lambda s, a, tau: weights(s.cumsum(-1), a, tau)),
    },
)
def symmetric(impl):
    """Permuted scores give permuted weights, a larger score never a smaller weight, and two equal
    scores the same weight."""
    rng = np.random.default_rng(4)
    for _ in range(100):
        s, alpha, tau = draw(rng, low=3)
        s[1] = s[0]
        p = impl.weights(s, alpha, tau)
        order = torch.as_tensor(rng.permutation(len(s)))
        permuted = (impl.weights(s[order], alpha, tau) - p[order]).abs().max()
        ranked = p[s.argsort(descending=True)]
        yield max(float(permuted), float(ranked.diff().max()), abs(float(p[0] - p[1])), 0.0)


def family(s, alpha, tau):
    return Tsallis(alpha)(s, tau)


def positive(rng):
    """Three to five different positive scores, where every rival rule is smooth."""
    return torch.as_tensor(rng.permutation(np.arange(1, 8))[: rng.integers(3, 6)] * 0.4)


@claim(
    "thm-variational-rules",
    part="(a, b, c) symmetric, positive semidefinite, blind to shifts",
    result="T3.2",
    tol=1e-12,
    instances=24,
    real=dict(rule=family),
    mutants={name: dict(rule=rule) for name, rule in RIVALS.items()}
    | {"argmin instead of argmax": dict(rule=lambda s, a, tau: family(-s, a, tau))},
)
def jacobians(impl):
    """The Jacobian from automatic differentiation: its asymmetry, how far its smallest eigenvalue
    is below zero, and its product with the constant vector."""
    rng = np.random.default_rng(5)
    for i in range(24):
        s, alpha, tau = positive(rng), ORDERS[i % 6], (0.7, 2.0)[i // 6 % 2]
        J = torch.func.jacrev(lambda s: impl.rule(s, alpha, tau))(s).detach()
        lowest = float(torch.linalg.eigvalsh((J + J.T) / 2)[0])
        yield max(float((J - J.T).abs().max()), -lowest, float(J.sum(-1).abs().max()))


def integrate(rule, start, end, nodes=40):
    """The work of a rule along a segment, by Gauss-Legendre quadrature."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    t = torch.as_tensor((x + 1) / 2)[:, None]
    return float(torch.as_tensor(w / 2) @ (rule(start + t * (end - start)) @ (end - start)))


def gibbs(s, tau):
    return softmax(s, tau)


@claim(
    "thm-variational-rules",
    part="(a) no work on closed loops",
    result="T3.2",
    tol=1e-12,
    instances=60,
    real=dict(rule=gibbs),
    mutants={name: dict(rule=rule) for name, rule in RIVALS.items()},
)
def loops(impl):
    """The work around random triangles in three to five scores, by quadrature on each side."""
    rng = np.random.default_rng(6)
    for _ in range(60):
        n, tau = int(rng.integers(3, 6)), float(rng.uniform(0.5, 2))
        corners = torch.as_tensor(rng.uniform(0.5, 3, (3, n)))
        sides = zip(corners, corners.roll(-1, 0), strict=True)
        yield abs(sum(integrate(lambda s: impl.rule(s, tau), a, b) for a, b in sides))


@claim(
    "thm-variational-rules",
    part="(a) the line integral is the potential",
    result="T3.2",
    tol=1e-11,
    instances=60,
    real=dict(rule=gibbs, value=lambda s, tau: value(s, 1.0, tau)),
    mutants={
        "temperature missing in the rule": dict(rule=lambda s, tau: softmax(s)),
        "value of scaled scores": dict(value=lambda s, tau: value(s / tau, 1.0, 1.0)),
        "normalised sigmoids": dict(rule=RIVALS["normalised sigmoids"]),
        "argmin instead of argmax": dict(rule=lambda s, tau: softmax(-s, tau)),
    },
    covers=("eq-duality-line",),
)
def line(impl):
    """The integral of <p, ds> on the straight way from a to s against V(s) - V(a)."""
    rng = np.random.default_rng(7)
    for _ in range(60):
        n, tau = int(rng.integers(2, 6)), float(rng.uniform(0.7, 2))
        a, s = torch.as_tensor(rng.normal(0, 1.5, (2, n)))
        rise = float(impl.value(s, tau) - impl.value(a, tau))
        yield abs(integrate(lambda s: impl.rule(s, tau), a, s) - rise)


@claim(
    "thm-variational-rules",
    part="(c) the potential gives the regulariser back",
    result="T3.2",
    tol=1e-7,
    instances=20,
    real=dict(omega=omega, value=value),
    mutants={
        "entropy sign flipped": dict(omega=lambda p, a: -omega(p, a)),
        "neighbour in the family": dict(omega=lambda p, a: omega(p, a + 0.1)),
        "value plus a constant": dict(value=lambda s, a, tau: value(s, a, tau) + tau / a),
        "temperature a tenth too high": dict(value=lambda s, a, tau: value(s, a, tau + 0.1)),
    },
)
def recovered(impl):
    """The supremum over s' of <s', p> - V(s'), by scipy's BFGS, against tau Omega(p) at random
    interior weights."""
    rng = np.random.default_rng(8)
    for i in range(20):
        n, alpha, tau = int(rng.integers(2, 5)), (1.0, 1.5)[i % 2], float(rng.uniform(0.7, 2))
        p = torch.as_tensor(rng.dirichlet(np.full(n, 4.0)))

        def cost(x, p=p, alpha=alpha, tau=tau):
            s = torch.tensor(x, requires_grad=True)
            gap = impl.value(s, alpha, tau) - s @ p
            (slope,) = torch.autograd.grad(gap, s)
            return float(gap.detach()), slope.numpy()

        found = minimize(cost, np.zeros(n), jac=True, options={"gtol": 1e-9, "maxiter": 60})
        yield abs(-found.fun - tau * float(impl.omega(p, alpha)))


# Positive functions with the derivative of their logarithm.
SHAPES = (
    (np.exp, lambda x: np.ones_like(x)),
    (lambda x: x, lambda x: 1 / x),
    (lambda x: x**2, lambda x: 2 / x),
    (lambda x: 1 + x, lambda x: 1 / (1 + x)),
    (lambda x: 1 / (1 + np.exp(-x)), lambda x: 1 / (1 + np.exp(x))),
    (lambda x: 3 * np.exp(-x / 2), lambda x: np.full_like(x, -0.5)),
)


def share(t):
    return t / t.sum()


def predicted(i, j, p, slopes):
    return p[i] * p[j] * (slopes[i] - slopes[j])


@claim(
    "thm-exponential-rule",
    part="the asymmetry of a normalised rule",
    result="T3.3",
    tol=1e-9,
    instances=120,
    real=dict(share=share, asymmetry=predicted),
    mutants={
        "sign flipped": dict(asymmetry=lambda i, j, p, b: -predicted(i, j, p, b)),
        "one weight instead of two": dict(asymmetry=lambda i, j, p, b: p[i] * (b[i] - b[j])),
        "slopes added": dict(asymmetry=lambda i, j, p, b: p[i] * p[j] * (b[i] + b[j])),
        "not normalised": dict(share=lambda t: t),
        "euclidean length instead of the sum": dict(share=lambda t: t / np.sqrt(t @ t)),
    },
    covers=("eq-duality-asymmetry",),
)
def asymmetry(impl):
    """Central differences of p = f(s) / sum f(s), with another f for every key, against the
    product of two weights and the difference of two logarithmic slopes."""
    rng = np.random.default_rng(9)
    for _ in range(120):
        n = int(rng.integers(2, 6))
        s, pick = rng.uniform(0.3, 2, n), rng.integers(0, len(SHAPES), n)

        def rule(s, pick=pick):
            return impl.share(np.array([SHAPES[k][0](x) for k, x in zip(pick, s, strict=True)]))

        i, j = rng.choice(n, 2, replace=False)
        unit, h = np.eye(n), 1e-5
        cross = (rule(s + h * unit[j]) - rule(s - h * unit[j]))[i] / (2 * h)
        back = (rule(s + h * unit[i]) - rule(s - h * unit[i]))[j] / (2 * h)
        slopes = [float(SHAPES[k][1](x)) for k, x in zip(pick, s, strict=True)]
        yield abs(cross - back - impl.asymmetry(i, j, rule(s), slopes))


def exponential(s, amplitude, b):
    return normalised(lambda s: amplitude * torch.exp(b * s))(s)


@claim(
    "thm-exponential-rule",
    part="exponentials have a potential, convex for b >= 0",
    result="T3.3",
    tol=1e-8,
    instances=60,
    real=dict(
        rule=exponential,
        potential=lambda s, a, b: torch.logsumexp(b * s + a.log(), -1) / b,
        curvature=lambda p, b: b * (torch.diag(p) - torch.outer(p, p)),
    ),
    mutants={
        "potential without 1/b": dict(
            potential=lambda s, a, b: torch.logsumexp(b * s + a.log(), -1)
        ),
        "one slope per key": dict(
            rule=lambda s, a, b: exponential(s * torch.arange(1, len(s) + 1), a, b)
        ),
        "amplitude as an exponent": dict(
            potential=lambda s, a, b: torch.logsumexp(b * s + a, -1) / b
        ),
        "curvature always positive": dict(
            curvature=lambda p, b: abs(b) * (torch.diag(p) - torch.outer(p, p))
        ),
        "curvature without the mean": dict(curvature=lambda p, b: b * torch.diag(p)),
        "normalised elu + 1": dict(rule=RIVALS["normalised elu + 1"]),
    },
)
def potential(impl):
    """Central differences of log(sum A e^(bs)) / b against the rule, and of the rule against
    b (diag p - p p^T), whose sign is that of b; b of both signs."""
    rng = np.random.default_rng(10)
    for i in range(60):
        n = int(rng.integers(2, 6))
        b = float(rng.uniform(0.5, 1.5)) * (-1) ** i
        s, a = torch.as_tensor(rng.normal(0, 1, n)), torch.as_tensor(rng.uniform(0.3, 3, n))
        step, h = 1e-5 * torch.eye(n, dtype=torch.float64), 2e-5
        p = impl.rule(s, a, b)
        slope = (impl.potential(s + step, a, b) - impl.potential(s - step, a, b)) / h
        J = torch.stack([(impl.rule(s + e, a, b) - impl.rule(s - e, a, b)) / h for e in step], -1)
        yield max(float((slope - p).abs().max()), float((J - impl.curvature(p, b)).abs().max()))
