"""Properties of the whole family, on inputs that hypothesis looks for."""

import math

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from eotcourse import Shannon, Tsallis, entmax, fenchel_young_loss

F64 = torch.float64
quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)

# Multiples of 1/64: sums and differences of scores are exact, ties are frequent.
steps = st.integers(-512, 512).map(lambda k: k / 64)
orders = st.one_of(st.sampled_from([1.0, 1.5, 2.0]), st.floats(1.0, 3.0))
temperatures = st.floats(0.05, 20.0)


@st.composite
def rows(draw, smallest=1, largest=12, long=True):
    n = draw(st.integers(smallest, largest))
    s = np.array(draw(st.lists(steps, min_size=n, max_size=n)))
    if long and draw(st.booleans()):
        # Long enough for the other way of solving.
        s = np.concatenate([s, s.max() - np.arange(140) / 16])
    return torch.from_numpy(s)


def simplex_points(n, seed, count):
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.full(n, 0.7), count))


@quick
@given(rows(), orders, temperatures)
def test_on_the_simplex(s, alpha, tau):
    p = entmax(s, alpha, tau)
    assert (p >= 0).all() and abs(p.sum() - 1) < 1e-14


@quick
@given(rows(), orders, temperatures, steps)
def test_shift_changes_nothing(s, alpha, tau, shift):
    assert torch.equal(entmax(s + 64 * shift, alpha, tau), entmax(s, alpha, tau))


@quick
@given(rows(), orders, temperatures, st.integers(0, 10))
def test_permuted_scores_give_permuted_weights(s, alpha, tau, seed):
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(s)))
    permuted = entmax(s[order], alpha, tau)
    torch.testing.assert_close(permuted, entmax(s, alpha, tau)[order], atol=1e-9, rtol=0)


@quick
@given(rows(), orders, temperatures)
def test_order_of_weights_is_order_of_scores(s, alpha, tau):
    p = entmax(s, alpha, tau)[s.argsort()]
    assert (p.diff() >= 0).all()
    assert (p.diff()[s.sort().values.diff() == 0] == 0).all()


@quick
@given(rows(smallest=2), orders, temperatures, st.integers(0, 10), st.floats(0.01, 3.0))
def test_a_better_score_gets_more(s, alpha, tau, which, gain):
    which %= len(s)
    better = s.clone()
    better[which] += gain
    change = entmax(better, alpha, tau) - entmax(s, alpha, tau)
    assert change[which] >= -1e-12
    others = torch.arange(len(s)) != which
    assert (change[others] <= 1e-9).all()


@quick
@given(rows(), rows(), orders, temperatures)
def test_the_map_is_monotone(s, t, alpha, tau):
    n = min(len(s), len(t))
    s, t = s[:n], t[:n]
    assert (entmax(s, alpha, tau) - entmax(t, alpha, tau)) @ (s - t) >= -1e-9


@quick
@given(rows(), orders, temperatures)
def test_optimality_conditions(s, alpha, tau):
    regularizer = Tsallis(alpha)
    p, zeta = regularizer(s, tau), regularizer.threshold(s, tau)
    # Marginal penalty log_alpha p on the support; excluded scores lie below its value at 0.
    on = p > 1e-12
    log = p[on].log()
    marginal = log if alpha == 1 else torch.expm1((alpha - 1) * log) / (alpha - 1)
    residual = s[on] / tau - zeta - marginal
    assert residual.abs().max() < 1e-8 * (1 + abs(zeta))
    if alpha > 1:
        assert (s[p == 0] / tau - zeta <= -1 / (alpha - 1) + 1e-8 * (1 + abs(zeta))).all()


@quick
@given(rows(), orders, temperatures, st.integers(0, 10))
def test_loss_is_never_negative(s, alpha, tau, seed):
    y = simplex_points(len(s), seed, 20)
    for member in (Tsallis(alpha), Shannon()):
        loss = fenchel_young_loss(s.expand(20, -1), y, member, tau, reduction="none")
        assert (loss >= -1e-12 * (1 + tau)).all()
        p = member(s, tau)
        assert abs(fenchel_young_loss(s, p, member, tau)) < 1e-11 * (1 + tau)


@quick
@given(rows(long=False), orders, temperatures)
def test_jacobian_is_symmetric_positive_and_kills_constants(s, alpha, tau):
    p = entmax(s, alpha, tau)
    J = Tsallis(alpha).jacobian(p, tau).dense() * tau
    size = 1 + J.abs().max()
    assert (J - J.T).abs().max() <= 1e-14 * size
    assert J.sum(-1).abs().max() <= 1e-13 * size
    assert torch.linalg.eigvalsh(J).min() >= -1e-13 * size
    assert not J[p == 0].any()


@quick
@given(rows(), orders, orders, temperatures)
def test_support_shrinks_as_alpha_grows(s, alpha, beta, tau):
    low, high = sorted((alpha, beta))
    assume(high - low > 1e-3)
    # Rounding decides about an entry at the edge: what is surely in, is surely not out.
    assert (entmax(s, low, tau)[entmax(s, high, tau) > 1e-5] > 0).all()


@quick
@given(rows(), rows(), orders, temperatures)
def test_support_shrinks_when_keys_are_added(s, more, alpha, tau):
    alone = entmax(s, alpha, tau)
    together = entmax(torch.cat([s, more]), alpha, tau)[: len(s)]
    assert (together <= alone + 1e-9).all()
    assert (alone[together > 1e-5] > 0).all()


@quick
@given(rows(), orders)
def test_cold_is_argmax(s, alpha):
    p = entmax(s, alpha, 1e-6)
    best = (s == s.max()).double()
    torch.testing.assert_close(p, best / best.sum(), atol=1e-12, rtol=0)


@quick
@given(rows(), orders)
def test_hot_is_uniform(s, alpha):
    p = entmax(s, alpha, 1e12)
    assert (p - 1 / len(s)).abs().max() < 1e-8


@quick
@given(arrays.arrays(np.float64, st.integers(1, 8), elements=st.floats(-1e300, 1e300)), orders)
def test_any_finite_scores_have_weights(s, alpha):
    p = entmax(torch.from_numpy(s), alpha)
    assert p.isfinite().all() and abs(p.sum() - 1) < 1e-14
    assert p[s.argmax()] == p.max() and math.isclose(p[s == s.max()].min(), p.max())
