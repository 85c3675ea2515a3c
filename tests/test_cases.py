"""The cases of cases.json that concern maps to the simplex, masks, priors and attention.

Transport and Sinkhorn have their own file. Every id of the file is accounted for.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from cases import CASES, load, tolerance, values
from eotcourse import (
    ALiBi,
    Causal,
    LogPrior,
    Shannon,
    Tsallis,
    alibi_slopes,
    attention,
    entmax,
    policy,
    softmax,
    sparsemax,
)
from eotcourse.losses import softmax_loss

TRANSPORT = {f"case-{n}" for n in range(19, 27)}
F64 = torch.float64


def tensor(entry, dtype=F64, grad=True):
    return torch.tensor(values(entry), dtype=dtype, requires_grad=grad)


def close(actual, entry, case, dtype="float64"):
    np.testing.assert_allclose(
        torch.as_tensor(actual).detach().double(), values(entry), **tolerance(case, dtype)
    )


def qkv(case):
    return [tensor(case["inputs"][name]) for name in "qkv"]


def attend(q, k, v, **arguments):
    return attention(q, k, v, **arguments, return_aux=True, need_weights=True)


def gradients_match(out, tensors, case, expected):
    upstream = tensor(case["inputs"]["upstream_G"], grad=False)
    for name, g in zip(("dq", "dk", "dv"), torch.autograd.grad(out, tensors, upstream)):
        close(g, expected[name], case)
        assert not g[values(expected[name]) == 0].any()


def test_every_case_is_accounted_for():
    here = set(re.findall(r"^def test_case_(\d\d)", Path(__file__).read_text("utf-8"), re.M))
    accounted = [{f"case-{n}" for n in here}, TRANSPORT]
    assert set().union(*accounted) == set(CASES)
    assert sum(map(len, accounted)) == len(CASES)


def test_case_01_query_that_may_attend_to_nothing():
    case = load("case-01")
    tensors, expected = qkv(case), case["expected"]
    mask = torch.tensor(case["params"]["mask_true_means_attend"])
    out, aux = attend(*tensors, attn_mask=mask)
    close(out, expected["o"], case)
    close(aux.weights, expected["p"], case)
    close(aux.threshold, expected["lse"], case)
    gradients_match(out, tensors, case, expected)
    assert not out[1].any() and not aux.weights[1].any()


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_case_02_large_scores(dtype):
    case = load("case-02")
    s = tensor(case["inputs"]["s"], dtype)
    close(softmax(s), case["expected"]["p"], case, str(dtype).split(".")[1])
    atol = case["tolerance"]["lse_float32"]["atol"] if dtype == torch.float32 else 1e-11
    assert abs(Shannon().threshold(s).item() - case["expected"]["lse"]) <= atol


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_case_03_support_of_two(dtype):
    case = load("case-03")
    s, expected = tensor(case["inputs"]["s"], dtype), case["expected"]
    name = str(dtype).split(".")[1]
    p = sparsemax(s)
    close(p, expected["p"], case, name)
    assert p.nonzero().squeeze(-1).tolist() == expected["support"]
    close(Tsallis(2.0).threshold(s) - 1, expected["threshold"], case, name)
    upstream = tensor(case["inputs"]["r"], dtype, grad=False)
    (ds,) = torch.autograd.grad(p, s, upstream)
    close(ds, expected["ds"], case, name)
    assert abs(ds.sum()) < 1e-6


@pytest.mark.parametrize("shape", ["(2,3)", "(2,1,3)", "(3,2)"])
def test_case_04_axes(shape):
    case = load("case-04")
    s = tensor(case["inputs"]["s"])
    given = {"(2,3)": s, "(2,1,3)": s[:, None], "(3,2)": s.T}[shape]
    p = sparsemax(given, dim=0 if shape == "(3,2)" else -1)
    close((p.T if shape == "(3,2)" else p).reshape(2, 3), case["expected"]["p"], case)
    close(torch.autograd.grad(p.square().sum(), s)[0], case["expected"]["ds"], case)


@pytest.mark.parametrize("form", ["number", "tensor", "rows"])
def test_case_05_ends_of_the_family(form):
    case = load("case-05")
    s = tensor(case["inputs"]["s"])
    for alpha, expected in case["expected"]["p_by_alpha"].items():
        order = float(alpha)
        if form == "tensor":
            order = torch.tensor(order, dtype=F64)
        elif form == "rows":
            order = torch.full((2, 1), order, dtype=F64)
        p = entmax(s.expand(2, -1), order)
        for row in p:
            close(row, expected, case)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_case_06_generated_scores(dtype):
    case = load("case-06")
    s, name = tensor(case["inputs"]["s"], dtype), str(dtype).split(".")[1]
    p = entmax(s, case["params"]["alpha"])
    close(p, case["expected"]["p"], case, name)
    upstream = tensor(case["inputs"]["r"], dtype, grad=False)
    close(torch.autograd.grad(p, s, upstream)[0], case["expected"]["ds"], case, name)


MAPS = {
    "softmax": softmax,
    "entmax_1.5": entmax,
    "sparsemax": sparsemax,
    "entmax_3": lambda s: entmax(s, 3.0),
}


@pytest.mark.parametrize("name", MAPS)
def test_case_07_ties(name):
    case = load("case-07")
    s = tensor(case["inputs"]["s"])
    close(MAPS[name](s), case["expected"]["p_by_mapping"][name], case)
    for order in torch.randperm(6), torch.arange(6).flip(0), torch.arange(6):
        p = MAPS[name](s[order])[order.argsort()]
        assert p[0] == p[1] == p[2] and p[3] == p[4]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_case_08_half_precision(name):
    case = load("case-08")
    dtype = getattr(torch, name)
    s = tensor(case["inputs"]["s"], dtype)
    p = entmax(s, case["params"]["alpha"])
    assert p.dtype == dtype
    expected = case["expected"][f"p_{name}"]
    np.testing.assert_allclose(p.detach().double(), values(expected), **tolerance(case, name))
    close(entmax(s.float(), 1.5), expected, case, "float32")
    upstream = torch.ones_like(p).cumsum(-1)
    assert torch.autograd.grad(p, s, upstream)[0].isfinite().all()


@pytest.mark.parametrize("align", ["bottom_right", "top_left"])
@pytest.mark.parametrize("through", ["flag", "prior", "mask"])
def test_case_09_causal_alignment(align, through):
    case = load("case-09")
    tensors, expected = qkv(case), case["expected"][align]
    out, aux = {
        "flag": lambda: attend(*tensors, is_causal=True, causal_align=align),
        "prior": lambda: attend(*tensors, regularizer=Shannon(Causal()), causal_align=align),
        "mask": lambda: attend(*tensors, attn_mask=torch.tensor(expected["mask"])),
    }[through]()
    close(out, expected["o"], case)
    close(aux.weights, expected["p"], case)
    gradients_match(out, tensors, case, expected)


def test_case_10_mask_polarity():
    case = load("case-10")
    tensors, expected = qkv(case), case["expected"]
    mask = torch.tensor(case["params"]["mask_true_means_attend"])
    additive = tensor(case["inputs"]["additive_mask"], grad=False)
    for m in (mask, additive):
        out, aux = attend(*tensors, attn_mask=m)
        close(out, expected["o"], case)
        close(aux.weights, expected["p"], case)
    close(attention(*tensors, ~mask), expected["o_if_inverted"], case)
    _, aux = attend(*tensors, attn_mask=mask.to(F64))
    close(aux.weights, expected["p_if_float_ones_added"], case)


def test_case_11_alibi_slopes():
    case = load("case-11")
    for n in case["params"]["n_heads"]:
        close(alibi_slopes(n), case["expected"]["slopes_by_heads"][str(n)], case)


def scores_as_attention(s):
    """Query and key whose inner products at scale 1 are the given scores."""
    return s, torch.eye(s.shape[-1], dtype=s.dtype)


@pytest.mark.parametrize("case_id, prior", [("case-12", Causal()), ("case-13", None)])
def test_alibi_weights(case_id, prior):
    case = load(case_id)
    s = tensor(case["inputs"]["scores"])
    slope = torch.tensor([case["params"]["slope"]], dtype=F64)
    alibi = ALiBi(slope) if prior is None else ALiBi(slope) + prior
    close(Shannon(alibi)(s), case["expected"]["p"], case)
    q, k = scores_as_attention(s)
    _, aux = attend(q, k, k, scale=1.0, regularizer=Shannon(alibi))
    close(aux.weights, case["expected"]["p"], case)
    flipped = ALiBi(-slope) if prior is None else ALiBi(-slope) + prior
    assert (Shannon(flipped)(s) - tensor(case["expected"]["p"])).abs().max() > 0.1


def test_case_12_row_shift_under_a_causal_mask():
    case = load("case-12")
    s, m = tensor(case["inputs"]["scores"]), case["params"]["slope"]
    shift = LogPrior(m * torch.arange(4, dtype=F64))
    close(Shannon(shift + Causal())(s), case["expected"]["p"], case)
    flipped = Shannon(ALiBi(torch.tensor([-m], dtype=F64)) + Causal())(s)
    close(flipped, case["expected"]["p_if_sign_flipped"], case)


def test_case_13_row_shift_is_wrong_without_causality():
    case = load("case-13")
    s, m = tensor(case["inputs"]["scores"]), case["params"]["slope"]
    shift = LogPrior(m * torch.arange(4, dtype=F64))
    close(Shannon(shift)(s), case["expected"]["p_if_shift_trick"], case)


def test_case_14_temperature_sweep():
    case = load("case-14")
    s = tensor(case["inputs"]["s"])
    for tau in case["params"]["tau"]:
        expected = case["expected"]["p_softmax_by_tau"][repr(tau)]
        close(softmax(s, tau), expected, case)
        close(softmax(s, torch.tensor(tau, dtype=F64)), expected, case)
        close(Shannon()(s, tau), expected, case)
        expected = case["expected"]["p_sparsemax_by_tau"][repr(tau)]
        close(sparsemax(s, tau), expected, case)
        close(sparsemax(s, torch.tensor(tau, dtype=F64)), expected, case)
        close(Tsallis(2.0)(s, tau), expected, case)


def test_case_15_temperature_zero_is_refused():
    case = load("case-15")
    s = tensor(case["inputs"]["s"])
    for f in (softmax, sparsemax, lambda s, tau: entmax(s, 1.5, tau), Shannon().conjugate):
        with pytest.raises(ValueError, match="0.0"):
            f(s, case["params"]["tau"])


def test_case_16_scale_replaces_the_default():
    case = load("case-16")
    q, k, v = qkv(case)
    scales = {"default_1/sqrt(d)": None, "explicit_1.0": 1.0, "wrong_twice_1/d": 0.25}
    for name, scale in scales.items():
        out, aux = attend(q, k, v, scale=scale)
        close(out, case["expected"][name]["o"], case)
        close(aux.weights, case["expected"][name]["p"], case)


def test_case_17_entropy_and_lse_with_an_excluded_score():
    case = load("case-17")
    expected = case["expected"]
    s = tensor(case["inputs"]["s"])
    p, lse = softmax(s), Shannon().threshold(s)
    entropy = -Shannon().omega(p)
    close(p, expected["p"], case)
    close(entropy, expected["entropy"], case)
    close(lse, expected["lse"], case)
    close(Shannon().conjugate(s), expected["lse"], case)
    close(torch.autograd.grad(entropy, s)[0], expected["dH_ds"], case)
    close(torch.autograd.grad(lse, s)[0], expected["dlse_ds"], case)


def test_case_18_lse_of_nothing():
    case = load("case-18")
    for tau in case["params"]["tau"]:
        s = tensor(case["inputs"]["s"])
        value = Shannon().conjugate(s, tau)
        close(value, case["expected"]["lse"], case)
        close(torch.autograd.grad(value.sum(), s)[0], case["expected"]["dlse_ds"], case)


def test_case_31_groups_are_consecutive():
    case = load("case-31")
    q, k, v = qkv(case)
    close(attention(q, k, v, enable_gqa=True), case["expected"]["o"], case)
    tiled = attention(q, k.repeat(2, 1, 1), v.repeat(2, 1, 1))
    close(tiled, case["expected"]["o_if_tiled"], case)


@pytest.mark.parametrize("alpha", [None, *load("case-32")["params"]["alpha"]])
def test_case_32_one_entry(alpha):
    case = load("case-32")
    for tau in case["params"]["tau"]:
        s = tensor(case["inputs"]["s"])
        p = softmax(s, tau) if alpha is None else entmax(s, alpha, tau)
        close(p, case["expected"]["p"], case)
        (ds,) = torch.autograd.grad(p, s, torch.full_like(p, 3.0))
        assert not ds.any()


@pytest.mark.parametrize(
    "name, member",
    [("softmax", Shannon()), ("sparsemax", Tsallis(2.0)), ("entmax_1.5", Tsallis(1.5))],
)
def test_case_27_gradient_of_a_mean_reward(name, member):
    case = load("case-27")
    s, r = tensor(case["inputs"]["s"]), tensor(case["inputs"]["r"], grad=False)
    tau, expected = case["params"]["tau"], case["expected"][name]
    p = member(s, tau)
    (ds,) = torch.autograd.grad(p @ r, s)
    close(p, expected["p"], case)
    close(p @ r, expected["value"], case)
    close(ds, expected["ds"], case)
    close(member.jacobian(p, tau) @ r, expected["ds"], case)


def test_case_28_reinforce_by_the_loss_of_the_actions():
    case = load("case-28")
    logits, expected = tensor(case["inputs"]["logits"]), case["expected"]
    actions = torch.tensor(case["inputs"]["actions"])
    returns, left = [], 0.0
    for reward in reversed(case["inputs"]["rewards"]):
        left = reward + case["params"]["gamma"] * left
        returns.insert(0, left)
    returns = torch.tensor(returns, dtype=F64)
    close(returns, expected["returns"], case)
    loss = returns @ softmax_loss(logits, actions, reduction="none")
    close(loss, expected["loss"], case)
    close(torch.autograd.grad(loss, logits)[0], expected["dloss_dlogits"], case)


def test_case_29_the_score_function_estimator_is_unbiased_for_every_baseline():
    case = load("case-29")
    s, r = tensor(case["inputs"]["s"]), tensor(case["inputs"]["r"], grad=False)
    p = softmax(s)
    close(p, case["expected"]["p"], case)
    close(torch.autograd.grad(p @ r, s)[0], case["expected"]["grad_value"], case)
    close(policy.bandit_gradient(r, p), case["expected"]["grad_value"], case)
    p = p.detach()
    actions = torch.arange(3)
    surprise = softmax_loss(s.expand(3, 3), actions, reduction="none")
    scores = torch.stack([-torch.autograd.grad(x, s, retain_graph=True)[0] for x in surprise])
    for baseline in case["params"]["baselines"]:
        b = p @ r if baseline == "p.r" else baseline
        close((p * (r - b)) @ scores, case["expected"]["grad_value"], case)


def test_case_30_fisher_matrix_of_the_scores():
    case = load("case-30")
    s, tau, expected = tensor(case["inputs"]["s"]), case["params"]["tau"], case["expected"]
    p = softmax(s, tau)
    close(p, expected["p"], case)
    close(Shannon().jacobian(p, tau).dense() / tau, expected["fisher"], case)
    hessian = torch.autograd.functional.hessian(lambda s: Shannon().conjugate(s, tau), s)
    close(hessian / tau, expected["fisher"], case)
    scores = (torch.eye(4) - p) / tau
    close((p[:, None] * scores).T @ scores, expected["fisher"], case)
    empirical = torch.outer(scores[2], scores[2])
    close(empirical, expected["empirical_outer_product_label_2"], case)


def test_case_33_mask_and_causal_are_both_obeyed():
    case = load("case-33")
    tensors, expected = qkv(case), case["expected"]
    mask = torch.tensor(case["params"]["mask_true_means_attend"])
    out, aux = attend(*tensors, attn_mask=mask, is_causal=True)
    close(out, expected["o"], case)
    close(aux.weights, expected["p"], case)
    close(attention(*tensors, is_causal=True), expected["o_if_mask_dropped"], case)
    close(attention(*tensors, mask), expected["o_if_causal_dropped"], case)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_case_34_advantages_of_one_group(dtype):
    case = load("case-34")
    rewards, expected = tensor(case["inputs"]["rewards"], dtype), case["expected"]
    name = str(dtype).split(".")[1]
    close(policy.group_advantages(rewards), expected["group_mean"], case, name)
    others = policy.group_advantages(rewards, leave_one_out=True)
    close(others, expected["leave_one_out"], case, name)


@pytest.mark.parametrize(
    "name, member, constant",
    [
        ("softmax", Shannon(), 0.0),
        ("sparsemax", Tsallis(2.0), 0.5),  # the case has |p|^2 / 2, the family subtracts 1/2
        ("entmax_1.5", Tsallis(1.5), 0.0),
    ],
)
def test_case_35_sign_of_the_regulariser(name, member, constant):
    case = load("case-35")
    s, expected = tensor(case["inputs"]["s"]), case["expected"][name]
    p = member(s)
    omega = member.omega(p) + constant
    close(p, expected["p"], case)
    close(omega, expected["omega"], case)
    close(omega - s @ p, expected["objective"], case)
    close(member.conjugate(s) - constant, expected["conjugate"], case)
