"""The conversion tables of the conventions page, row by row.

A check returns two residuals: with the conversion of the row, and for the literal reading that the
row warns of.  The first must vanish; the second must not, else the row would say nothing.
"""
import pathlib
import re

import entmax
import numpy as np
import ot
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import brentq

from eotcourse import Shannon, attention, softmax
from eotcourse.geometry import Fisher, bregman, fisher_rao_distance, kl
from eotcourse.policy import (
    advantage,
    baseline,
    flash_baseline,
    marginal_utility,
    reinforce,
    score_gradient,
)
from eotcourse.transport import (
    gaussian_w2,
    kantorovich,
    semi_relaxed,
    sinkhorn,
    wasserstein_1d,
)

PAGE = pathlib.Path(__file__).resolve().parents[1] / "book" / "src" / "conventions.md"
ROWS = re.findall(r"^\| `([a-z0-9-]+)`<br>", PAGE.read_text(encoding="utf-8"), re.M)
CHECKS = {}
DIFFERENT = 1e-3


def row(name, tol=1e-12):
    def register(check):
        assert name not in CHECKS, name
        CHECKS[name] = (check, tol)
        return check

    return register


def test_every_row_has_one_check():
    assert len(ROWS) == len(set(ROWS))
    assert set(ROWS) == set(CHECKS)


@pytest.mark.filterwarnings("ignore:If reg_type = entropy:UserWarning")
@pytest.mark.parametrize("name", ROWS)
def test_row(name):
    check, tol = CHECKS[name]
    converted, literal = (float(torch.as_tensor(r).detach().abs().max()) for r in check())
    assert converted <= tol
    assert literal >= DIFFERENT


def normal(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


# PyTorch functions

Q, K, V = normal(1, 2, 4, 5, 3), normal(2, 2, 4, 5, 3), normal(3, 2, 4, 5, 2)
MASK = torch.tensor([[True, False, True, False, True]]).repeat(5, 1)
sdpa = F.scaled_dot_product_attention


@row("sdpa-scale")
def sdpa_scale():
    theirs = sdpa(Q, K, V, scale=0.25)
    return (
        torch.stack([theirs - attention(Q, K, V, scale=0.25),
                     theirs - softmax(Q @ K.mT, 1 / 0.25) @ V,
                     sdpa(Q, K, V) - softmax(Q @ K.mT, 3**0.5) @ V]),
        theirs - softmax(Q @ K.mT, 0.25) @ V,
    )


@row("sdpa-bool-mask")
def sdpa_bool_mask():
    theirs = sdpa(Q, K, V, attn_mask=MASK)
    return theirs - attention(Q, K, V, MASK), theirs - attention(Q, K, V, ~MASK)


@row("sdpa-float-mask")
def sdpa_float_mask():
    raw, scale = normal(4, 5, 5), 0.25
    theirs = sdpa(Q, K, V, attn_mask=raw * scale, scale=scale)
    on_raw_scores = softmax(Q @ K.mT + raw, 1 / scale) @ V
    ours = attention(Q, K, V, raw * scale, scale=scale)
    literal = attention(Q, K, V, raw, scale=scale)
    return torch.stack([theirs - ours, theirs - on_raw_scores]), theirs - literal


@row("sdpa-causal")
def sdpa_causal():
    short = Q[..., :3, :]
    theirs = sdpa(short, K, V, is_causal=True)
    last = attention(short, K, V, is_causal=True, causal_align="bottom_right")
    return theirs - attention(short, K, V, is_causal=True), theirs - last


@row("sdpa-mask-and-causal")
def sdpa_mask_and_causal():
    both = MASK & torch.ones(5, 5, dtype=torch.bool).tril()
    ours = attention(Q, K, V, MASK, is_causal=True)
    return ours - sdpa(Q, K, V, attn_mask=both), ours - sdpa(Q, K, V, attn_mask=MASK)


@row("sdpa-gqa")
def sdpa_gqa():
    k, v = K[:, :2], V[:, :2]
    ours = attention(Q, k, v, enable_gqa=True)
    consecutive = sdpa(Q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    interleaved = sdpa(Q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1))
    return (
        torch.stack([ours - consecutive, ours - sdpa(Q, k, v, enable_gqa=True)]),
        ours - interleaved,
    )


@row("torch-softmax")
def torch_softmax():
    s, nothing = normal(5, 6), torch.full((3,), -torch.inf, dtype=torch.float64)
    assert nothing.softmax(-1).isnan().all()
    converted = torch.cat([softmax(s, 0.5) - (s / 0.5).softmax(-1), softmax(nothing)])
    return converted, softmax(s, 0.5) - s.softmax(-1)


@row("torch-logsumexp")
def torch_logsumexp():
    s, tau = normal(6, 3, 6), 0.5
    zeta = torch.logsumexp(s / tau, -1)
    V_ours = Shannon().conjugate(s, tau)
    converted = torch.stack([Shannon().threshold(s, tau) - zeta, V_ours - tau * zeta])
    return converted, V_ours - zeta


@row("torch-kl-div")
def torch_kl_div():
    p, q = softmax(normal(7, 5)), softmax(normal(8, 5))
    theirs = F.kl_div(q.log(), p, reduction="sum")
    by_formula = (p * (p / q).log()).sum()
    return torch.stack([theirs - by_formula, theirs - kl(p, q)]), theirs - kl(q, p)


@row("torch-kl-divergence")
def torch_kl_divergence():
    p, q = softmax(normal(7, 5)), softmax(normal(8, 5))
    P, Q = (torch.distributions.Categorical(probs=x) for x in (p, q))
    theirs = torch.distributions.kl_divergence(P, Q)
    return theirs - kl(p, q), theirs - kl(q, p)


@row("torch-log-prob")
def torch_log_prob():
    s, r, tau, b = normal(18, 6).requires_grad_(), normal(19, 6), 0.5, 0.3
    draws = torch.tensor([0, 3, 3, 5])
    policy = torch.distributions.Categorical(logits=s / tau)
    loss = -((r[draws] - b) * policy.log_prob(draws)).mean()
    (theirs,) = torch.autograd.grad(loss, s)
    mine = reinforce(r, softmax(s.detach(), tau), draws, tau, b).mean(0)
    return theirs + mine, theirs - mine


@row("torch-gumbel-softmax")
def torch_gumbel_softmax():
    s, tau = normal(20, 6), 2.0

    def theirs(logits, temperature):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return F.gumbel_softmax(logits, temperature)

    # At temperature 1 the logarithm is logits + noise, up to a constant.
    perturbed = theirs(s, 1.0).log()
    noise = perturbed - s
    both_divided = theirs(s, tau) - softmax(perturbed, tau)
    scores_divided = theirs(s / tau, 1.0) - softmax(s / tau + noise)
    return torch.stack([both_divided, scores_divided]), theirs(s, tau) - theirs(s / tau, 1.0)


# FlashAttention

def flash():
    """The quantities of one backward pass, with the gradient of the library in the queries."""
    q = Q.clone().requires_grad_()
    out, scale = sdpa(q, K, V, scale=0.25), 0.25
    d_out = normal(21, *out.shape)
    (d_q,) = torch.autograd.grad(out, q, d_out)
    P = softmax(Q @ K.mT, 1 / scale)
    d_p, delta = d_out @ V.mT, (d_out * out.detach()).sum(-1)
    d_s = P * (d_p - delta.unsqueeze(-1))
    assert torch.allclose(scale * d_s @ K, d_q, rtol=0, atol=1e-12)
    return P, d_out, out.detach(), d_p, delta, d_s, 1 / scale


@row("flash-delta")
def flash_delta():
    P, d_out, out, _, delta, _, _ = flash()
    mine = baseline(marginal_utility(d_out, V), P)
    return torch.stack([delta + mine, delta + flash_baseline(d_out, out)]), delta - mine


@row("flash-dp")
def flash_dp():
    P, d_out, _, d_p, delta, _, _ = flash()
    mine = advantage(marginal_utility(d_out, V), P)
    theirs = d_p - delta.unsqueeze(-1)
    return theirs + mine, theirs - mine


@row("flash-ds")
def flash_ds():
    P, d_out, _, _, _, d_s, tau = flash()
    mine = score_gradient(marginal_utility(d_out, V), P, tau)
    return d_s / tau - mine, d_s - mine


# nn.MultiheadAttention

BATCH, LENGTH, WIDTH, HEADS = 3, 3, 6, 2
X = normal(9, BATCH, LENGTH, WIDTH)


def layer(batch_first=True):
    made = torch.nn.MultiheadAttention(
        WIDTH, HEADS, bias=False, batch_first=batch_first, dtype=torch.float64
    )
    with torch.no_grad():
        made.in_proj_weight.copy_(normal(10, 3 * WIDTH, WIDTH))
        made.out_proj.weight.copy_(normal(11, WIDTH, WIDTH))
    return made


def split(made, x=X):
    """Queries, keys and values of the layer, shape (batch, heads, length, width of a head)."""
    projected = (x @ made.in_proj_weight.T).unflatten(-1, (3, HEADS, WIDTH // HEADS))
    return projected.permute(2, 0, 3, 1, 4)


def by_hand(made, mask=None, x=X, **options):
    heads = attention(*split(made, x), mask, **options)
    return heads.transpose(1, 2).flatten(-2) @ made.out_proj.weight.T


@row("mha-attn-mask")
def mha_attn_mask():
    made, ignore = layer(), MASK[:3, :3]
    theirs = made(X, X, X, attn_mask=ignore)[0]
    return theirs - by_hand(made, ~ignore), theirs - by_hand(made, ignore)


@row("mha-key-padding")
def mha_key_padding():
    made = layer()
    ignore = torch.tensor([[False, True, True], [False, False, True], [True, False, True]])
    theirs = made(X, X, X, key_padding_mask=ignore)[0]
    mask = ignore[:, None, None, :]
    return theirs - by_hand(made, ~mask), theirs - by_hand(made, mask)


@row("mha-float-mask")
def mha_float_mask():
    made, bias = layer(), normal(12, LENGTH, LENGTH)
    theirs = made(X, X, X, attn_mask=bias)[0]
    raw = bias / (WIDTH / HEADS) ** 0.5
    return theirs - by_hand(made, bias), theirs - by_hand(made, raw)


@row("mha-scale")
def mha_scale():
    made = layer()
    theirs = made(X, X, X)[0]
    return theirs - by_hand(made), theirs - by_hand(made, scale=WIDTH**-0.5)


@row("mha-weights")
def mha_weights():
    made = layer()
    theirs = made(X, X, X)[1]
    weights = attention(*split(made), return_aux=True, need_weights=True)[1].weights
    return theirs - weights.mean(1), theirs - weights[:, 0]


@row("mha-layout")
def mha_layout():
    made = layer(batch_first=False)
    theirs = made(X, X, X)[0]
    swapped = by_hand(made, x=X.transpose(0, 1)).transpose(0, 1)
    return theirs - swapped, theirs - by_hand(made)


# POT

COST = np.random.default_rng(13).random((3, 4))
MU, NU, EPS = np.array([0.5, 0.3, 0.2]), np.array([0.13, 0.22, 0.24, 0.41]), 0.3
PRECISE = {"stopThr": 1e-14, "numItermax": 100_000}


def entropy(p):
    return -(p * np.log(p)).sum()


def ours(eps=EPS):
    return sinkhorn(torch.from_numpy(COST), torch.from_numpy(MU), torch.from_numpy(NU),
                    eps=eps, tol=1e-13)


def gauge_free(f, g):
    """f_i + g_j: what a constant moved from f to g leaves alone."""
    return np.asarray(f)[:, None] + np.asarray(g)


@row("pot-reg", tol=1e-10)
def pot_reg():
    theirs = ot.sinkhorn(MU, NU, COST, EPS, **PRECISE)
    return theirs - ours().P.numpy(), theirs - ours(1 / EPS).P.numpy()


@row("pot-value", tol=1e-10)
def pot_value():
    theirs = ot.sinkhorn2(MU, NU, COST, EPS, **PRECISE)
    plan = ours()
    by_definition = plan.cost - EPS * entropy(plan.P.numpy())
    return [theirs - plan.cost, plan.value - by_definition], theirs - plan.value


@row("pot-solve", tol=1e-10)
def pot_solve():
    theirs = ot.solve(COST, MU, NU, reg=EPS, tol=1e-14, max_iter=100_000).value
    plan = ours()
    return theirs - (plan.value + EPS * (entropy(MU) + entropy(NU))), theirs - plan.value


@row("pot-scalings", tol=1e-9)
def pot_scalings():
    log = ot.sinkhorn(MU, NU, COST, EPS, log=True, **PRECISE)[1]
    log_u, log_v = np.log(log["u"].ravel()), np.log(log["v"].ravel())
    plan = ours()
    mine = gauge_free(plan.f, plan.g)
    return gauge_free(EPS * log_u, EPS * log_v) - mine, gauge_free(log_u, log_v) - mine


@row("pot-duals", tol=1e-9)
def pot_duals():
    # No sum of row masses is a sum of column masses, so the duals are unique up to the constant.
    log = ot.emd(MU, NU, COST, log=True)[1]
    plan = kantorovich(COST, MU, NU)
    mine = gauge_free(plan.f, plan.g)
    return gauge_free(log["u"], log["v"]) - mine, log["u"] - plan.f


@row("pot-wasserstein", tol=1e-10)
def pot_wasserstein():
    rng = np.random.default_rng(14)
    x, y = rng.normal(size=5), rng.normal(size=5) + 2
    theirs, mine = ot.wasserstein_1d(x, y, p=2), wasserstein_1d(x, y, p=2)
    return theirs - mine**2, theirs - mine


@row("pot-gaussian", tol=1e-10)
def pot_gaussian():
    rng = np.random.default_rng(15)
    A, B = (M @ M.T + np.eye(3) for M in rng.normal(size=(2, 3, 3)))
    a, b = rng.normal(size=(2, 3))
    theirs, mine = ot.gaussian.bures_wasserstein_distance(a, b, A, B), gaussian_w2(a, A, b, B)
    return theirs - mine, theirs - mine**2


def semi(lam, reference):
    masses = torch.from_numpy(MU), torch.from_numpy(NU)
    return semi_relaxed(torch.from_numpy(COST), *masses, eps=EPS, lam=lam,
                        reference=reference, tol=1e-13).P.numpy()


def pot_semi(lam, **options):
    return ot.unbalanced.sinkhorn_unbalanced(
        MU, NU, COST, EPS, reg_m=(np.inf, lam), **options, **PRECISE
    )


@row("pot-semi-relaxed", tol=1e-10)
def pot_semi_relaxed():
    theirs = pot_semi(0.4)
    return theirs - semi(0.4, "product"), theirs - semi(0.4, "counting")


@row("pot-entropy-type", tol=1e-10)
def pot_entropy_type():
    theirs = pot_semi(0.4, reg_type="entropy")
    return theirs - semi(0.4, "counting"), theirs - semi(0.4, "product")


# entmax

ALPHA, TAU = 1.5, 2.0
SCORES = normal(16, 6)


def omega(p, alpha):
    return ((p**alpha).sum() - 1) / (alpha * (alpha - 1))


def textbook(s, alpha, tau):
    """The weights and their threshold kappa, by a root finder instead of the library."""
    z = (alpha - 1) * s.numpy() / tau

    def weights(kappa):
        return np.maximum(z - kappa, 0) ** (1 / (alpha - 1))

    kappa = brentq(lambda k: weights(k).sum() - 1, z.max() - 1, z.max(), xtol=1e-15)
    return torch.from_numpy(weights(kappa)), kappa


@row("entmax-temperature", tol=1e-10)
def entmax_temperature():
    p, _ = textbook(SCORES, 1.5, TAU)
    return entmax.entmax15(SCORES / TAU, dim=0) - p, entmax.entmax15(SCORES, dim=0) - p


@row("entmax-regulariser", tol=1e-10)
def entmax_regulariser():
    # At the maximiser all partial derivatives of <z, p> - Omega(p) on the support are equal.
    alpha = 1.3
    p = entmax.entmax_bisect(SCORES, alpha, dim=0, n_iter=100).requires_grad_()
    support = p > 1e-6

    def spread(penalty):
        (slope,) = torch.autograd.grad(SCORES @ p - penalty, p)
        return slope[support].max() - slope[support].min()

    return spread(omega(p, alpha)), spread((p**alpha).sum() / alpha)


@row("entmax-threshold", tol=1e-10)
def entmax_threshold():
    z = SCORES / TAU
    p = entmax.entmax15(z, dim=0)
    top = z.argmax()
    kappa = (ALPHA - 1) * z[top] - p[top] ** (ALPHA - 1)

    def exp_alpha(x):
        return np.maximum(1 + (ALPHA - 1) * x, 0) ** (1 / (ALPHA - 1))

    theta = z.numpy()
    zeta = brentq(lambda t: exp_alpha(theta - t).sum() - 1, theta.max(), theta.max() + 2,
                  xtol=1e-15)
    return kappa - ((ALPHA - 1) * zeta - 1), kappa - zeta


@row("sparsemax-constant", tol=1e-10)
def sparsemax_constant():
    p = entmax.sparsemax(SCORES / TAU, dim=0)
    half = SCORES @ p - TAU * (p @ p) / 2
    ours_value = SCORES @ p - TAU * omega(p, 2.0)
    y = torch.tensor([2])
    # Independently of both: the library's loss is V at temperature one minus the score of y.
    from_loss = TAU * entmax.sparsemax_loss(SCORES[None] / TAU, y)[0] + SCORES[2]
    return torch.stack([half + TAU / 2 - from_loss, ours_value - from_loss]), half - from_loss


@row("entmax-loss", tol=1e-10)
def entmax_loss():
    p, _ = textbook(SCORES, ALPHA, TAU)
    value = SCORES @ p - TAU * omega(p, ALPHA)
    unnormalised = SCORES @ p - TAU * (p**ALPHA).sum() / (ALPHA * (ALPHA - 1))
    theirs = entmax.entmax15_loss(SCORES[None] / TAU, torch.tensor([2]))[0]
    score = SCORES[2] / TAU
    return theirs - (value / TAU - score), theirs - (unnormalised / TAU - score)


# Peyre and Cuturi

def their_entropy(P):
    return -(P * (np.log(P) - 1)).sum()


def their_kl(P, R):
    return (P * np.log(P / R) - P + R).sum()


@row("pc-entropy")
def pc_entropy():
    P = ours().P.numpy()
    mine = -float(Shannon().omega(ours().P.flatten()))
    return their_entropy(P) - P.sum() - mine, their_entropy(P) - mine


@row("pc-value", tol=1e-10)
def pc_value():
    plan = ours()
    P = plan.P.numpy()
    theirs = (P * COST).sum() - EPS * their_entropy(P)
    return theirs - (plan.value - EPS), theirs - plan.value


@row("pc-kl", tol=1e-10)
def pc_kl():
    plan, kernel = ours(), np.exp(-COST / EPS)
    theirs = EPS * their_kl(plan.P.numpy(), kernel)
    return theirs - (plan.value + EPS * (kernel.sum() - 1)), theirs - plan.value


@row("pc-reference", tol=1e-10)
def pc_reference():
    plan = ours()
    P = plan.P.numpy()
    theirs = (P * COST).sum() + EPS * their_kl(P, np.outer(MU, NU))
    return theirs - (plan.value + EPS * (entropy(MU) + entropy(NU))), theirs - plan.value


@row("pc-scalings", tol=1e-9)
def pc_scalings():
    kernel = np.exp(-COST / EPS)
    v = np.ones(4)
    for _ in range(2000):
        u = MU / (kernel @ v)
        v = NU / (kernel.T @ u)
    plan = ours()
    mine = gauge_free(plan.f, plan.g)
    converted = gauge_free(EPS * np.log(u), EPS * np.log(v)) - mine
    return converted, gauge_free(np.log(u), np.log(v)) - mine


@row("pc-soft-minimum")
def pc_soft_minimum():
    z = normal(17, 6)
    theirs = -EPS * torch.log(torch.exp(-z / EPS).sum())
    V_of = Shannon().conjugate
    return theirs + V_of(-z, EPS), theirs - V_of(z, EPS)


@row("pc-dual", tol=1e-9)
def pc_dual():
    plan, kernel = ours(), np.exp(-COST / EPS)
    f, g = plan.f.numpy(), plan.g.numpy()
    theirs = f @ MU + g @ NU - EPS * np.exp(f / EPS) @ kernel @ np.exp(g / EPS)
    return theirs + EPS - plan.value, theirs - plan.value


# Information geometry

@row("geometry-fisher")
def geometry_fisher():
    # Close by, the divergence is half the square of a length in the Fisher metric.
    s, tau = normal(22, 5), 2.0
    p = softmax(s, tau)

    def from_p(theta):
        return kl(p, softmax(theta))

    natural = torch.func.hessian(from_p)(s / tau)
    raw = torch.func.hessian(lambda x: from_p(x / tau))(s)
    mine = Fisher(p, "score", tau).dense()
    converted = torch.stack([natural - Fisher(p).dense(), raw - mine, natural / tau**2 - mine])
    return converted, natural - mine


@row("geometry-bregman")
def geometry_bregman():
    s, t, tau = normal(23, 5), normal(24, 5), 2.0
    x, y = s / tau, t / tau
    theirs = torch.logsumexp(y, 0) - torch.logsumexp(x, 0) - x.softmax(0) @ (y - x)
    mine = bregman(t, s, tau)
    swapped = tau * kl(softmax(s, tau), softmax(t, tau))
    return torch.stack([tau * theirs - mine, swapped - mine]), theirs - mine


@row("geometry-angle")
def geometry_angle():
    p, q = softmax(normal(25, 5)), softmax(normal(26, 5))
    theirs = torch.arccos((p * q).sqrt().sum())
    mine = fisher_rao_distance(p, q)
    return 2 * theirs - mine, theirs - mine
