"""Claims of the page "One matrix and its readings"."""

import numpy as np
import torch
from claims import claim
from scipy.special import logsumexp, softmax
from torch.autograd.functional import hessian, jacobian

import eotcourse
from eotcourse import Tsallis
from eotcourse.geometry import Fisher, Metric, potential


def size(x):
    return float(torch.as_tensor(x).abs().max())


def rows(seed, count, smallest=2):
    """Weights (every third on a face), scaled scores on the support, its mask, a temperature."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        n = int(rng.integers(smallest, 8))
        on = np.ones(n, dtype=bool)
        if i % 3 == 2:
            on[rng.permutation(n)[: int(rng.integers(1, n))]] = False
        theta = np.where(on, rng.normal(0, 1.2, n), -np.inf)
        tau = float(rng.choice([0.5, 1.7, 3.0]))
        theta, on = torch.as_tensor(theta), torch.as_tensor(on)
        yield rng, torch.softmax(theta, -1), theta, on, tau


def on_face(matrix, on):
    """A matrix of the support, filled up with zeros."""
    full = matrix.new_zeros(len(on), len(on))
    full[on[:, None] & on[None, :]] = matrix.flatten()
    return full


@claim(
    "thm-one-matrix",
    part="(a) Hessian and Jacobian",
    result="T5.1",
    tol=1e-7,
    instances=90,
    real=dict(
        potential=potential,
        weights=eotcourse.softmax,
        matrix=lambda p, tau: Fisher(p).dense() / tau,
    ),
    mutants={
        "temperature missing": dict(matrix=lambda p, tau: Fisher(p).dense()),
        "temperature twice": dict(matrix=lambda p, tau: Fisher(p, "score", tau).dense()),
        "the metric of the weights": dict(matrix=lambda p, tau: Fisher(p, "mean").dense() / tau),
        "not centred": dict(matrix=lambda p, tau: torch.diag(p) / tau),
        "value without its factor": dict(potential=lambda s, tau: potential(s, tau) / tau),
    },
)
def second_derivative(impl):
    """Central differences of scipy's softmax in the finite scores, and of scipy's log-sum-exp for
    the weights, against double autograd of the package's potential, autograd of its softmax and
    the covariance matrix over tau."""
    h = 1e-5
    for _, p, theta, on, tau in rows(0, 90):
        s, e = tau * theta[on], h * np.eye(int(on.sum()))
        x = s.numpy()
        slopes = [(softmax((x + d) / tau) - softmax((x - d) / tau)) / (2 * h) for d in e]
        rise = [tau * (logsumexp((x + d) / tau) - logsumexp((x - d) / tau)) / (2 * h) for d in e]
        truth = on_face(torch.as_tensor(np.stack(slopes, -1)), on)
        H = hessian(lambda x, t=tau: impl.potential(x, t), s)
        J = jacobian(lambda x, t=tau: impl.weights(x, t), s)
        yield max(
            size(on_face(H, on) - truth),
            size(on_face(J, on) - truth),
            size(impl.matrix(p, tau) - truth),
            size(impl.weights(tau * theta, tau)[on] - torch.as_tensor(rise)),
        )


def information(log_weights, x):
    """Fisher information by its definition, the outcomes counted one by one."""
    slopes = jacobian(log_weights, x)
    return torch.einsum("j,ja,jb->ab", log_weights(x).exp(), slopes, slopes)


@claim(
    "thm-one-matrix",
    part="(b) covariance and Fisher matrix",
    result="T5.1",
    tol=1e-11,
    instances=90,
    real=dict(
        natural=lambda p: Fisher(p).dense(),
        score=lambda p, tau: Fisher(p, "score", tau).dense(),
        hessian_over=lambda tau: tau,
    ),
    mutants={
        "score chart not scaled": dict(score=lambda p, tau: Fisher(p).dense()),
        "score chart scaled once": dict(score=lambda p, tau: Fisher(p).dense() / tau),
        "charts exchanged": dict(natural=lambda p: Fisher(p, "mean").dense()),
        "second moment": dict(natural=lambda p: torch.diag(p)),
        "Hessian is the raw Fisher over tau": dict(hessian_over=lambda tau: 1 / tau),
    },
    covers=("eq-one-matrix",),
)
def fisher(impl):
    """Covariance of one-hot vectors, and the Fisher information in scaled and in raw scores summed
    outcome by outcome from autograd of the log-weights; the Hessian by double autograd."""
    for _, p, theta, on, tau in rows(1, 90):
        e = torch.eye(len(p), dtype=p.dtype)
        covariance = sum(w * torch.outer(x - p, x - p) for w, x in zip(p, e, strict=True))
        in_theta = information(lambda x: torch.log_softmax(x, -1), theta[on])
        in_s = information(lambda x, t=tau: torch.log_softmax(x / t, -1), tau * theta[on])
        H = hessian(lambda x, t=tau: t * torch.logsumexp(x / t, -1), tau * theta[on])
        score = impl.score(p, tau)
        yield max(
            size(impl.natural(p) - covariance),
            size(impl.natural(p) - on_face(in_theta, on)),
            size(score - on_face(in_s, on)),
            size(on_face(H, on) - impl.natural(p) / tau),
            size(on_face(H, on) - impl.hessian_over(tau) * score),
        )


def kernel(on):
    """One vector that is constant on the support, and a unit vector for each key off it."""
    return torch.cat([on.to(torch.float64)[None], torch.eye(len(on), dtype=torch.float64)[~on]])


@claim(
    "thm-one-matrix",
    part="(c) sign, kernel, rank",
    result="T5.1",
    tol=1e-12,
    instances=120,
    real=dict(apply=lambda p, h: Fisher(p) @ h, kernel=kernel, rank=lambda on: int(on.sum()) - 1),
    mutants={
        "full rank on the support": dict(rank=lambda on: int(on.sum())),
        "rank counts all keys": dict(rank=lambda on: len(on) - 1),
        "unit vectors of the support": dict(
            kernel=lambda on: torch.eye(len(on), dtype=torch.float64)[on]
        ),
        "the inverse metric": dict(apply=lambda p, h: Fisher(p, "mean") @ h),
        "variance about the plain mean": dict(apply=lambda p, h: p * (h - h.mean())),
        "sign": dict(apply=lambda p, h: -(Fisher(p) @ h)),
    },
)
def definite(impl):
    """The form against a double sum over pairs of keys; the named kernel against zero, its size
    and the eigenvalues of numpy against the rank."""
    for rng, p, _, on, _ in rows(2, 120):
        h = torch.as_tensor(rng.normal(size=len(p)))
        pairs = 0.5 * (torch.outer(p, p) * (h[:, None] - h[None, :]) ** 2).sum()
        null = impl.kernel(on)
        values = np.linalg.eigvalsh((torch.diag(p) - torch.outer(p, p)).numpy())
        rank = impl.rank(on)
        wrong = (values > 1e-9).sum() != rank or len(null) != len(p) - rank
        yield max(
            size(h @ impl.apply(p, h) - pairs),
            max(size(impl.apply(p, x)) for x in null),
            float(wrong),
            float(max(0, -values[0])),
        )


@claim(
    "thm-one-matrix",
    part="(d) the weights as coordinates",
    result="T5.1",
    tol=1e-10,
    instances=120,
    real=dict(
        mean=lambda p, v: Fisher(p, "mean") @ v,
        natural=lambda p, h: Fisher(p) @ h,
        minimal=lambda eta, last: torch.diag(1 / eta) + 1 / last,
    ),
    mutants={
        "charts exchanged": dict(mean=lambda p, v: Fisher(p) @ v),
        "weights not inverted": dict(mean=lambda p, v: p * v),
        "the last weight ignored": dict(minimal=lambda eta, last: torch.diag(1 / eta)),
        "all weights as if free": dict(minimal=lambda eta, last: torch.diag(1 / eta) + 1),
        "velocity without the mean": dict(natural=lambda p, h: p * h),
    },
)
def mean_chart(impl):
    """A row that moves along a straight line of scores: autograd gives its velocity and its Fisher
    information about time, outcome by outcome; numpy inverts the block of the covariance."""
    for rng, p, theta, on, _ in rows(3, 120):
        h = torch.where(on, torch.as_tensor(rng.normal(size=len(p))), 0.0)
        zero = torch.zeros((), dtype=p.dtype)
        slope = jacobian(lambda t: torch.log_softmax(theta[on] + t * h[on], -1), zero)
        about_time = (p[on] * slope**2).sum()
        v = torch.zeros_like(p).masked_scatter(on, p[on] * slope)
        off = [v @ impl.mean(p, v) - about_time, impl.natural(p, h) - v,
               h @ impl.natural(p, h) - about_time]
        if on.sum() > 1:
            keys = on.nonzero().squeeze(-1)
            k = keys[int(rng.integers(len(keys)))]
            others = keys[keys != k]
            block = (torch.diag(p) - torch.outer(p, p))[others][:, others]
            inverse = torch.as_tensor(np.linalg.inv(block.numpy()))
            minimal = impl.minimal(p[others], p[k])
            off.append((minimal - inverse) / inverse.abs().max())
            form = v[others] @ minimal @ v[others]
            off.append(form - about_time)
            x = theta[others] - theta[k]
            other = information(
                lambda x: torch.log_softmax(torch.cat([x, x.new_zeros(1)]), -1), x
            )
            off.append(other - block)
        yield max(size(x) for x in off)


def interior(seed, count):
    """A strictly convex function that is no sum over keys, and a point inside where it is best."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(rng.integers(2, 6))
        root = rng.normal(size=(n, n))
        yield rng, root @ root.T / n, rng.dirichlet(3 * np.ones(n)), float(rng.choice([0.6, 2.3]))


def maximise(s, tau, A, start):
    """Newton's method for <s, p> - tau (sum p log p + p.A.p/2), started near its solution."""
    p, n = start.copy(), len(s)
    for _ in range(8):
        rise = s - tau * (np.log(p) + 1 + A @ p)
        system = np.zeros((n + 1, n + 1))
        system[:n, :n] = tau * (np.diag(1 / p) + A)
        system[:n, n] = system[n, :n] = 1
        p = p + np.linalg.solve(system, np.append(rise, 1 - p.sum()))[:n]
    value = s @ p - tau * ((p * np.log(p)).sum() + p @ A @ p / 2)
    return p, value


def primal(M, tau):
    """The pseudo-inverse of the objective's curvature on tangent vectors."""
    n = len(M)
    centre = np.eye(n) - 1 / n
    return np.linalg.pinv(tau * centre @ M @ centre, rcond=1e-9)


@claim(
    "prop-shannon-readings",
    part="(a) every regulariser",
    result="E37, E38",
    tol=2e-6,
    instances=60,
    real=dict(inverse=primal, hessian=lambda p, A: np.diag(1 / p) + A),
    mutants={
        "temperature missing": dict(inverse=lambda M, tau: primal(M, 1.0)),
        "curvature, not its inverse": dict(inverse=lambda M, tau: np.linalg.inv(primal(M, tau))),
        "inverted on all vectors": dict(inverse=lambda M, tau: np.linalg.inv(tau * M)),
        "centred after the inversion": dict(
            inverse=lambda M, tau: (np.eye(len(M)) - 1 / len(M))
            @ np.linalg.inv(tau * M)
            @ (np.eye(len(M)) - 1 / len(M))
        ),
        "Shannon's for all": dict(hessian=lambda p, A: np.diag(1 / p)),
        "sign": dict(inverse=lambda M, tau: -primal(M, tau)),
    },
)
def every_regulariser(impl):
    """Entropy plus a random quadratic form that couples the keys, solved by Newton's method:
    central differences of the maximiser and second differences of the value, against the
    pseudo-inverse of the primal curvature."""
    for rng, A, p, tau in interior(4, 60):
        s, n = tau * (np.log(p) + A @ p), len(p)
        eps, e = 1e-4, np.eye(n)
        J = np.stack(
            [
                (maximise(s + eps * x, tau, A, p)[0] - maximise(s - eps * x, tau, A, p)[0])
                / (2 * eps)
                for x in e
            ],
            -1,
        )
        h = rng.normal(size=n)
        ends = [maximise(s + x * h * 1e-3, tau, A, p)[1] for x in (-1, 0, 1)]
        bend = (ends[0] - 2 * ends[1] + ends[2]) / 1e-6
        M = impl.hessian(p, A)
        expected = impl.inverse(M, tau)
        v = rng.normal(size=n)
        v -= v.mean()
        yield max(
            np.abs(J - expected).max() / (1 + np.abs(J).max()),
            abs(bend - h @ expected @ h) / 10 / (1 + abs(bend)),
            np.abs(J @ (tau * M @ v) - v).max() / 10 / (1 + np.abs(tau * M).max()),
        )


@claim(
    "prop-shannon-readings",
    part="(b) not every regulariser",
    result="E37",
    tol=0,
    instances=160,
    real=dict(
        order=lambda alpha: alpha,
        middle=lambda p, member, tau, h: Metric(p, member, tau).sharp(h),
        direction=lambda h, p: h,
        factor=lambda tau: tau,
    ),
    mutants={
        "Shannon too": dict(order=lambda alpha: 1.0 + 1e-13),
        "temperature missing in the Fisher matrix": dict(factor=lambda tau: 1 / tau),
        "temperature twice": dict(
            middle=lambda p, member, tau, h: Metric(p, member, tau).sharp(h) / tau
        ),
        "constants on the support": dict(direction=lambda h, p: (p > 0).to(h.dtype)),
        "the covariance in the middle": dict(
            middle=lambda p, member, tau, h: Fisher(p) @ h / tau
        ),
    },
    covers=("eq-shannon-sandwich",),
)
def shannon_only(impl):
    """How the weights move, by central differences of the map, gives the middle and, outcome by
    outcome, the Fisher information; the covariance is written out.  The residual is 1 where one of
    the two inequalities is not strict, and where the package's Jacobian is not the one of the
    differences.  Sparse rows, and at orders below 2 keys at the edge."""
    rng, found, d = np.random.default_rng(5), 0, 1e-6
    while found < 160:
        alpha = (1.2, 1.5, 1.9, 2.0, 2.5)[found % 5]
        n, tau = int(rng.integers(2, 7)), float(rng.choice([0.5, 2.0]))
        s = torch.as_tensor(rng.normal(0, 1.0, n))
        member, edge = Tsallis(alpha), found % 5 < 2 and found % 4 == 0 and n > 2
        if edge:
            s[0] = tau * (member.threshold(s[1:], tau) - 1 / (alpha - 1))
        margin = (alpha - 1) * (s / tau - member.threshold(s, tau)) + 1
        if margin[int(edge) :].abs().min() < 1e-2 or (margin > 1e-9).sum() < 2:
            continue
        found += 1
        member = Tsallis(impl.order(alpha))
        p = member(s, tau)
        if edge:
            p = p.index_fill(0, torch.tensor([0]), 0.0)
        on = p > 0
        h = impl.direction(torch.as_tensor(rng.normal(size=n)), p)
        move = (member(s + d * h, tau) - member(s - d * h, tau)) / (2 * d)
        low = float((p * h**2).sum() - (p * h).sum() ** 2) / tau
        middle = float(h @ impl.middle(p, member, tau, h))
        high = impl.factor(tau) * float((move[on] ** 2 / p[on]).sum())
        gap = 1e-5 * (low + high)
        strict = low + gap < middle and middle + gap < high
        own = abs(middle - float(h @ move)) <= 1e-5 * (1 + high)
        yield 0.0 if strict and own else 1.0


def penrose(A, X):
    """Deviation from the four conditions that single out the pseudo-inverse."""
    products = A @ X, X @ A
    return max(
        size(A @ X @ A - A) / size(A),
        size(X @ A @ X - X) / size(X),
        *(size(P - P.T) for P in products),
    )


def dense(p):
    return torch.diag(p) - torch.outer(p, p)


def columns(f, n):
    return torch.stack([f(x) for x in torch.eye(n, dtype=torch.float64)], -1)


def closed(p, v, before=True, after=True, under=False, all_keys=False):
    """The closed form, with what each mutant changes in it."""
    on = torch.ones_like(p) if all_keys else (p > 0).to(p.dtype)
    weight = p if under else on / on.sum()
    x = on * v
    if before:
        x = on * (x - (weight * x).sum())
    x = x / torch.where(p > 0, p, 1.0)
    return on * (x - (weight * x).sum()) if after else x


@claim(
    "thm-pseudo-inverse",
    part="(a) the four conditions",
    result="T5.2",
    tol=1e-10,
    instances=150,
    real=dict(pinv=lambda p, v: Fisher(p).pinv(v)),
    mutants={
        "not centred": dict(pinv=lambda p, v: closed(p, v, False, False)),
        "not centred first": dict(pinv=lambda p, v: closed(p, v, before=False)),
        "not centred last": dict(pinv=lambda p, v: closed(p, v, after=False)),
        "mean under the weights": dict(pinv=lambda p, v: closed(p, v, under=True)),
        "means over all keys": dict(pinv=lambda p, v: closed(p, v, all_keys=True)),
        "the matrix itself": dict(pinv=lambda p, v: Fisher(p) @ v),
        "one key": dict(pinv=lambda p, v: Fisher(p.clamp_min(1e-3)).pinv(v)),
    },
)
def moore_penrose(impl):
    """The columns of the package's pseudo-inverse: the four Moore-Penrose conditions, the product
    against the projection written out, and numpy's routine where the support is known."""
    for _, p, _, on, _ in rows(6, 150):
        C, n = dense(p), len(p)
        X = columns(lambda x, p=p: impl.pinv(p, x), n)
        if on.sum() == 1:
            yield size(X)
            continue
        one = on.to(p.dtype)
        centre = torch.diag(one) - torch.outer(one, one) / one.sum()
        by_numpy = torch.as_tensor(np.linalg.pinv(C.numpy(), rcond=1e-9))
        yield max(
            penrose(C, X),
            size(X @ C - centre),
            size(C @ X - centre),
            size(X - by_numpy) / size(X) / 10,
        )


@claim(
    "thm-pseudo-inverse",
    part="(b) all solutions, the shortest",
    result="T5.2, E35",
    tol=1e-10,
    instances=150,
    real=dict(
        natural=lambda g, p, tau: Fisher(p).pinv(g),
        score=lambda g, p, tau: Fisher(p, "score", tau).pinv(g),
        shortest=lambda a, on, p: torch.where(on, a - a[on].mean(), 0.0),
        free=lambda on, c, z: torch.where(on, c, z),
    ),
    mutants={
        "mean under the weights": dict(
            shortest=lambda a, on, p: torch.where(on, a - p @ a, 0.0)
        ),
        "the utilities themselves, as in the source": dict(
            shortest=lambda a, on, p: torch.where(on, a, 0.0)
        ),
        "mean over all keys": dict(shortest=lambda a, on, p: torch.where(on, a - a.mean(), 0.0)),
        "sign, as in the source": dict(natural=lambda g, p, tau: -Fisher(p).pinv(g)),
        "temperature missing in raw scores": dict(score=lambda g, p, tau: Fisher(p).pinv(g)),
        "one temperature in raw scores": dict(
            score=lambda g, p, tau: tau * Fisher(p).pinv(g)
        ),
        "any vector may be added": dict(free=lambda on, c, z: z),
    },
    covers=("eq-pseudo-inverse",),
)
def solutions(impl):
    """The gradient in raw scores by autograd of a nonlinear loss; a library's least squares of the
    smallest norm against the package and the formula, and other solutions tried in the equation."""
    for rng, p, theta, on, tau in rows(7, 150):
        n = len(p)
        x = (tau * theta).clone().requires_grad_()
        w = torch.as_tensor(rng.normal(size=(n, 3)))
        q = torch.softmax(x / tau, -1)
        q.retain_grad()
        loss = torch.sin(q @ w).sum() + (q**3).sum()
        loss.backward()
        a, g = -q.grad, x.grad
        best = -impl.shortest(a, on, p) / tau
        lstsq = torch.as_tensor(np.linalg.lstsq(dense(p).numpy(), g.numpy(), rcond=1e-9)[0])
        other = -a / tau + impl.free(on, 1.7, torch.as_tensor(rng.normal(size=n)))
        scale = 1 + size(a) / tau
        yield max(
            size(impl.natural(g, p, tau) - best) / scale,
            size(best - lstsq) / scale,
            size(impl.score(g, p, tau) - tau**2 * best) / scale / tau**2,
            size(dense(p) @ other - g),
        )


@claim(
    "thm-pseudo-inverse",
    part="(b) weights of 1e-11",
    result="T5.2",
    tol=1e-12,
    instances=80,
    real=dict(pinv=lambda p, v: Fisher(p).pinv(v)),
    mutants={
        "a library's pseudo-inverse": dict(pinv=lambda p, v: torch.linalg.pinv(dense(p)) @ v),
        "a library's inverse of a ridge": dict(
            pinv=lambda p, v: torch.linalg.solve(dense(p) + 1e-9 * torch.eye(len(p)), v)
        ),
        "closed form taken literally": dict(pinv=closed),
        "small weights taken for zeros": dict(
            pinv=lambda p, v: closed(torch.where(p > 1e-9, p, 0.0), v)
        ),
    },
)
def tiny(impl):
    """Gradients p (a - mean) of known utilities, with one or two weights near 1e-11: the result
    against the centred utilities, which contain no small number."""
    rng = np.random.default_rng(8)
    for i in range(80):
        n, small = int(rng.integers(3, 7)), 1e-11 * rng.uniform(0.3, 3, 1 + i % 2)
        p = np.concatenate([rng.dirichlet(np.ones(n)) * (1 - small.sum()), small])
        a = rng.normal(size=len(p))
        p, a = torch.as_tensor(p), torch.as_tensor(a)
        g = p * (a - p @ a)
        yield size(impl.pinv(p, g) - (a - a.mean()))


@claim(
    "thm-pseudo-inverse",
    part="(c) a reference key",
    result="T5.2",
    tol=1e-10,
    instances=150,
    real=dict(
        invertible=lambda K, on: bool(on[K].all()) and len(K) < int(on.sum()),
        solution=lambda a, k, tau: -(a - a[k]) / tau,
    ),
    mutants={
        "any n - 1 keys": dict(invertible=lambda K, on: len(K) < len(on)),
        "any keys of the support": dict(invertible=lambda K, on: bool(on[K].all())),
        "few enough keys": dict(invertible=lambda K, on: len(K) < int(on.sum())),
        "sign, as in the source": dict(solution=lambda a, k, tau: (a - a[k]) / tau),
        "no reference": dict(solution=lambda a, k, tau: -a / tau),
        "temperature missing": dict(solution=lambda a, k, tau: -(a - a[k])),
        "plain mean": dict(solution=lambda a, k, tau: -(a - a.mean()) / tau),
    },
)
def reference(impl):
    """Random sets of keys: numpy's singular values of the block decide whether it is invertible;
    for the support without one key, numpy solves the block's equation."""
    for rng, p, _, on, tau in rows(9, 150):
        n, C = len(p), dense(p)
        K = torch.as_tensor(rng.permutation(n)[: int(rng.integers(1, n + 1))])
        least = np.linalg.svd(C[K][:, K].numpy(), compute_uv=False)[-1]
        off = float((least > 1e-9) != impl.invertible(K, on))
        if on.sum() > 1:
            keys = on.nonzero().squeeze(-1)
            k, others = keys[0], keys[1:]
            a = torch.as_tensor(rng.normal(size=n))
            g = -(C @ a) / tau
            x = np.linalg.solve(C[others][:, others].numpy(), g[others].numpy())
            off = max(off, size(torch.as_tensor(x) - impl.solution(a, k, tau)[others]))
        yield off
