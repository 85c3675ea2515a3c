"""Transport on inputs that broke real software (cases 19 to 26)."""

import numpy as np
import pytest
import torch
from cases import load, tolerance, values

from eotcourse.transport import (
    assignment,
    gaussian_map,
    gaussian_w2,
    kantorovich,
    sinkhorn,
    wasserstein,
    wasserstein_1d,
)

DTYPES = {"float64": torch.float64, "float32": torch.float32}


def solve(case, dtype):
    inputs = [torch.tensor(values(case["inputs"][k]), dtype=DTYPES[dtype]) for k in "Cab"]
    return sinkhorn(*inputs, eps=case["params"]["eps"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_case_19_one_plan_and_every_convention_of_its_value(dtype):
    case = load("case-19")
    want, tol = case["expected"], tolerance(case, dtype)
    a, b = values(case["inputs"]["a"]), values(case["inputs"]["b"])
    plan = solve(case, dtype)
    P, eps = plan.P.double().numpy(), case["params"]["eps"]
    np.testing.assert_allclose(P, want["plan"], **tol)
    np.testing.assert_allclose(P.sum(1), a, **tol)
    np.testing.assert_allclose(P.sum(0), b, **tol)
    np.testing.assert_allclose(plan.cost, want["cost_linear"], **tol)
    # Here value = <P, C> + eps sum P log P; the others differ from it by known terms.
    value = plan.value.item()
    np.testing.assert_allclose(value - eps, want["value_entropy_convention"], **tol)
    kl = value - eps * (a @ np.log(a) + b @ np.log(b))
    np.testing.assert_allclose(kl, want["value_kl_convention"], **tol)
    f = (plan.f - plan.f.mean()).numpy()
    np.testing.assert_allclose(f, want["f_centred_entropy_convention"], **tol)


@pytest.mark.parametrize("dtype", DTYPES)
def test_case_20_bins_without_mass(dtype):
    case = load("case-20")
    plan = solve(case, dtype)
    tol = tolerance(case, dtype)
    np.testing.assert_allclose(plan.P, case["expected"]["plan"], **tol)
    np.testing.assert_allclose(plan.cost, case["expected"]["cost_linear"], **tol)
    assert (plan.P[1] == 0).all() and (plan.P[:, 2] == 0).all()
    assert plan.f[1] == -np.inf and plan.g[2] == -np.inf
    assert not any(x.isnan().any() for x in (plan.P, plan.f, plan.g, plan.value))


@pytest.mark.parametrize(
    ("name", "half", "eps"), [("cost_sq_eps_0.5", 1.0, 0.5), ("cost_half_sq_eps_0.25", 0.5, 0.25)]
)
def test_case_21_the_cost_and_eps_are_stated(name, half, eps):
    case = load("case-21")
    x, y, a, b = (torch.from_numpy(values(case["inputs"][k])) for k in "xyab")
    plan = sinkhorn(half * (x[:, None] - y) ** 2, a, b, eps)
    want, tol = case["expected"][name], tolerance(case)
    np.testing.assert_allclose(plan.P, want["plan"], **tol)
    np.testing.assert_allclose(plan.cost, want["cost_linear"], **tol)
    kl = plan.value - eps * (a @ a.log() + b @ b.log())
    np.testing.assert_allclose(kl, want["value_kl_convention"], **tol)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("p", [1, 2])
def test_case_22_weights_travel_with_their_points(p, dtype):
    case = load("case-22")
    x, y, wx, wy = (values(case["inputs"][k]).astype(dtype) for k in ("x", "y", "wx", "wy"))
    tol = tolerance(case, dtype)
    line = wasserstein_1d(x, y, wx, wy, p)
    plane = wasserstein(x[:, None], y[:, None], wx, wy, p)
    for found in (line, plane):
        np.testing.assert_allclose(found, case["expected"][f"W{p}"], **tol)
        np.testing.assert_allclose(found**p, case["expected"][f"W{p}_power"], **tol)


def test_case_23_masses_that_were_float32():
    case = load("case-23")
    C, a, b = (values(case["inputs"][k]) for k in "Cab")
    assert a.sum() != b.sum()
    plan = kantorovich(C, a, b)
    tol = tolerance(case)
    np.testing.assert_allclose(plan.P, case["expected"]["plan"], **tol)
    np.testing.assert_allclose(plan.value, case["expected"]["cost"], **tol)
    np.testing.assert_allclose(plan.P.sum(1), a, atol=1e-15)
    np.testing.assert_allclose(plan.P.sum(0), b * (a.sum() / b.sum()), atol=1e-15)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_case_24_integer_transport_of_mass_100(dtype):
    case = load("case-24")
    C, a, b = (values(case["inputs"][k]).astype(dtype) for k in "Cab")
    plan = kantorovich(C, a, b)
    assert plan.value == pytest.approx(case["expected"]["cost"], rel=1e-12)
    np.testing.assert_allclose(plan.P, plan.P.round(), atol=1e-10)
    np.testing.assert_allclose(plan.P.sum(1), a, rtol=1e-12)
    np.testing.assert_allclose(plan.P.sum(0), b, rtol=1e-12)


def test_case_25_no_column_twice():
    case = load("case-25")
    square, rect = values(case["inputs"]["C_square"]), values(case["inputs"]["C_rect"])
    found = assignment(square)
    assert found.cols.tolist() == case["expected"]["square"]["cols"]
    assert found.cost == case["expected"]["square"]["cost"]
    assert found.cost > case["expected"]["row_minima_sum_square_not_allowed"]
    found = assignment(rect)
    assert found.cols.tolist() == case["expected"]["rect"]["cols"]
    assert found.cost == case["expected"]["rect"]["cost"]
    # The tall problem is the wide one with the roles exchanged.
    tall = assignment(rect.T)
    assert dict(zip(tall.cols, tall.rows)) == dict(zip(found.rows, found.cols))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_case_26_the_distance_and_not_its_square(dtype):
    case = load("case-26")
    m1, A, m2, B, D1, D2 = (
        values(case["inputs"][k]).astype(dtype) for k in ("m1", "S1", "m2", "S2", "D1", "D2")
    )
    want, tol = case["expected"], tolerance(case, dtype)
    found = gaussian_w2(m1, A, m2, B)
    np.testing.assert_allclose(found, want["W2"], **tol)
    np.testing.assert_allclose(found**2, want["W2_squared"], **tol)
    zero = np.zeros(2)
    np.testing.assert_allclose(gaussian_w2(zero, A, zero, B) ** 2, want["bures_squared"], **tol)
    commuting = gaussian_w2(zero, D1, zero, D2) ** 2
    np.testing.assert_allclose(commuting, want["commuting_bures_squared"], **tol)
    T = gaussian_map(A, B)
    np.testing.assert_allclose(np.trace(A + B - 2 * T @ A), want["bures_squared"], **tol)
