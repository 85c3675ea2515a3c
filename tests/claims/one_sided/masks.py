"""Claims of the page "Masks, causality, heads"."""

import warnings

import numpy as np
import torch
import torch.nn.functional as F
from claims import claim
from ot.unbalanced import sinkhorn_unbalanced

from eotcourse import Causal, LogPrior, Shannon, Window, attention, softmax

INF = float("inf")


def call(q, k, v, mask, causal, scale, align="top_left", **more):
    """The function under test, with every option by name."""
    gqa = q.dim() > 2 and q.shape[-3] != k.shape[-3]
    return attention(
        q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=gqa, causal_align=align, **more
    )


def problem(rng, heads=(1, 2, 4, 6), shared=None):
    """Queries, keys and values with grouped heads, m and n of any order, and a temperature."""
    h = int(rng.choice(heads))
    g = shared or int(rng.choice([x for x in (1, 2, 3, 6) if h % x == 0]))
    m, n, d, e = (int(x) for x in rng.integers(1, 6, 4))
    q, k, v = (
        torch.as_tensor(rng.normal(0, 1.3, shape)) for shape in ((h, m, d), (g, n, d), (g, n, e))
    )
    return q, k, v, float(np.exp(rng.uniform(-1, 1)))


def draw_mask(rng, kind, m, n):
    """None, a boolean mask, or a float mask; some rows may be left without a key."""
    if kind == "none":
        return None
    keep = torch.as_tensor(rng.random((m, n)) < 0.7)
    if kind == "bool":
        return keep
    bias = torch.as_tensor(rng.normal(0, 2, (m, n)))
    return torch.where(keep, bias, -INF)


def corner(m, n):
    """Keys j <= i, by a loop."""
    return torch.tensor([[j <= i for j in range(n)] for i in range(m)])


def inverted(q, k, v, mask, causal, scale, **more):
    flipped = ~mask if mask is not None and mask.dtype == torch.bool else mask
    return call(q, k, v, flipped, causal, scale, **more)


def mask_before_division(q, k, v, mask, causal, scale, **more):
    if mask is not None and mask.is_floating_point():
        mask = mask * scale
    return call(q, k, v, mask, causal, scale, **more)


def tiled_heads(q, k, v, mask, causal, scale, **more):
    times = q.shape[-3] // k.shape[-3]
    return call(q, k.repeat(times, 1, 1), v.repeat(times, 1, 1), mask, causal, scale, **more)


def flag_as_numbers(q, k, v, mask, causal, scale, **more):
    if mask is not None and mask.dtype == torch.bool:
        mask = mask.to(q.dtype)
    return call(q, k, v, mask, causal, scale, **more)


def other_corner(q, k, v, mask, causal, scale, align="top_left"):
    flipped = {"top_left": "bottom_right", "bottom_right": "top_left"}[align]
    return call(q, k, v, mask, causal, scale, align=flipped)


@claim(
    "prop-attention-is-sdpa",
    part="PyTorch's function",
    result="T2.1",
    tol=1e-12,
    instances=300,
    real=dict(attend=call),
    mutants={
        "True hides a key": dict(attend=inverted),
        "mask added before the division": dict(attend=mask_before_division),
        "heads tiled instead of repeated": dict(attend=tiled_heads),
        "causal mask at the bottom right": dict(attend=other_corner),
        "boolean mask read as ones and zeros": dict(attend=flag_as_numbers),
        "scale squared": dict(
            attend=lambda q, k, v, mask, causal, scale: call(q, k, v, mask, causal, scale**2)
        ),
        "causal flag ignored": dict(
            attend=lambda q, k, v, mask, causal, scale: call(q, k, v, mask, False, scale)
        ),
    },
)
def sdpa(impl):
    """Outputs against F.scaled_dot_product_attention in float64, over grouped heads, unequal
    lengths, both kinds of mask, the causal flag and any scale; rows without a key included."""
    rng = np.random.default_rng(0)
    for i in range(300):
        q, k, v, scale = problem(rng)
        kind, causal = ("none", "bool", "float")[i % 3], bool(i // 3 % 2)
        m, n = q.shape[-2], k.shape[-2]
        mask = draw_mask(rng, kind, m, n)
        both = mask
        if causal and kind == "bool":
            both = mask & corner(m, n)
        elif causal and kind == "float":
            both = torch.where(corner(m, n), mask, -INF)
        theirs = F.scaled_dot_product_attention(
            q[None], k[None], v[None], both, is_causal=causal and both is None, scale=scale,
            enable_gqa=q.shape[0] != k.shape[0],
        )[0]
        yield float((impl.attend(q, k, v, mask, causal, scale) - theirs).abs().max())


@claim(
    "prop-attention-is-sdpa",
    part="one problem per row",
    result="T2.1",
    tol=1e-12,
    instances=200,
    real=dict(attend=call),
    mutants={
        "True hides a key": dict(attend=inverted),
        "mask added before the division": dict(attend=mask_before_division),
        "heads tiled instead of repeated": dict(attend=tiled_heads),
        "causal mask at the other corner": dict(attend=other_corner),
        "softmax over queries": dict(
            attend=lambda q, k, v, mask, causal, scale, align: softmax(
                q @ k.repeat_interleave(len(q) // len(k), 0).mT, 1 / scale, dim=-2
            )
            @ v.repeat_interleave(len(q) // len(k), 0)
        ),
    },
)
def rows(impl):
    """Outputs against a loop in numpy over heads and queries: collect the allowed keys of the row,
    exponentiate their scores divided by tau, normalise, average the values; both alignments."""
    rng = np.random.default_rng(1)
    for i in range(200):
        q, k, v, scale = problem(rng)
        kind, causal = ("none", "bool", "float")[i % 3], bool(i // 3 % 2)
        align = ("top_left", "bottom_right")[i // 6 % 2]
        (h, m, _), (g, n, _), tau = q.shape, k.shape, 1 / scale
        mask = draw_mask(rng, kind, m, n)
        worst, ours = 0.0, impl.attend(q, k, v, mask, causal, scale, align=align).numpy()
        first = n - m if align == "bottom_right" else 0
        for head in range(h):
            keys, values = k[head // (h // g)].numpy(), v[head // (h // g)].numpy()
            for row in range(m):
                weight, total = np.zeros(n), 0.0
                for j in range(n):
                    if causal and j > row + first:
                        continue
                    bias = 0.0 if mask is None else float(mask[row, j])
                    if kind == "bool":
                        bias = 0.0 if bias else -np.inf
                    weight[j] = np.exp((q[head, row].numpy() @ keys[j]) / tau + bias)
                    total += weight[j]
                out = weight @ values / total if total else 0 * values[0]
                worst = max(worst, np.abs(ours[head, row] - out).max())
        yield worst


@claim(
    "prop-attention-is-sdpa",
    part="the one-sided plan",
    result="T2.2",
    tol=1e-9,
    instances=40,
    real=dict(attend=call),
    mutants={
        "cost for score": dict(
            attend=lambda q, k, v, mask, causal, scale: call(-q, k, v, mask, causal, scale)
        ),
        "mask added before the division": dict(attend=mask_before_division),
        "temperature inverted": dict(
            attend=lambda q, k, v, mask, causal, scale: call(q, k, v, mask, causal, 1 / scale)
        ),
        "column sums made equal": dict(
            attend=lambda q, k, v, mask, causal, scale: v.mean(0, keepdim=True)
        ),
    },
)
def plan(impl):
    """The output against diag(mu)^-1 P V, with P from POT's solver of the problem without a
    column constraint, cost -(S + tau B) and weight tau of the entropy."""
    rng = np.random.default_rng(2)
    for _ in range(40):
        q, k, v, scale = problem(rng, heads=(1,))
        q, k, v, tau = q[0], k[0], v[0], 1 / scale
        bias = torch.as_tensor(rng.normal(0, 1, (len(q), len(k))))
        C = -(q @ k.T + tau * bias).numpy()
        mu, nu = rng.dirichlet(np.full(len(q), 3.0)), rng.dirichlet(np.full(len(k), 3.0))
        with warnings.catch_warnings(action="ignore"):
            P = sinkhorn_unbalanced(
                mu, nu, C, tau, (INF, 0.0), method="sinkhorn_stabilized", reg_type="entropy",
                stopThr=1e-13, numItermax=200,
            )
        out = (P / mu[:, None]) @ v.numpy()
        yield np.abs(impl.attend(q, k, v, bias, False, scale).numpy() - out).max()


def masked(q, k, v, mask, scale):
    """Output and weights under a boolean mask."""
    out, aux = attention(q, k, v, mask, scale=scale, return_aux=True, need_weights=True)
    return out, aux.weights


def by_hand(weights_of):
    """A wrong masked attention, from a rule for the weights."""

    def attend(q, k, v, mask, scale):
        weights = weights_of(q @ k.mT * scale, mask)
        return weights @ v, weights

    return attend


very_negative = by_hand(lambda t, mask: torch.softmax(t - 1e9 * ~mask, -1))
mildly_negative = by_hand(lambda t, mask: torch.softmax(torch.where(mask, t, -20.0), -1))
not_renormalised = by_hand(lambda t, mask: torch.softmax(t, -1) * mask)
masked_afterwards = by_hand(
    lambda t, mask: torch.softmax(t, -1) * mask / (torch.softmax(t, -1) * mask).sum(-1, True)
)
score_zero = by_hand(lambda t, mask: torch.softmax(t * mask, -1))
bare_softmax = by_hand(lambda t, mask: torch.softmax(torch.where(mask, t, -INF), -1))


def masked_problem(rng, n_least=2):
    m, n = int(rng.integers(1, 5)), int(rng.integers(n_least, 7))
    q, k, v = (torch.as_tensor(rng.normal(0, 1.3, (x, 3))) for x in (m, n, n))
    keep = torch.as_tensor(rng.random((m, n)) < 0.6)
    keep[range(m), torch.as_tensor(rng.integers(0, n, m))] = True
    return q, k, v, keep, float(np.exp(rng.uniform(-1, 1)))


@claim(
    "prop-mask-face",
    part="the problem on the allowed keys alone",
    tol=1e-13,
    instances=100,
    real=dict(attend=masked),
    mutants={
        "True hides a key": dict(
            attend=lambda q, k, v, mask, scale: masked(q, k, v, ~mask, scale)
        ),
        "hidden keys get a score of zero": dict(attend=score_zero),
        "weights not renormalised": dict(attend=not_renormalised),
        "hidden means a score of -20": dict(attend=mildly_negative),
    },
)
def face(impl):
    """Each row against scaled_dot_product_attention on the allowed keys and values only; hidden
    keys must have weight exactly zero."""
    rng = np.random.default_rng(3)
    for _ in range(100):
        q, k, v, keep, scale = masked_problem(rng)
        out, weights = impl.attend(q, k, v, keep, scale)
        worst = float((weights[~keep] != 0).any())
        for i, allowed in enumerate(keep):
            alone = F.scaled_dot_product_attention(
                q[None, i : i + 1], k[None, allowed], v[None, allowed], scale=scale
            )
            worst = max(worst, float((out[i] - alone[0, 0]).abs().max()))
        yield worst


@claim(
    "prop-mask-face",
    part="hidden keys have no influence",
    tol=0.0,
    instances=100,
    real=dict(attend=masked),
    mutants={
        "hidden means a score of -1e9": dict(attend=very_negative),
        "hidden keys get a score of zero": dict(attend=score_zero),
        "masked after the softmax": dict(attend=masked_afterwards),
    },
)
def influence(impl):
    """Replace hidden keys and values by others, up to 1e12 in size: no bit of the output may
    change, and their gradients are zero."""
    rng = np.random.default_rng(4)
    for i in range(100):
        q, k, v, keep, scale = masked_problem(rng)
        keep = keep[:1].expand_as(keep)
        hidden = ~keep[0]
        k2, v2 = k.clone(), v.clone()
        size = 10.0 ** rng.integers(0, 13)
        k2[hidden] = size * torch.as_tensor(rng.normal(size=k2[hidden].shape))
        v2[hidden] = size * torch.as_tensor(rng.normal(size=v2[hidden].shape))
        k, v, k2, v2 = (x.requires_grad_() for x in (k, v, k2, v2))
        out, out2 = (impl.attend(q, a, b, keep, scale)[0] for a, b in ((k, v), (k2, v2)))
        grads = torch.autograd.grad(out2.square().sum(), (k2, v2))
        leaked = max(float(x[hidden].abs().sum()) for x in grads)
        yield max(float((out - out2).detach().abs().max()), leaked)


def causal_first(q, k, v, align="top_left"):
    return attention(q, k, v, is_causal=True, causal_align=align)


@claim(
    "prop-mask-face",
    part="one key leaves no choice",
    tol=0.0,
    instances=60,
    real=dict(attend=causal_first),
    mutants={
        "bottom right": dict(attend=lambda q, k, v: causal_first(q, k, v, "bottom_right")),
        "no mask": dict(attend=lambda q, k, v: attention(q, k, v)),
        "the query does not see itself": dict(
            attend=lambda q, k, v: attention(q, k, v, ~corner(len(q), len(k)).triu())
        ),
    },
)
def first_row(impl):
    """The first causal row returns the first value to the last bit, and passes on no gradient to
    its query or to any key, though the gradient of its output does not vanish."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        m, n = int(rng.integers(1, 4)), int(rng.integers(4, 7))
        q, k, v = (
            torch.as_tensor(rng.normal(0, 2, (x, 3))).requires_grad_() for x in (m, n, n)
        )
        out = impl.attend(q, k, v)[0]
        grads = torch.autograd.grad((out * torch.arange(1.0, 4.0)).sum(), (q, k))
        yield max(float(x.detach().abs().max()) for x in (out - v[0], *grads))


def with_prior(q, k, v, pi, scale):
    return attention(q, k, v, scale=scale, regularizer=Shannon(LogPrior(pi.log())))


@claim(
    "prop-mask-face",
    part="a mask is a prior with zeros",
    tol=1e-12,
    instances=100,
    real=dict(attend=with_prior),
    mutants={
        "prior added before the division": dict(
            attend=lambda q, k, v, pi, scale: with_prior(q, k, v, pi**scale, scale)
        ),
        "prior without logarithm": dict(
            attend=lambda q, k, v, pi, scale: with_prior(q, k, v, pi.exp(), scale)
        ),
        "zeros of the prior smoothed": dict(
            attend=lambda q, k, v, pi, scale: with_prior(q, k, v, pi + 1e-6, scale)
        ),
        "prior over queries": dict(
            attend=lambda q, k, v, pi, scale: with_prior(q, k, v, pi.flip(0), scale)
        ),
    },
)
def prior(impl):
    """Outputs under a prior with zeros against pi_j e^(s_j/tau), normalised in numpy; for a prior
    that is constant where it is positive, against SDPA with the boolean mask as well."""
    rng = np.random.default_rng(6)
    for i in range(100):
        q, k, v, keep, scale = masked_problem(rng)
        flat = i % 2 == 0
        size = 0.3 if flat else torch.as_tensor(rng.gamma(0.7, size=keep.shape) + 1e-3)
        pi = keep * size
        if flat:
            truth = F.scaled_dot_product_attention(q[None], k[None], v[None], keep, scale=scale)
            truth = truth[0].numpy()
        else:
            weights = pi.numpy() * np.exp((q @ k.T).numpy() * scale)
            truth = weights / weights.sum(1, keepdims=True) @ v.numpy()
        yield np.abs(impl.attend(q, k, v, pi, scale).numpy() - truth).max()


@claim(
    "prop-mask-face",
    part="priors of positions",
    tol=1e-13,
    instances=60,
    real=dict(causal=Causal(), window=Window(2, 0)),
    mutants={
        "future instead of past": dict(causal=Window(0, None)),
        "window one short": dict(window=Window(1, 0)),
        "window to the wrong side": dict(window=Window(0, 2)),
    },
)
def positions(impl):
    """Causal and sliding-window priors against SDPA with a boolean mask written as a loop."""
    rng = np.random.default_rng(7)
    for i in range(60):
        q, k, v, _, scale = masked_problem(rng, n_least=4)
        m, n = len(q), len(k)
        reach = (n, 2)[i % 2]
        keep = torch.tensor([[r - reach <= j <= r for j in range(n)] for r in range(m)])
        prior = impl.window if i % 2 else impl.causal
        ours = attention(q, k, v, scale=scale, regularizer=Shannon(prior))
        theirs = F.scaled_dot_product_attention(q[None], k[None], v[None], keep, scale=scale)[0]
        yield float((ours - theirs).abs().max())


@claim(
    "prop-mask-face",
    part="no key at all",
    tol=0.0,
    instances=40,
    real=dict(attend=masked),
    mutants={
        "hidden means a score of -1e9": dict(attend=very_negative),
        "softmax of nothing": dict(attend=bare_softmax),
        "hidden keys get a score of zero": dict(attend=score_zero),
    },
)
def nothing(impl):
    """A row without a key gives output, weights and gradients exactly zero, as does PyTorch's
    function for the output."""
    rng = np.random.default_rng(8)
    for _ in range(40):
        q, k, v, keep, scale = masked_problem(rng)
        keep = keep & False
        q, k, v = (x.requires_grad_() for x in (q, k, v))
        out, weights = impl.attend(q, k, v, keep, scale)
        theirs = F.scaled_dot_product_attention(q[None], k[None], v[None], keep, scale=scale)[0]
        grads = torch.autograd.grad((out * torch.arange(1.0, 4.0)).sum(), (q, k, v))
        yield max(float(x.detach().abs().max()) for x in (out, weights, theirs, *grads))
