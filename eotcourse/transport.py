r"""Optimal transport between finite measures: exact, entropic and semi-relaxed.

A measure ``mu`` on m points is to be moved onto a measure ``nu`` on n points; moving one unit of
mass from point i to point j costs ``C[i, j]``.  A plan is a matrix ``P >= 0`` whose row sums are
``mu`` and whose column sums are ``nu``; its cost is ``<P, C> = sum_ij P_ij C_ij``.

The exact solvers (`assignment`, `kantorovich`, `quantile_coupling`, `wasserstein_1d`,
`wasserstein`, `gaussian_map`, `gaussian_w2`) take arrays or tensors, compute in float64 on the
CPU and return numpy arrays.  The entropic solvers (`sinkhorn`, `sinkhorn_steps`, `semi_relaxed`)
take and return torch tensors on any device, in any floating dtype (float16 and bfloat16 are
computed in float32), with any leading batch dimensions.

Everywhere: ``mu`` and ``nu`` default to uniform measures of mass one; their common mass need not
be one; a bin may have mass zero; ``C[i, j] = +inf`` forbids the edge; negative masses, NaN costs
and masses that disagree are refused.  Two masses that differ by rounding only (relative
difference at most 1e-6, which is what float32 data leave behind) are accepted, and ``nu`` is then
rescaled to the mass of ``mu``.
"""

import math
import numbers
import warnings
from typing import NamedTuple

import numpy as np
import torch

__all__ = [
    "Assignment",
    "EntropicPlan",
    "Plan",
    "assignment",
    "contraction_factor",
    "gaussian_map",
    "gaussian_w2",
    "hilbert_distance",
    "kantorovich",
    "quantile_coupling",
    "semi_relaxed",
    "sinkhorn",
    "sinkhorn_steps",
    "wasserstein",
    "wasserstein_1d",
]


class Assignment(NamedTuple):
    """Row ``rows[k]`` is matched with column ``cols[k]``; ``cost`` is the sum of their costs."""

    rows: np.ndarray
    cols: np.ndarray
    cost: float


class Plan(NamedTuple):
    """Optimal plan ``P`` (m, n), its cost ``value``, and dual potentials ``f`` (m,), ``g`` (n,)."""

    P: np.ndarray
    value: float
    f: np.ndarray
    g: np.ndarray


class EntropicPlan(NamedTuple):
    """Plan ``P = exp((f_i + g_j - C_ij) / eps)`` with its potentials and values.

    ``value`` is the minimum of the regularised problem and ``cost`` is ``<P, C>``, one number per
    problem of the batch; ``error`` is the largest marginal violation (L1) over the batch when the
    iteration stopped, after ``iterations`` full iterations.
    """

    P: torch.Tensor
    f: torch.Tensor
    g: torch.Tensor
    value: torch.Tensor
    error: float
    iterations: int
    cost: torch.Tensor


# Checking what comes in --------------------------------------------------------------------------


def _exact(x):
    if isinstance(x, torch.Tensor):
        return x.detach().to("cpu", torch.float64)
    return torch.from_numpy(np.array(x, dtype=np.float64))


def _refuse(name, x, bad, why):
    try:
        any_bad = bool(bad.any())
    except RuntimeError as error:
        if "vmap" not in str(error):
            raise
        raise RuntimeError(
            "the values can't be checked, nor convergence, inside torch.vmap: give the arguments "
            "leading dimensions instead, which are a batch"
        ) from None
    if any_bad:
        index = tuple(bad.nonzero()[0].tolist())
        place = f"[{', '.join(map(str, index))}]" if index else ""
        raise ValueError(f"{name}{place} = {x[index].item():g}: {why}")


def _check_cost(C):
    if C.ndim < 2 or 0 in C.shape[-2:]:
        raise ValueError(f"C has shape {tuple(C.shape)}; expected (..., m, n) with m, n >= 1")
    _refuse("C", C, C.isnan(), "a cost must be a number")
    _refuse("C", C, C == -math.inf, "a cost may be +inf (a forbidden edge) but not -inf")


def _check_mass(name, w, size):
    if w.ndim < 1 or w.shape[-1] != size:
        raise ValueError(f"{name} has shape {tuple(w.shape)}; expected {size} masses")
    _refuse(name, w, ~w.isfinite(), "a mass must be finite")
    _refuse(name, w, w < 0, "a mass must not be negative")
    total = w.sum(-1)
    _refuse(f"the sum of {name}", total, total == 0, "there is nothing to transport")


def _same_mass(mu, nu, rtol=1e-6):
    """Return nu rescaled to the mass of mu; refuse masses that differ by more than rounding."""
    a, b = mu.detach().sum(-1), nu.detach().sum(-1)
    a, b = torch.broadcast_tensors(a, b)
    differ = (a - b).abs() > rtol * torch.maximum(a, b)
    if differ.any():
        index = tuple(differ.nonzero()[0].tolist())
        raise ValueError(
            f"the masses disagree: mu sums to {a[index].item():.9g}, "
            f"nu sums to {b[index].item():.9g}"
        )
    return nu * (a / b).unsqueeze(-1)


def _exact_masses(mu, nu, m, n):
    mu = torch.full((m,), 1.0 / m, dtype=torch.float64) if mu is None else _exact(mu)
    nu = torch.full((n,), 1.0 / n, dtype=torch.float64) if nu is None else _exact(nu)
    for name, w, size in (("mu", mu, m), ("nu", nu, n)):
        if w.ndim != 1:
            raise ValueError(f"{name} has shape {tuple(w.shape)}; expected ({size},)")
        _check_mass(name, w, size)
    return mu.numpy(), _same_mass(mu, nu).numpy()


def _exact_cost(C):
    C = _exact(C)
    if C.ndim != 2:
        raise ValueError(f"C has shape {tuple(C.shape)}; expected (m, n)")
    _check_cost(C)
    return C.numpy()


def _exact_points(name, x, ndim):
    x = _exact(x)
    if x.ndim != ndim or 0 in x.shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; expected {ndim} non-empty axes")
    _refuse(name, x, ~x.isfinite(), "a coordinate must be finite")
    return x.numpy()


def _check_number(name, x):
    if not isinstance(x, numbers.Real | np.ndarray | torch.Tensor):
        raise TypeError(f"{name} = {x!r}: expected a number")


def _check_order(p):
    _check_number("p", p)
    if not 1 <= p < math.inf:
        raise ValueError(f"p = {p}: the order must be finite and at least 1")


# Exact transport ---------------------------------------------------------------------------------


def assignment(C):
    r"""Match rows with columns at least total cost (the Monge problem for equal unit masses).

    Problem: ``min sum_i C[i, sigma(i)]`` over injections ``sigma``; when m > n, over injections
    of the columns into the rows.

    Args:
        C: (m, n) costs; any sign; ``+inf`` forbids a pair.

    Returns:
        `Assignment` with ``rows`` sorted, both of length ``min(m, n)``.

    Raises:
        ValueError: NaN or -inf in ``C``, or no complete matching avoids the forbidden pairs.

    Source: Kuhn (1955), "The Hungarian method for the assignment problem"; computed by
    `scipy.optimize.linear_sum_assignment`.

    >>> found = assignment([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    >>> found.cols.tolist(), found.cost
    ([1, 0, 2], 5.0)
    """
    from scipy.optimize import linear_sum_assignment

    C = _exact_cost(C)
    try:
        rows, cols = linear_sum_assignment(C)
    except ValueError as error:
        raise ValueError("no assignment avoids the forbidden (+inf) entries of C") from error
    return Assignment(rows, cols, float(C[rows, cols].sum()))


_NO_PLAN = "no plan with these masses avoids the forbidden (+inf) entries of C"


def kantorovich(C, mu=None, nu=None):
    r"""Solve the transport problem of Kantorovich and its dual exactly.

    Primal: ``min <P, C>`` over ``P >= 0``, ``P 1 = mu``, ``P^T 1 = nu``.
    Dual: ``max <f, mu> + <g, nu>`` over ``f_i + g_j <= C_ij``.

    Args:
        C: (m, n) costs; ``+inf`` forbids an edge.
        mu: (m,) row masses, uniform by default.
        nu: (n,) column masses, uniform by default.

    Returns:
        `Plan`.  ``P`` is a vertex: at most m + n - 1 entries are positive.  The potentials are
        feasible, tight wherever ``P > 0``, defined up to ``(f + c, g - c)`` and fixed by
        ``<g, nu> = 0``, so that ``<f, mu>`` is the value.

    Raises:
        ValueError: NaN costs, negative masses, masses that disagree (see the module), or no plan
            avoids the forbidden edges.

    Source: Kantorovich (1942), "On the translocation of masses"; Peyré and Cuturi (2019),
    "Computational Optimal Transport", chapter 3; computed by the simplex method of HiGHS.

    >>> plan = kantorovich([[0, 1, 3], [1, 0, 2], [3, 2, 0]], [.5, .2, .3], [.1, .6, .3])
    >>> round(plan.value, 12), round(float(plan.f @ [.5, .2, .3]), 12)
    (0.4, 0.4)
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    C = _exact_cost(C)
    m, n = C.shape
    mu, nu = _exact_masses(mu, nu, m, n)
    rows, cols = np.flatnonzero(mu), np.flatnonzero(nu)
    inner = C[np.ix_(rows, cols)]
    i, j = np.nonzero(np.isfinite(inner))
    if not len(i):
        raise ValueError(_NO_PLAN)
    edge = np.arange(len(i))
    # The last column constraint follows from the others; kept, rounding could make it infeasible.
    kept = j < len(cols) - 1
    A = coo_array(
        (
            np.ones(len(edge) + kept.sum()),
            (np.r_[i, len(rows) + j[kept]], np.r_[edge, edge[kept]]),
        ),
        shape=(len(rows) + len(cols) - 1, len(edge)),
    ).tocsr()
    # The tolerances of HiGHS are absolute, so costs and masses are brought to order one; a
    # constant taken from a row of costs changes its potential and nothing else.
    excess = inner[i, j] - inner.min(1)[i]
    unit = excess.max() or 1.0
    weight = mu.sum() / (m + n)
    solved = linprog(
        excess / unit,
        A_eq=A,
        b_eq=np.r_[mu[rows], nu[cols[:-1]]] / weight,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if solved.status == 2:
        raise ValueError(_NO_PLAN)
    if solved.status != 0:
        raise RuntimeError(f"the linear programme was not solved: {solved.message}")
    P = np.zeros((m, n))
    P[rows[i], cols[j]] = np.maximum(solved.x, 0.0) * weight
    value = float((inner[i, j] * P[rows[i], cols[j]]).sum())

    # One potential determines the other by f_i = min_j C_ij - g_j; this also serves empty bins.
    g = np.full(n, -np.inf)
    g[cols] = np.r_[solved.eqlin.marginals[len(rows):], 0.0] * unit
    f = np.full(m, -np.inf)
    f[rows] = (inner - g[cols]).min(1)
    empty = np.flatnonzero(nu == 0)
    g[empty] = _finite((C[np.ix_(rows, empty)] - f[rows, None]).min(0))
    empty = np.flatnonzero(mu == 0)
    f[empty] = _finite((C[empty] - g).min(1))
    shift = g @ nu / nu.sum()
    return Plan(P, value, f + shift, g - shift)


def _finite(x):
    """A bin with no allowed edge puts no bound on its potential: take 0."""
    return np.where(np.isfinite(x), x, 0.0)


def _quantile_pieces(x, y, mu, nu):
    """Cut [0, mass] where either distribution function jumps: pieces (i, j, width)."""
    mu, nu = _exact_masses(mu, nu, len(x), len(y))
    by_x, by_y = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    F, G = np.cumsum(mu[by_x]), np.cumsum(nu[by_y])
    F, G = np.minimum(F, G[-1]), np.minimum(G, F[-1])
    level = np.sort(np.r_[F, G])
    width = np.diff(level, prepend=0.0)
    return by_x[np.searchsorted(F, level)], by_y[np.searchsorted(G, level)], width


def quantile_coupling(x, y, mu=None, nu=None):
    r"""Couple two measures on the line monotonically: quantile with quantile.

    The plan is optimal for every cost ``h(x - y)`` with h convex.

    Args:
        x, y: (m,) and (n,) points in any order; the masses travel with their points.
        mu, nu: (m,) and (n,) masses, uniform by default.

    Returns:
        P: (m, n) array in the order of ``x`` and ``y``, at most m + n - 1 positive entries.

    Raises:
        ValueError: as `kantorovich`, or a coordinate that is not finite.

    Source: Peyré and Cuturi (2019), "Computational Optimal Transport", section 2.6.

    >>> quantile_coupling([3.0, 1.0], [0.0, 2.0, 4.0], nu=[0.5, 0.25, 0.25]).tolist()
    [[0.0, 0.25, 0.25], [0.5, 0.0, 0.0]]
    """
    x, y = _exact_points("x", x, 1), _exact_points("y", y, 1)
    i, j, width = _quantile_pieces(x, y, mu, nu)
    P = np.zeros((len(x), len(y)))
    np.add.at(P, (i, j), width)
    return P


def wasserstein_1d(x, y, mu=None, nu=None, p=1):
    r"""Wasserstein distance on the line, ``(int |F^{-1}(t) - G^{-1}(t)|^p dt)^{1/p}``.

    Args:
        x, y: (m,) and (n,) points in any order.
        mu, nu: (m,) and (n,) masses, uniform by default.
        p: order, at least 1.

    Returns:
        The distance (not its p-th power), a float.

    Raises:
        ValueError: as `quantile_coupling`, or ``p < 1``.

    Source: Peyré and Cuturi (2019), "Computational Optimal Transport", section 2.6.

    >>> wasserstein_1d([0.0, 1.0], [0.0, 3.0])
    1.0
    """
    _check_order(p)
    x, y = _exact_points("x", x, 1), _exact_points("y", y, 1)
    i, j, width = _quantile_pieces(x, y, mu, nu)
    return float((width @ np.abs(x[i] - y[j]) ** p) ** (1 / p))


def wasserstein(x, y, mu=None, nu=None, p=2):
    r"""Wasserstein distance between point clouds, ``(min_P sum P_ij |x_i - y_j|^p)^{1/p}``.

    The ground distance is Euclidean; the linear programme is solved exactly.

    Args:
        x, y: (m, d) and (n, d) points.
        mu, nu: (m,) and (n,) masses, uniform by default.
        p: order, at least 1.

    Returns:
        The distance (not its p-th power), a float.

    Raises:
        ValueError: as `kantorovich`, ``p < 1``, or points of different dimension.

    Source: Peyré and Cuturi (2019), "Computational Optimal Transport", section 2.4.

    >>> wasserstein([[0.0, 0.0]], [[3.0, 4.0]])
    5.0
    """
    from scipy.spatial.distance import cdist

    _check_order(p)
    x, y = _exact_points("x", x, 2), _exact_points("y", y, 2)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"x has dimension {x.shape[1]} and y has dimension {y.shape[1]}")
    return max(kantorovich(cdist(x, y) ** p, mu, nu).value, 0.0) ** (1 / p)


def _covariance(name, A):
    """Eigenvalues and eigenvectors; what float32 rounding (1e-6) can explain is repaired."""
    A = _exact(A)
    if A.ndim != 2 or A.shape[0] != A.shape[1] or 0 in A.shape:
        raise ValueError(f"{name} has shape {tuple(A.shape)}; expected (d, d)")
    _refuse(name, A, ~A.isfinite(), "a covariance must be finite")
    A = A.numpy()
    slack = 1e-6 * np.abs(A).max()
    i, j = np.unravel_index(np.abs(A - A.T).argmax(), A.shape)
    if abs(A[i, j] - A[j, i]) > slack:
        raise ValueError(
            f"{name} is not symmetric: {name}[{i}, {j}] = {A[i, j]:g} and "
            f"{name}[{j}, {i}] = {A[j, i]:g}"
        )
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    if values[0] < -slack:
        raise ValueError(
            f"{name} is not positive semidefinite: its least eigenvalue is {values[0]:.3g}"
        )
    return np.maximum(values, 0.0), vectors


def _same_dimension(a, b):
    if len(a) != len(b):
        raise ValueError(f"A and B have different dimensions: {len(a)} and {len(b)}")


def gaussian_map(A, B):
    r"""The optimal linear map from N(0, A) to N(0, B) for the squared distance.

    Problem: the symmetric positive semidefinite T with ``T A T = B``, which is
    ``A^{-1/2} (A^{1/2} B A^{1/2})^{1/2} A^{-1/2}``.

    Args:
        A: (d, d) positive definite covariance.
        B: (d, d) positive semidefinite covariance; T is singular when B is.

    Returns:
        T: (d, d) array.

    Raises:
        ValueError: A or B is not symmetric or not positive semidefinite (beyond a relative 1e-6,
            which float32 data may need), or A is singular.

    Source: Olkin and Pukelsheim (1982), "The distance between two random vectors with given
    dispersion matrices"; Peyré and Cuturi (2019), remark 2.31.

    >>> gaussian_map([[4.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 9.0]]).round(12).tolist()
    [[0.5, 0.0], [0.0, 3.0]]
    """
    values, vectors = _covariance("A", A)
    b_values, b_vectors = _covariance("B", B)
    _same_dimension(values, b_values)
    if values[0] <= 1e-14 * values[-1]:
        raise ValueError(
            f"A is not positive definite: its least eigenvalue is {values[0]:.3g}, and no map "
            "is determined where N(0, A) has no mass"
        )
    root = (vectors * np.sqrt(values)) @ vectors.T
    inverse = (vectors / np.sqrt(values)) @ vectors.T
    # With M M^T = A^{1/2} B A^{1/2}, the root of the product comes from an SVD of M: forming the
    # product and taking its root would lose half the digits of a singular B.
    left, sizes, _ = np.linalg.svd(root @ (b_vectors * np.sqrt(b_values)))
    T = inverse @ (left * sizes) @ left.T @ inverse
    return (T + T.T) / 2


def gaussian_w2(mean_a, A, mean_b, B):
    r"""Wasserstein distance of order 2 between N(mean_a, A) and N(mean_b, B).

    Its square is ``|mean_a - mean_b|^2 + tr A + tr B - 2 tr (A^{1/2} B A^{1/2})^{1/2}``.

    Args:
        mean_a, mean_b: (d,) means.
        A, B: (d, d) positive semidefinite covariances; both may be singular.

    Returns:
        The distance (not its square), a float.

    Raises:
        ValueError: A or B is not symmetric or not positive semidefinite, or shapes disagree.

    Source: Dowson and Landau (1982), "The Fréchet distance between multivariate normal
    distributions"; Bhatia, Jain and Lim (2019), "On the Bures-Wasserstein distance between
    positive definite matrices", for the form that is computed.

    >>> gaussian_w2([0.0], [[4.0]], [4.0], [[25.0]])
    5.0
    """
    a_values, a_vectors = _covariance("A", A)
    b_values, b_vectors = _covariance("B", B)
    _same_dimension(a_values, b_values)
    means = _exact_points("mean_a", mean_a, 1), _exact_points("mean_b", mean_b, 1)
    for name, mean in zip(("mean_a", "mean_b"), means):
        if len(mean) != len(a_values):
            raise ValueError(f"{name} has {len(mean)} entries; A has dimension {len(a_values)}")
    root_a = (a_vectors * np.sqrt(a_values)) @ a_vectors.T
    root_b = (b_vectors * np.sqrt(b_values)) @ b_vectors.T
    # min over rotations U of |A^{1/2} - B^{1/2} U|: the trace formula cancels when A is near B.
    left, _, right = np.linalg.svd(root_b @ root_a)
    bures = np.linalg.norm(root_a - root_b @ left @ right)
    return float(np.hypot(np.linalg.norm(means[0] - means[1]), bures))


# Entropic transport ------------------------------------------------------------------------------


class _Potentials(torch.autograd.Function):
    r"""Give the fixed point (phi, psi) of the scaling iteration its derivatives.

    With ``P = exp(phi_i + psi_j + logK_ij)``, ``c = P^T 1`` and ``L = log c - psi``, the fixed
    point solves ``log(P 1) = log mu`` and ``psi = target - rho L``.  The implicit function
    theorem gives its derivative by one symmetric system with the n x n Schur complement
    ``diag(c) - rho P^T diag(P 1)^{-1} P``.  For rho = 1 the potentials are determined up to a
    constant (one per connected block of P), and the pseudo-inverse picks a solution; every
    quantity that does not depend on that constant has the right gradient.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(log_k, log_mu, target, rho, phi, psi):
        return phi.clone(), psi.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        log_k, _, _, rho, _, _ = inputs
        ctx.save_for_backward(log_k, rho, *output)

    @staticmethod
    def backward(ctx, grad_phi, grad_psi):
        log_k, rho, phi, psi = ctx.saved_tensors
        P = torch.exp(phi.unsqueeze(-1) + (log_k + psi.unsqueeze(-2)))
        r, c = P.sum(-1), P.sum(-2)
        a, b = _inverse_root(r), _inverse_root(c)
        Q = a.unsqueeze(-1) * P * b.unsqueeze(-2)
        x, y = a * grad_phi, b * grad_psi
        n = P.shape[-1]
        schur = torch.eye(n, dtype=P.dtype, device=P.device) - rho[..., None, None] * (Q.mT @ Q)
        rtol = 32 * max(P.shape[-2:]) * torch.finfo(P.dtype).eps
        inverse = torch.linalg.pinv(schur, rtol=rtol, hermitian=True)
        v = _apply(inverse, y - _apply(Q.mT, x))
        w = rho.unsqueeze(-1) * v
        row, col = a * (x - _apply(Q, w)), b * w
        grad_target = c * b * v
        L = (_log0(c) - psi).masked_fill(c == 0, 0.0)
        grad_k = -P * (row.unsqueeze(-1) + col.unsqueeze(-2))
        return grad_k, r * row, grad_target, -(grad_target * L).sum(-1), None, None


class _Value(torch.autograd.Function):
    """min <P, C> + eps sum P log P, with the gradient of the envelope theorem: P, f, g, -H(P)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(C, mu, nu, eps, P, log_P, f, g):
        return (P * C).sum((-2, -1)) + eps * (P * log_P).sum((-2, -1))

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, _, _, eps, P, log_P, f, g = inputs
        ctx.save_for_backward(eps, P, log_P, f, g)

    @staticmethod
    def backward(ctx, grad):
        eps, P, log_P, f, g = ctx.saved_tensors
        negentropy = (P * log_P).sum((-2, -1))
        # A common change of both masses changes sum P as well: that is the eps, shared evenly.
        grad_mu = (f + eps.unsqueeze(-1) / 2).masked_fill(P.sum(-1) == 0, 0.0)
        grad_nu = (g + eps.unsqueeze(-1) / 2).masked_fill(P.sum(-2) == 0, 0.0)
        each = grad.unsqueeze(-1)
        return (
            each.unsqueeze(-1) * P, each * grad_mu, each * grad_nu, grad * negentropy,
            None, None, None, None,
        )  # fmt: skip


def _apply(matrix, vector):
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _inverse_root(x):
    return x.masked_fill(x == 0, 1.0).rsqrt().masked_fill(x == 0, 0.0)


def _log0(x):
    """Logarithm, with value and gradient 0 where x = 0."""
    return x.masked_fill(x == 0, 1.0).log()


def _size(x):
    """The largest finite magnitude in a row."""
    return torch.where(x == -math.inf, 0.0, x.abs()).amax(-1)


def _scale(log_mass, share, log_sum):
    """The scaling update; a bin without mass or without an allowed edge stays empty."""
    empty = (log_mass == -math.inf) | (log_sum == -math.inf)
    return (log_mass - share * log_sum).masked_fill(empty, -math.inf)


def _floating(name, x, like=None):
    if isinstance(x, list | tuple) and like is not None:
        x = like.new_tensor(x)
    if not isinstance(x, torch.Tensor):
        x = torch.from_numpy(np.array(x)).to("cpu" if like is None else like.device)
    if like is not None and not x.is_complex() and not x.is_floating_point():
        x = x.to(like.dtype)
    if not x.is_floating_point():
        raise TypeError(f"{name} has dtype {x.dtype}; expected a floating dtype")
    return x


def _numbers(name, x, like):
    """A number, or an array of them, in the dtype and on the device of `like`."""
    try:
        return torch.as_tensor(x, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} = {x!r}: expected a number or a tensor") from None


def _entropic_problem(C, mu, nu, eps):
    """Checked, broadcast inputs in the working dtype, and the dtype of the results."""
    C = _floating("C", C)
    _check_cost(C)
    m, n = C.shape[-2:]
    mu = C.new_full((m,), 1.0 / m) if mu is None else _floating("mu", mu, C)
    nu = C.new_full((n,), 1.0 / n) if nu is None else _floating("nu", nu, C)
    coarsest = max(torch.finfo(w.dtype).eps for w in (C, mu, nu))
    dtype = torch.promote_types(torch.promote_types(C.dtype, mu.dtype), nu.dtype)
    work = torch.promote_types(dtype, torch.float32)
    C, mu, nu = C.to(work), mu.to(work), nu.to(work)
    _check_mass("mu", mu, m)
    _check_mass("nu", nu, n)
    eps = _numbers("eps", eps, C)
    _refuse("eps", eps, ~((eps > 0) & eps.isfinite()), "eps must be positive and finite")
    batch = torch.broadcast_shapes(C.shape[:-2], mu.shape[:-1], nu.shape[:-1], eps.shape)
    nu = _same_mass(mu, nu, max(1e-6, 4 * coarsest))
    # An empty bin is absent: this cuts the gradient with respect to its mass.
    mu, nu = mu.masked_fill(mu == 0, 0.0), nu.masked_fill(nu == 0, 0.0)
    C, mu, nu = C.expand(*batch, m, n), mu.expand(*batch, m), nu.expand(*batch, n)
    return C, mu, nu, eps.expand(batch), dtype


def _edges(C, mu, nu):
    """Where mass can go: from a bin with mass to a bin with mass, at a finite cost."""
    return (C < math.inf) & (mu > 0).unsqueeze(-1) & (nu > 0).unsqueeze(-2)


def _least(C, edge, dim):
    """The least cost of the edges along `dim`, without gradient; 0 where there is no edge."""
    least = C.detach().masked_fill(~edge, math.inf).amin(dim)
    return least.masked_fill(least == math.inf, 0.0)


def _check_reachable(C, mu, nu, columns_too):
    edge = _edges(C, mu, nu)
    _refuse("mu", mu, (mu > 0) & ~edge.any(-1), "every edge of this mass is forbidden (+inf)")
    if columns_too:
        _refuse("nu", nu, (nu > 0) & ~edge.any(-2), "every edge of this mass is forbidden (+inf)")


@torch.no_grad()
def _iterate(log_k, log_mu, target, rho, psi, tol, max_iter):
    """Alternate row and column updates from psi; stop on the row error after a column one.

    Returns phi, psi, the largest error, the number of iterations, and which problems are late.

    For 0 < rho < 1 the constant that f and g share is set to its optimum every time: the column
    marginal implied by psi, ``log q = (target - (1 - rho) psi) / rho``, gets the mass of mu.
    Left to the updates it would converge like rho^k, hardly at all when lam is large.
    """
    mu, rho, log_mass = log_mu.exp(), rho.unsqueeze(-1), torch.logsumexp(log_mu, -1, keepdim=True)
    shared = bool(((rho > 0) & (rho < 1)).all())
    psi = psi.masked_fill(target == -math.inf, -math.inf)
    row_sum = torch.logsumexp(log_k + psi.unsqueeze(-2), -1)
    for iteration in range(1, max_iter + 1):
        phi = _scale(log_mu, 1.0, row_sum)
        psi = _scale(target, rho, torch.logsumexp(log_k + phi.unsqueeze(-1), -2))
        if shared:
            log_q = ((target - (1 - rho) * psi) / rho).masked_fill(psi == -math.inf, -math.inf)
            log_q_mass = torch.logsumexp(log_q, -1, keepdim=True)
            shift = rho / (1 - rho) * (log_q_mass - log_mass)
            phi, psi = phi - shift, psi + shift
        row_sum = torch.logsumexp(log_k + psi.unsqueeze(-2), -1)
        violation = ((phi + row_sum).exp() - mu).abs().sum(-1)
        late = violation > tol
        if not late.any():
            break
    return phi, psi, max(violation.flatten().tolist(), default=0.0), iteration, late


def _entropic(name, C, mu, nu, eps, lam, product, tol, max_iter):
    """Both solvers: Sinkhorn's iteration is the semi-relaxed one with infinite lam."""
    _check_number("tol", tol)
    if not isinstance(max_iter, numbers.Integral):
        raise TypeError(f"max_iter = {max_iter!r}: expected a whole number")
    if max_iter < 1:
        raise ValueError(f"max_iter = {max_iter}: at least one iteration is needed")
    C, mu, nu, eps, dtype = _entropic_problem(C, mu, nu, eps)
    lam = _numbers("lam", lam, C)
    if lam.ndim:
        raise ValueError(f"lam has shape {tuple(lam.shape)}; expected one number")
    _refuse("lam", lam, ~(lam >= 0), "the weight must not be negative")
    balanced, ignores_nu = bool(lam == math.inf), bool(lam == 0) and not product
    columns = torch.ones_like(nu) if ignores_nu else nu
    _check_reachable(C, mu, columns, balanced)

    # What a row, or a column whose mass is imposed, pays at least is paid by every plan. Taken
    # away here and given back to the potentials, it costs the exponents no digits.
    edge, has_nu = _edges(C, mu, columns), columns > 0
    cost = torch.where(edge, C, 0.0)
    row_base, col_base = _least(cost, edge, -1), torch.zeros_like(nu)
    cost = torch.where(edge, cost - row_base.unsqueeze(-1), 0.0)
    if balanced:
        col_base = _least(cost, edge, -2)
        cost = torch.where(edge, cost - col_base.unsqueeze(-2), 0.0)

    e = eps.unsqueeze(-1)
    log_k = torch.where(edge, -cost / e.unsqueeze(-1), -math.inf)
    log_mu0, log_nu0 = _log0(mu), _log0(nu)
    log_mu = log_mu0.masked_fill(mu == 0, -math.inf)
    rho = torch.ones_like(eps) if balanced else lam / (lam + eps)
    target = log_nu0 if product else rho.unsqueeze(-1) * log_nu0
    target = target.masked_fill(~has_nu, -math.inf)

    # The exponents are of size max|C|/eps, so their rounding bounds what error can be reached.
    # That excuses a small error only: a plan further off is not one, and the caller is warned.
    size, mass = cost.detach().amax((-2, -1)) / eps.detach(), mu.detach().sum(-1)
    rounding = (4 * torch.finfo(C.dtype).eps * (1 + size)).clamp(max=1e-4) * mass
    phi, psi, error, iterations, late = _iterate(
        *(x.detach() for x in (log_k, log_mu, target, rho, -col_base / e)),
        rounding.clamp(min=tol), max_iter,
    )  # fmt: skip
    lost = torch.maximum(_size(phi), _size(psi)) * torch.finfo(C.dtype).eps >= 1
    _refuse(
        "eps", eps, late & lost | (size == math.inf),
        f"too small for these costs, (f + g - C) / eps has no digit left in {C.dtype}",
    )  # fmt: skip
    if late.any():
        warnings.warn(
            f"{name} has not converged: marginal error {error:.3g} > tol {tol:.3g} after "
            f"{iterations} iterations at eps = {eps.min().item():.3g}; raise eps or max_iter",
            RuntimeWarning,
            stacklevel=3,
        )
    phi, psi = _Potentials.apply(log_k, log_mu, target, rho, phi, psi)

    # Infinite potentials of empty bins would turn gradients into NaN: compute with 0, mask last.
    no_row, no_col = phi == -math.inf, psi == -math.inf
    phi, psi = phi.masked_fill(no_row, 0.0), psi.masked_fill(no_col, 0.0)
    # In the order of the iteration: only so is its error that of P when the terms are large.
    log_P = phi.unsqueeze(-1) + (log_k + psi.unsqueeze(-2))
    P, log_P = log_P.exp(), log_P.masked_fill(~edge, 0.0)
    row, col = P.sum(-1), P.sum(-2)
    f, g = e * phi, e * psi
    if balanced:
        origin = e * log_nu0 if product else 0.0
        shift = (nu * (g + col_base - origin)).sum(-1, keepdim=True) / nu.sum(-1, keepdim=True)
        f, g = f + shift, g - shift
        value = _Value.apply(cost, mu, nu, eps, P, log_P, f, g)
    else:
        value = (row * f).sum(-1) + (col * g).sum(-1)
        value = value + lam * (col * (_log0(col) - log_nu0)).sum(-1)
    if product:
        value = value - eps * ((row * log_mu0).sum(-1) + (col * log_nu0).sum(-1))
    # Imposed masses have the gradients of mu and nu, however large the numbers they multiply.
    base = ((mu + (row - mu).detach()) * row_base).sum(-1)
    base = base + ((nu + (col - nu).detach()) * col_base).sum(-1)
    value, spent = value + base, (P * cost).sum((-2, -1)) + base
    f = (f + row_base).masked_fill(no_row, -math.inf)
    g = (g + col_base).masked_fill(no_col, -math.inf)
    P, f, g, value, spent = (t.to(dtype) for t in (P, f, g, value, spent))
    return EntropicPlan(P, f, g, value, error, iterations, spent)


def sinkhorn(C, mu=None, nu=None, eps=1.0, *, tol=1e-9, max_iter=10_000):
    r"""Entropic optimal transport by Sinkhorn's iteration in the log domain.

    Problem: ``min <P, C> - eps H(P)`` over ``P >= 0``, ``P 1 = mu``, ``P^T 1 = nu``, with
    ``H(P) = -sum P log P``.  Solution: ``P_ij = exp((f_i + g_j - C_ij) / eps)``.

    Args:
        C: (..., m, n) raw costs (``eps`` divides them, once); ``+inf`` forbids an edge.
        mu: (..., m) row masses, uniform by default; leading dimensions broadcast.
        nu: (..., n) column masses, uniform by default.
        eps: weight of the entropy, in units of the cost; a number, or one per problem (...).
        tol: the iteration stops when ``sum_i |(P 1)_i - mu_i| <= tol`` in every problem of the
            batch (columns are then exact).  Where ``tol`` is finer than the rounding of the
            exponents, ``4 u (1 + max|C| / eps)`` per unit of mass with machine precision u, that
            bound replaces it, but never more than 1e-4 per unit of mass.  Here C is counted from
            the least cost of each row, then of each column: what every plan pays costs no digits.
        max_iter: most full iterations (a row and a column update each).

    Returns:
        `EntropicPlan`: ``value = <P, C> - eps H(P)``, ``cost = <P, C>``, and potentials with
        ``<g, nu> = 0``, so that ``<f, mu> = value``.  A bin without mass has a row or column of
        exact zeros and potential -inf.  Everything is differentiable in C, mu, nu and eps,
        by the implicit function theorem and not through the iterations; the gradient of
        ``value`` in C is P itself.  Gradients in mu and nu are meant for changes that keep the
        two masses equal (a constant added to one and taken from the other is free), and are 0
        for a bin without mass, which counts as absent.  Lists and integer masses take the
        dtype of ``C``.

    Raises:
        TypeError: costs of an integer or boolean dtype; what is no number.
        ValueError: NaN costs, negative masses, masses that disagree (see the module),
            ``eps <= 0``, a mass all of whose edges are forbidden, or an ``eps`` so small that the
            exponents have no digit left (`kantorovich` solves the limit).
        RuntimeError: inside `torch.vmap`, where no value can be checked: leading dimensions are
            the batch.

    Warns:
        RuntimeWarning: ``max_iter`` was reached first; the message states the error.

    Source: Sinkhorn (1964), "A relationship between arbitrary positive matrices and doubly
    stochastic matrices"; Cuturi (2013), "Sinkhorn distances"; Peyré and Cuturi (2019), chapter 4.

    >>> C = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    >>> plan = sinkhorn(C, eps=0.5)
    >>> [[round(p, 6) for p in row] for row in plan.P.tolist()]
    [[0.440399, 0.059601], [0.059601, 0.440399]]
    >>> round(plan.cost.item(), 6)
    0.119203
    """
    return _entropic("sinkhorn", C, mu, nu, eps, math.inf, False, tol, max_iter)


def sinkhorn_steps(C, mu=None, nu=None, eps=1.0):
    r"""Sinkhorn's iteration one half-step at a time, without end.

    It starts from ``g = 0`` and updates the rows first, so the first plan
    ``exp((f_i + g_j - C_ij) / eps)`` is the row softmax of ``-C / eps`` times ``mu_i``.  Every
    half-step maximises over one potential the concave dual ::

        D(f, g) = <f, mu> + <g, nu> - eps sum_ij exp((f_i + g_j - C_ij) / eps) + eps mass

    with ``mass = sum mu``; hence D never decreases, and its maximum is the minimum of
    ``<P, C> - eps H(P)``, the ``value`` of `sinkhorn`.

    Args:
        C, mu, nu, eps: as for `sinkhorn`.

    Yields:
        ``(f, g, D)`` after every half-step; shapes (..., m), (..., n) and (...).  The constant
        shared by f and g is left as the iteration has it; a bin without mass has -inf.

    Raises:
        TypeError, ValueError: as `sinkhorn`, at the call.

    Source: Peyré and Cuturi (2019), "Computational Optimal Transport", section 4.4.

    >>> C = torch.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=torch.float64)
    >>> steps = sinkhorn_steps(C, eps=1.0)
    >>> f, g, dual = next(steps)
    >>> torch.allclose(2 * torch.exp(f[:, None] + g - C), torch.softmax(-C, -1))
    True
    >>> next(steps)[2] > dual
    tensor(True)
    """
    C, mu, nu, eps, dtype = _entropic_problem(C, mu, nu, eps)
    _check_reachable(C, mu, nu, True)
    base = _least(C, _edges(C, mu, nu), -1)
    log_k = (base.unsqueeze(-1) - C) / eps[..., None, None]
    return _half_steps(log_k, base, mu, nu, eps, dtype)


def _half_steps(log_k, base, mu, nu, eps, dtype):
    """The steps for the costs above `base`, one number a row, which is part of f."""
    log_mu, log_nu = mu.log(), nu.log()
    psi = torch.zeros_like(nu).masked_fill(nu == 0, -math.inf)

    def report():
        P = torch.exp(log_k + phi.unsqueeze(-1) + psi.unsqueeze(-2))
        linear = (mu * phi).masked_fill(mu == 0, 0.0).sum(-1)
        linear = linear + (nu * psi).masked_fill(nu == 0, 0.0).sum(-1)
        dual = eps * (linear - P.sum((-2, -1)) + mu.sum(-1)) + (mu * base).sum(-1)
        e = eps.unsqueeze(-1)
        return (e * phi + base).to(dtype), (e * psi).to(dtype), dual.to(dtype)

    while True:
        phi = _scale(log_mu, 1.0, torch.logsumexp(log_k + psi.unsqueeze(-2), -1))
        yield report()
        psi = _scale(log_nu, 1.0, torch.logsumexp(log_k + phi.unsqueeze(-1), -2))
        yield report()


def semi_relaxed(
    C, mu=None, nu=None, eps=1.0, lam=1.0, *, reference="counting", tol=1e-9, max_iter=10_000
):
    r"""Entropic transport whose column marginal is pulled towards ``nu`` but not imposed.

    Problem: ``min <P, C> + eps R(P) + lam KL(P^T 1 | nu)`` over ``P >= 0``, ``P 1 = mu``, with
    ``KL(c | nu) = sum c log(c / nu)`` and

    - ``reference="counting"``: ``R(P) = sum P log P``.  At ``lam = 0``, P is ``mu_i`` times the
      row softmax of ``-C / eps`` and nu plays no part.
    - ``reference="product"``: ``R(P) = sum_ij P_ij log(P_ij / (mu_i nu_j))``.  At ``lam = 0``,
      P is ``mu_i`` times the row softmax of ``-C / eps + log nu``: softmax with prior nu.

    Both tend to `sinkhorn`'s plan as ``lam -> inf``.  The iteration is Sinkhorn's with the column
    update raised to the power ``lam / (lam + eps)`` and the constant shared by f and g set to its
    optimum after every iteration.

    Args:
        C, mu, nu, eps, tol, max_iter: as for `sinkhorn`.
        lam: weight of the penalty, in units of the cost, one number; 0 and inf are the exact
            limits.
        reference: "counting" or "product".

    Returns:
        `EntropicPlan`: ``value`` is the minimum above (for ``lam = inf`` without the penalty),
        ``cost = <P, C>``, and ``P_ij = exp((f_i + g_j - C_ij) / eps)`` with
        ``g = -lam log(P^T 1 / nu)``, plus ``eps log nu`` for the product reference; at
        ``lam = inf`` the constant is fixed as in the limit.  Differentiable in C, mu, nu, eps and
        lam like `sinkhorn`.

    Raises:
        TypeError, ValueError: as `sinkhorn`, or ``lam < 0``, or an unknown reference.

    Warns:
        RuntimeWarning: ``max_iter`` was reached first.

    Source: Chizat, Peyré, Schmitzer and Vialard (2018), "Scaling algorithms for unbalanced
    optimal transport problems"; Séjourné, Vialard and Peyré (2022), "Faster unbalanced optimal
    transport: translation invariant Sinkhorn and 1-D Frank-Wolfe".

    >>> S = torch.tensor([[2.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    >>> free = semi_relaxed(-S, eps=1.0, lam=0.0).P
    >>> torch.allclose(2 * free, torch.softmax(S, -1))
    True
    >>> [round(c, 3) for c in semi_relaxed(-S, eps=1.0, lam=9.0).P.sum(0).tolist()]
    [0.537, 0.463]
    """
    if reference not in ("counting", "product"):
        raise ValueError(f"reference = {reference!r}: expected 'counting' or 'product'")
    return _entropic("semi_relaxed", C, mu, nu, eps, lam, reference == "product", tol, max_iter)


def hilbert_distance(u, v):
    r"""Hilbert's projective distance ``log max_i (u_i / v_i) - log min_i (u_i / v_i)``.

    Args:
        u, v: (..., n) positive vectors; a positive multiple of either changes nothing.

    Returns:
        The distance along the last axis: a float for vectors, else an array.

    Raises:
        ValueError: an entry that is not positive and finite.

    Source: Franklin and Lorenz (1989), "On the scaling of multidimensional matrices".

    >>> round(hilbert_distance([1.0, 2.0], [3.0, 3.0]), 12) == round(math.log(2), 12)
    True
    """
    u, v = _exact(u), _exact(v)
    for name, x in (("u", u), ("v", v)):
        _refuse(name, x, ~((x > 0) & x.isfinite()), "an entry must be positive and finite")
    ratio = u.log() - v.log()
    distance = ratio.amax(-1) - ratio.amin(-1)
    return distance.numpy() if distance.ndim else distance.item()


def contraction_factor(C, eps):
    r"""How much one half-step of Sinkhorn's iteration contracts Hilbert's distance at least.

    The factor is ``tanh(Theta / 4)`` with ``Theta`` the diameter of the kernel ``K = e^{-C/eps}``,
    ``max log(K_ik K_jl / (K_jk K_il))`` over rows i, j and columns k, l.  A full iteration
    contracts by the square.  It depends on C only through the differences of its rows.

    Args:
        C: (m, n) costs; with a forbidden (+inf) edge nothing is guaranteed and the factor is 1.
        eps: weight of the entropy, positive.

    Returns:
        A float in [0, 1].

    Raises:
        TypeError: ``eps`` is no number.
        ValueError: NaN costs, or ``eps <= 0``.

    Source: Birkhoff (1957), "Extensions of Jentzsch's theorem"; Franklin and Lorenz (1989).

    >>> contraction_factor([[0.0, 1.0], [1.0, 0.0]], eps=0.5) == math.tanh(1.0)
    True
    """
    C = _exact_cost(C)
    _check_number("eps", eps)
    if not 0 < eps < math.inf:
        raise ValueError(f"eps = {eps}: eps must be positive and finite")
    if np.isinf(C).any():
        return 1.0
    if len(C) > C.shape[1]:
        C = C.T
    return math.tanh(max(np.ptp(C - row, axis=1).max() for row in C) / float(eps) / 4)
