"""Claims of the page "From two marginals to one"."""

import warnings

import numpy as np
import torch
from claims import claim
from scipy.special import entr, rel_entr

from eotcourse import LogPrior, Shannon, softmax
from eotcourse.transport import semi_relaxed, sinkhorn, sinkhorn_steps


def attention_plan(S, mu, eps):
    return mu[:, None] * softmax(S, eps)


def two_sided(S, mu, nu, eps):
    return sinkhorn(-S, mu, nu, eps, tol=1e-13).P


def penalised(S, mu, nu, eps, lam, reference):
    return semi_relaxed(-S, mu, nu, eps, lam, reference=reference, tol=1e-14).P


def first_half_step(S, mu, eps):
    f, g, _ = next(sinkhorn_steps(-S, mu, None, eps))
    return torch.exp((f[:, None] + g + S) / eps)


def problem(rng, m=None):
    m, n = m or int(rng.integers(2, 6)), int(rng.integers(2, 7))
    S = torch.as_tensor(rng.normal(0, 1.5, (m, n)))
    mu, nu = (torch.as_tensor(rng.dirichlet(np.full(k, 3.0))) for k in (m, n))
    return S, mu, nu, float(rng.uniform(0.3, 2.0))


def objective(S, P, eps):
    used = torch.where(P == 0, 0.0, S)
    return float(-(used * P).sum()) - eps * entr(P.numpy()).sum()


def kl(P, Q):
    return rel_entr(P.numpy(), Q.numpy()).sum()


def worst(difference):
    return difference.abs().max()


def _on_transpose(S, mu, eps):
    return mu[:, None] * softmax(S, eps, dim=0)


@claim(
    "thm-rows-decouple",
    part="shortfall of a one-sided plan",
    result="T2.2",
    tol=1e-12,
    instances=200,
    real=dict(plan=attention_plan),
    mutants={
        "softmax over queries": dict(plan=_on_transpose),
        "cost for score": dict(plan=lambda S, mu, eps: attention_plan(-S, mu, eps)),
        "eps divided twice": dict(plan=lambda S, mu, eps: attention_plan(S, mu, eps**2)),
        "masses forgotten": dict(plan=lambda S, mu, eps: softmax(S, eps) / len(S)),
        "forbidden means a score of -5": dict(
            plan=lambda S, mu, eps: attention_plan(S.clamp(min=-5), mu, eps)
        ),
    },
)
def shortfall(impl):
    """Objective of a random one-sided plan minus that of P* against eps KL, in scipy's entropy;
    every third problem forbids keys with scores of -inf."""
    rng = np.random.default_rng(0)
    for i in range(200):
        S, mu, _, eps = problem(rng)
        P = mu[:, None] * torch.as_tensor(rng.dirichlet(np.full(S.shape[1], 0.4), len(mu)))
        if i % 3 == 0:
            hidden = torch.as_tensor(rng.random(S.shape) < 0.4)
            hidden[range(len(mu)), torch.as_tensor(rng.integers(0, S.shape[1], len(mu)))] = False
            S = S.masked_fill(hidden, -torch.inf)
            P = P.masked_fill(hidden, 0.0) + 1e-3 * ~hidden
            P = mu[:, None] * P / P.sum(1, keepdim=True)
        best = impl.plan(S, mu, eps)
        yield abs(objective(S, P, eps) - objective(S, best, eps) - eps * kl(P, best))


@claim(
    "thm-rows-decouple",
    part="first half-step of Sinkhorn",
    result="T2.2",
    tol=1e-13,
    instances=100,
    real=dict(step=first_half_step),
    mutants={
        "columns first": dict(step=lambda S, mu, eps: first_half_step(S.T, None, eps).T),
        "column potential not zero": dict(
            step=lambda S, mu, eps: first_half_step(S + torch.arange(S.shape[1]) / 7, mu, eps)
        ),
    },
)
def half_step(impl):
    """The first row update against exp(S/eps) with rows rescaled to mu, in plain numpy."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        S, mu, _, eps = problem(rng)
        K = np.exp(S.numpy() / eps)
        by_hand = K * (mu.numpy() / K.sum(1))[:, None]
        yield np.abs(impl.step(S, mu, eps).numpy() - by_hand).max()


@claim(
    "prop-one-query-degenerate",
    result="T2.3",
    tol=1e-12,
    instances=50,
    real=dict(solve=two_sided),
    mutants={
        "column constraint dropped": dict(solve=lambda S, mu, nu, eps: attention_plan(S, mu, eps)),
        "marginal softened to a penalty": dict(
            solve=lambda S, mu, nu, eps: penalised(S, mu, nu, eps, 1.0, "counting")
        ),
        "uniform marginal": dict(solve=lambda S, mu, nu, eps: two_sided(S, mu, None, eps)),
    },
)
def one_query(impl):
    """The two-sided plan of a single query against nu, at scores of any size."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        S, mu, nu, eps = problem(rng, m=1)
        yield worst(impl.solve(S * rng.uniform(0, 20), mu, nu, eps)[0] - nu)


@claim(
    "thm-own-marginal",
    part="its own marginal returns attention",
    result="T2.4",
    tol=1e-11,
    instances=60,
    real=dict(solve=two_sided, plan=attention_plan),
    mutants={
        "uniform marginal": dict(solve=lambda S, mu, nu, eps: two_sided(S, mu, None, eps)),
        "marginal of the transposed softmax": dict(plan=_on_transpose),
        "eps of the solver halved": dict(
            solve=lambda S, mu, nu, eps: two_sided(S, mu, nu, eps / 2)
        ),
    },
)
def own_marginal(impl):
    """Sinkhorn with the column sums of the row softmax against the row softmax itself."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        S, mu, _, eps = problem(rng)
        P = impl.plan(S, mu, eps)
        yield worst(impl.solve(S, mu, P.sum(0) / P.sum(), eps) - P)


@claim(
    "thm-own-marginal",
    part="excess of any other marginal",
    result="T2.4",
    tol=1e-9,
    instances=60,
    real=dict(solve=two_sided, entropy=lambda P, mu, nu: entr(P.numpy()).sum()),
    mutants={
        "value with KL to the product": dict(
            entropy=lambda P, mu, nu: -kl(P, mu[:, None] * nu)
        ),
        "entropy added instead of subtracted": dict(
            entropy=lambda P, mu, nu: -entr(P.numpy()).sum()
        ),
        "eps of the solver doubled": dict(
            solve=lambda S, mu, nu, eps: two_sided(S, mu, nu, 2 * eps)
        ),
    },
)
def excess(impl):
    """W(nu) minus the one-sided value, from log-sum-exp, against eps KL(P_nu || P*)."""
    rng = np.random.default_rng(4)
    for _ in range(60):
        S, mu, nu, eps = problem(rng)
        P = impl.solve(S, mu, nu, eps)
        W = float(-(S * P).sum()) - eps * impl.entropy(P, mu, nu)
        rows = eps * torch.logsumexp(S / eps, 1)
        one_sided = float(-(mu * rows).sum()) - eps * entr(mu.numpy()).sum()
        # The plan must be the two-sided optimum as well, which the excess alone cannot see.
        ratio = (P / P[:1]).log() - (P / P[:1])[:, :1].log()
        kernel = ((S - S[:1]) - (S - S[:1])[:, :1]) / eps
        misfit = worst(ratio - kernel) + worst(P.sum(0) - nu)
        yield abs(W - one_sided - eps * kl(P, attention_plan(S, mu, eps))) + float(misfit)


@claim(
    "thm-semi-relaxed",
    part="first-order term",
    result="T2.5",
    tol=2e-4,
    instances=60,
    real=dict(solve=penalised),
    mutants={
        "penalty pulls away": dict(
            solve=lambda S, mu, nu, eps, lam, ref: 2 * attention_plan(S, mu, eps)
            - penalised(S, mu, nu, eps, lam, ref)
        ),
        "weight divided by eps": dict(
            solve=lambda S, mu, nu, eps, lam, ref: penalised(S, mu, nu, eps, lam / eps, ref)
        ),
        "uniform target": dict(
            solve=lambda S, mu, nu, eps, lam, ref: penalised(S, mu, None, eps, lam, ref)
        ),
    },
    covers=("eq-semi-relaxed-first-order",),
)
def first_order(impl):
    """(P_lambda - P_0) / lambda at lambda = 1e-5, relative, against the formula in numpy."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        S, mu, nu, eps = problem(rng)
        lam, A = 1e-5, torch.softmax(S / eps, 1)
        P0 = mu[:, None] * A
        h = torch.log(nu / P0.sum(0)) / eps
        tilt = P0 * (h - (A @ h)[:, None])
        found = (impl.solve(S, mu, nu, eps, lam, "counting") - P0) / lam
        yield worst(found - tilt) / (worst(tilt) + 0.1)


@claim(
    "thm-semi-relaxed",
    part="limits and references",
    result="T2.5",
    tol=1e-6,
    instances=20,
    real=dict(solve=penalised),
    mutants={
        "references exchanged": dict(
            solve=lambda S, mu, nu, eps, lam, ref: penalised(
                S, mu, nu, eps, lam, "product" if ref == "counting" else "counting"
            )
        ),
        "weight inverted": dict(
            solve=lambda S, mu, nu, eps, lam, ref: penalised(S, mu, nu, eps, 1 / lam, ref)
        ),
        "score for cost": dict(
            solve=lambda S, mu, nu, eps, lam, ref: penalised(-S, mu, nu, eps, lam, ref)
        ),
    },
)
def limits(impl):
    """lambda = 1e-8: row softmax, or prior softmax; lambda = 1e8: the two-sided plan."""
    rng = np.random.default_rng(6)
    for _ in range(20):
        S, mu, nu, eps = problem(rng)
        prior = mu[:, None] * Shannon(LogPrior(nu.log()))(S, eps)
        ends = [
            impl.solve(S, mu, nu, eps, 1e-8, "counting") - attention_plan(S, mu, eps),
            impl.solve(S, mu, nu, eps, 1e-8, "product") - prior,
            impl.solve(S, mu, nu, eps, 1e8, "counting") - two_sided(S, mu, nu, eps),
            impl.solve(S, mu, nu, eps, 1e8, "product") - two_sided(S, mu, nu, eps),
        ]
        yield max(worst(end) for end in ends)


@claim(
    "thm-semi-relaxed",
    part="against POT",
    result="T2.5",
    tol=1e-8,
    instances=12,
    real=dict(solve=penalised),
    mutants={
        "column exponent eps/(lam+eps)": dict(
            solve=lambda S, mu, nu, eps, lam, ref: penalised(S, mu, nu, eps, eps**2 / lam, ref)
        ),
        "rows penalised, columns imposed": dict(
            solve=lambda S, mu, nu, eps, lam, ref: penalised(S.T, nu, mu, eps, lam, ref).T
        ),
    },
)
def pot(impl):
    """Both references against POT's unbalanced solver with an infinite weight on the rows."""
    import ot

    rng = np.random.default_rng(7)
    for _ in range(6):
        S, mu, nu, eps = problem(rng)
        lam = float(rng.uniform(0.2, 3.0)) * eps * 1.7
        for reference, kind in (("counting", "entropy"), ("product", "kl")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                P = ot.unbalanced.sinkhorn_unbalanced(
                    mu.numpy(), nu.numpy(), -S.numpy(), eps, (np.inf, lam),
                    reg_type=kind, numItermax=5000, stopThr=1e-15,
                )
            yield np.abs(impl.solve(S, mu, nu, eps, lam, reference).numpy() - P).max()
