r"""Information geometry of the weights: one matrix, its charts, its distances and its geodesics.

The map from scores to weights has the derivative J, which is the second derivative of the value V
(`potential`). For `Shannon` it is :math:`J = C_p/\tau` with :math:`C_p = \mathrm{diag}(p) - p
p^\top`, and C_p is the Fisher matrix of the natural parameter :math:`\theta = s/\tau`.

Weights live on a face of the simplex: the keys of the support S, those with p > 0. A *tangent
vector* of the face sums to 0 and is 0 off S; a *covector* (a gradient) counts up to a constant on
S. On tangent vectors a regulariser with response u has the Riemannian metric
:math:`G = \tau\,\mathrm{diag}(1/u)`, the inverse of J: tau times Fisher-Rao for Shannon, flat for
sparsemax.

Everywhere the last dimension runs over the keys, leading dimensions broadcast, `tau` divides raw
scores, `regularizer=None` is `Shannon()`, and weights are neither checked nor normalised.
Results have the dtype of the inputs, float32 for the half precisions. Nothing inverts a matrix:
every inverse here has a closed form. All functions are differentiable, and run on any device.

Errors: `TypeError` for tensors that aren't floating point and regularisers that aren't
`Regularizer`; `ValueError` for shapes that don't fit and for a temperature that isn't positive and
finite, naming shape or value. Each function names below only what it refuses beyond that.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
import torch

from .regularizers import Jacobian, Shannon, Tsallis, _root, member
from .simplex import (
    _by_series,
    _known_false,
    _per_row,
    gibbs,
    log_alpha,
    temperature_rows,
    to_last,
    working,
)

__all__ = [
    "Fisher",
    "InformationProjection",
    "Metric",
    "bregman",
    "curve_length",
    "dual_coordinates",
    "e_geodesic",
    "embedding",
    "fisher_rao_distance",
    "fisher_rao_geodesic",
    "information_projection",
    "kl",
    "m_geodesic",
    "mirror_step",
    "natural_gradient",
    "omega_bregman",
    "potential",
    "project",
    "replicator",
    "replicator_field",
    "sectional_curvature",
]


def _rows(**named):
    """The tensors as they are computed with, once their shapes fit."""
    rows = [to_last(working(x, name), -1) for name, x in named.items()]
    _check_shapes(**named)
    dtype = functools.reduce(torch.promote_types, (x.dtype for x in rows))
    return [x.to(dtype) for x in rows]


def _check_shapes(**named):
    """Raise `ValueError` unless the tensors broadcast and have equally many keys."""
    try:
        torch.broadcast_shapes(*(x.shape for x in named.values()))
        fits = len({x.shape[-1:] for x in named.values()}) == 1
    except RuntimeError:
        fits = False
    if not fits:
        shapes = " and ".join(f"{name} {tuple(x.shape)}" for name, x in named.items())
        raise ValueError(f"shapes don't fit: {shapes}")


def _finite(x, rows, name):
    """A finite number, or one of either sign for every row, shaped like a temperature."""
    return _per_row(x, rows, -1, name, f"{name} must be finite", -torch.finfo(rows.dtype).max)


def _sqrt(x):
    """The square root, whose derivative at 0 is taken to be 0."""
    return torch.where(x == 0, 0.0, torch.where(x == 0, 1.0, x).sqrt())


def _norm(x):
    return _sqrt((x * x).sum(-1))


def _precision(p, v):
    """The pseudo-inverse of C_p, applied to v."""
    on = p != 0
    v = torch.where(on, v, 0.0)
    q = torch.where(on, p, 1.0)
    total = v.sum(-1, keepdim=True)
    # A gradient C_p a sums to 0 but for rounding, which must not be spread over weights of 1e-11.
    # Over p its entries are as large as the differences of a, which it was rounded with.
    rounding = total.abs() <= 64 * torch.finfo(v.dtype).eps * _norm(v / q).unsqueeze(-1)
    return project(torch.where(rounding, v, project(v, on)) / q, on)


def potential(s, tau=1.0, regularizer=None):
    r"""The value of the row's problem, whose derivatives are the weights and their Jacobian.

    .. math:: V(s) = \max_{p \in \Delta} \langle s, p\rangle - \tau\,\Omega(p), \qquad
              \nabla V = p, \qquad \nabla^2 V = J;

    for Shannon it is :math:`\tau \log \sum_j e^{s_j/\tau}`. This is `Regularizer.conjugate`,
    whose arguments, results and errors it has.

    Examples
    --------
    >>> potential(torch.tensor([4.0, 2.0, 0.0]), tau=2.0)
    tensor(4.8152)
    """
    return member(regularizer).conjugate(s, tau)


def project(x, support=None):
    r"""The orthogonal projection onto the tangent vectors of a face of the simplex.

    .. math:: (\Pi_S x)_j = x_j - \frac{1}{|S|} \sum_{k \in S} x_k \;\; (j \in S), \qquad
              0 \text{ elsewhere.}

    Parameters
    ----------
    x : Tensor, shape (..., n)
    support : boolean Tensor, shape (..., n), optional
        True on S; everything by default. For the face of weights p it is ``p > 0``.

    Returns
    -------
    Tensor
        A face without keys gives 0.

    Raises
    ------
    TypeError
        If `support` isn't a boolean tensor.

    Examples
    --------
    >>> project(torch.tensor([1.0, 0.0, -2.0, 7.0]), torch.tensor([True, True, True, False]))
    tensor([ 1.3333,  0.3333, -1.6667,  0.0000])
    """
    x = to_last(working(x, "x"), -1)
    if support is None:
        return x - x.sum(-1, keepdim=True) / max(x.shape[-1], 1)
    if not isinstance(support, torch.Tensor):
        raise TypeError(f"support must be a torch.Tensor, got {type(support).__name__}")
    if support.dtype != torch.bool:
        raise TypeError(f"support must be boolean, got {support.dtype}")
    _check_shapes(x=x, support=support)
    total = torch.where(support, x, 0.0).sum(-1, keepdim=True)
    return torch.where(support, x - total / support.sum(-1, keepdim=True).clamp(min=1), 0.0)


class Fisher:
    r"""The Fisher information of one draw of a key from p, in one of three charts.

    ============ ========================= =================================================
    chart        coordinates               matrix
    ============ ========================= =================================================
    ``natural``  :math:`\theta = s/\tau`   :math:`C_p = \mathrm{diag}(p) - p p^\top`
    ``score``    raw scores s              :math:`C_p / \tau^2`
    ``mean``     the weights p themselves  diag(1/p) on tangent vectors of the face of p
    ============ ========================= =================================================

    In the mean chart a covector counts up to a constant on the support S; the representative
    that sums to 0 makes the matrix :math:`\Pi_S\,\mathrm{diag}(1/p)\,\Pi_S = C_p^+`: what is the
    metric in one of the two charts is the inverse metric in the other.

    ``F @ v`` applies the matrix along the last dimension of `v`, ``F.pinv(v)`` its pseudo-inverse
    in closed form, ``F.dense()`` forms it. Keys of weight 0 are never read, and get 0.

    Parameters
    ----------
    p : Tensor, shape (..., n)
        Weights of softmax.
    chart : {"natural", "score", "mean"}
    tau : float or Tensor
        Temperature, used by the score chart; a tensor broadcasts with the last dimension kept.

    Raises
    ------
    ValueError
        For an unknown chart.

    Notes
    -----
    Amari and Nagaoka, "Methods of Information Geometry", AMS, 2000.

    :math:`C_p` has rank |S| - 1, so it has no inverse; what replaces it is
    :math:`C_p^+ = \Pi_S\,\mathrm{diag}(1/p)\,\Pi_S`. A sum of `v` that rounding explains counts as
    0 there, so that gradients keep their digits at small weights.

    Examples
    --------
    >>> p = torch.tensor([0.5, 0.25, 0.25])
    >>> Fisher(p).dense()
    tensor([[ 0.2500, -0.1250, -0.1250],
            [-0.1250,  0.1875, -0.0625],
            [-0.1250, -0.0625,  0.1875]])
    >>> F = Fisher(p, "score", tau=2.0)
    >>> F.pinv(F @ torch.tensor([4.0, 1.0, 1.0]))
    tensor([ 2., -1., -1.])
    >>> v = torch.tensor([1.0, 0.0, -1.0])
    >>> v @ (Fisher(p, "mean") @ v)
    tensor(6.)
    """

    def __init__(self, p, chart="natural", tau=1.0):
        if chart not in ("natural", "score", "mean"):
            raise ValueError(f"chart must be natural, score or mean, got {chart!r}")
        (self._p,) = _rows(p=p)
        self._chart = chart
        self._tau = temperature_rows(tau, self._p, -1)

    def __matmul__(self, v):
        p, v = _rows(p=self._p, v=v)
        if self._chart == "mean":
            return _precision(p, v)
        product = Metric(p).sharp(v)
        return product / self._tau**2 if self._chart == "score" else product

    def pinv(self, v):
        """The pseudo-inverse applied to `v`, shape (..., n)."""
        p, v = _rows(p=self._p, v=v)
        if self._chart == "mean":
            return Metric(p).sharp(v)
        solution = _precision(p, v)
        return solution * self._tau**2 if self._chart == "score" else solution

    def dense(self):
        """The matrix, shape (..., n, n)."""
        p, tau = self._p.unsqueeze(-2), self._tau
        tau = tau.unsqueeze(-2) if isinstance(tau, torch.Tensor) else tau
        return Fisher(p, self._chart, tau) @ torch.eye(p.shape[-1], dtype=p.dtype, device=p.device)


def natural_gradient(grad_s, p, tau=1.0, chart="natural"):
    r"""The gradient of a loss in the Fisher metric: steepest per unit of change of p.

    With :math:`g_s = -(1/\tau)\, p \odot (a - \bar a)` the gradient in raw scores and a the
    marginal utilities,

    .. math:: I_\theta^+ \nabla_\theta L = \tau\, C_p^+ g_s = -\Pi_S\, a, \qquad
              I_s^+ \nabla_s L = \tau^2 C_p^+ g_s = -\tau\, \Pi_S\, a,

    the same displacement in two units. A descent step is minus this, times the step size.

    Parameters
    ----------
    grad_s : Tensor, shape (..., n)
        Gradient in the raw scores, which sums to 0 (not checked).
    p : Tensor, shape (..., n)
        Weights of softmax.
    tau : float or Tensor
        Temperature; a tensor broadcasts with the last dimension kept.
    chart : {"natural", "score"}
        Whether the result is a displacement of s / tau or of s.

    Returns
    -------
    Tensor, shape (..., n)
        Sums to 0 over the support; 0 off it.

    Raises
    ------
    ValueError
        For another chart.

    Notes
    -----
    Amari, "Natural gradient works efficiently in learning", Neural Computation 10 (1998).

    Examples
    --------
    >>> p, a = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([1.0, 0.0, -2.0])
    >>> grad_s = -p * (a - p @ a) / 2.0
    >>> natural_gradient(grad_s, p, tau=2.0)
    tensor([-1.3333, -0.3333,  1.6667])
    """
    if chart not in ("natural", "score"):
        raise ValueError(f"chart must be natural or score, got {chart!r}")
    grad_s, p = _rows(grad_s=grad_s, p=p)
    tau = temperature_rows(tau, p, -1)
    on = p != 0
    # A gradient in the scores sums to 0; projecting it again would only spread its rounding.
    solution = project(torch.where(on, grad_s, 0.0) / torch.where(on, p, 1.0), on)
    return solution * (tau if chart == "natural" else tau**2)


def dual_coordinates(p, regularizer=None):
    r"""The scaled scores that give these weights: :math:`\theta = \nabla\Omega_0(p)`.

    Up to a constant in each row: :math:`\log p` for Shannon, :math:`\log_\alpha p =
    (p^{\alpha-1} - 1)/(\alpha-1)` for the Tsallis family.

    Parameters
    ----------
    p : Tensor, shape (..., n)
        Weights.
    regularizer : Regularizer, optional
        Its prior plays no part.

    Returns
    -------
    Tensor, shape (..., n)
        At p = 0 the limit: -inf for Shannon, :math:`-1/(\alpha-1)`, the highest score that still
        gets no weight, for alpha > 1.

    Examples
    --------
    >>> dual_coordinates(torch.tensor([0.25, 0.75, 0.0]), Tsallis(1.5))
    tensor([-1.0000, -0.2679, -2.0000])
    """
    regularizer = member(regularizer)
    (p,) = _rows(p=p)
    zero = p == 0
    q = torch.where(zero, 1.0, p)
    if isinstance(regularizer, Shannon):
        return torch.where(zero, -math.inf, q.log())
    if isinstance(regularizer, Tsallis):
        alpha = regularizer._order(p)
        edge = -1 / (torch.as_tensor(alpha, dtype=p.dtype, device=p.device) - 1)
        # -1 / (1 - 1) has no sign to rely on: 1 - 1 may be 0 or -0.
        return torch.where(zero, -edge.abs(), log_alpha(q, alpha))
    derivative = regularizer._gap_at if regularizer._defines("pointwise") else regularizer._marginal
    return derivative(p.clamp(min=torch.finfo(p.dtype).tiny))


def mirror_step(p, a, eta, regularizer=None):
    r"""One step of mirror ascent on a utility: gain against divergence.

    .. math:: p' = \operatorname*{argmax}_{q \in \Delta} \;
              \langle a, q\rangle - \frac{1}{\eta} D_\Omega(q, p), \qquad
              \nabla\Omega(p') = \nabla\Omega(p) + \eta\, a + \text{const.}

    For Shannon, where the divergence is KL(q || p), it multiplies the weights:
    :math:`p' \propto p\, e^{\eta a}`, a natural gradient step in :math:`\theta` of size eta, and a
    weight of 0 stays 0. For alpha = 2 it is projected gradient ascent, and keys come and go.

    Parameters
    ----------
    p, a : Tensor, shape (..., n)
        Weights and utilities.
    eta : float or Tensor
        Step size, finite; a tensor broadcasts with the last dimension kept. A negative one goes
        down the utility, as a positive one does for -a.
    regularizer : Regularizer, optional
        Its prior plays no part.

    Returns
    -------
    Tensor, shape (..., n)

    Raises
    ------
    ValueError
        For a step size that isn't finite.

    Notes
    -----
    Beck and Teboulle, "Mirror descent and nonlinear projected subgradient methods for convex
    optimization", Operations Research Letters 31 (2003); Raskutti and Mukherjee, "The information
    geometry of mirror descent", IEEE Transactions on Information Theory 61 (2015).

    Examples
    --------
    >>> mirror_step(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([1.0, 0.0, -2.0]), 1.0)
    tensor([0.8060, 0.1779, 0.0161])
    >>> mirror_step(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 0.0, 1.0]), 1.0, Tsallis(2.0))
    tensor([0.1667, 0.1667, 0.6667])
    """
    regularizer = member(regularizer)
    p, a = _rows(p=p, a=a)
    eta = _finite(eta, p, "eta")
    if isinstance(eta, torch.Tensor):
        try:
            torch.broadcast_shapes(eta.shape, p.shape, a.shape)
        except RuntimeError:
            raise ValueError(
                f"eta of shape {tuple(eta.shape)} doesn't fit p {tuple(p.shape)} "
                f"and a {tuple(a.shape)}"
            ) from None
    theta = dual_coordinates(p, regularizer)
    return regularizer.solve(torch.where(theta == -math.inf, theta, theta + eta * a))[0]


def replicator_field(p, a):
    r"""The replicator equation's right-hand side: keys better than average grow.

    .. math:: \dot p_j = p_j\,(a_j - \bar a), \qquad \bar a = \langle p, a\rangle.

    It is :math:`C_p a`, the Fisher-Rao gradient of :math:`\langle a, p\rangle` at p: a tangent
    vector.

    Parameters
    ----------
    p, a : Tensor, shape (..., n)
        Weights and utilities.

    Returns
    -------
    Tensor, shape (..., n)

    Examples
    --------
    >>> replicator_field(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([1.0, 0.0, -2.0]))
    tensor([ 0.4500, -0.0300, -0.4200])
    """
    return Metric(p).sharp(a)


def _along(t, *rows):
    """Times, shaped to come before all dimensions of the rows."""
    t = torch.as_tensor(t, dtype=rows[0].dtype, device=rows[0].device)
    return t.reshape(tuple(t.shape) + (1,) * max(x.dim() for x in rows))


def replicator(p, a, t):
    r"""The solution of the replicator equation at the times t.

    .. math:: p(t) \propto p\, e^{t a} \quad \text{solves} \quad \dot p = p \odot (a - \bar a),
              \; p(0) = p.

    Parameters
    ----------
    p, a : Tensor, shape (..., n)
        Weights at time 0, and utilities, constant in time.
    t : float or Tensor of any shape
        Times, finite; before 0 too.

    Returns
    -------
    Tensor, shape (\*t.shape, ..., n)

    Raises
    ------
    ValueError
        For a time that isn't finite.

    Examples
    --------
    >>> replicator(torch.tensor([0.9, 0.1]), torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0]))
    tensor([[0.9000, 0.1000],
            [0.5491, 0.4509]])
    """
    p, a = _rows(p=p, a=a)
    return mirror_step(p, a, _finite(_along(t, p, a), p, "t"))


def kl(p, q):
    r"""The Kullback-Leibler divergence of each row, in nats.

    .. math:: \mathrm{KL}(p\,\|\,q) = \sum_j p_j \log\frac{p_j}{q_j} - p_j + q_j,

    where the last two terms cancel for distributions; with them every summand is at least 0, and
    close distributions lose no digits.

    Parameters
    ----------
    p, q : Tensor, shape (..., n)
        Weights.

    Returns
    -------
    Tensor, shape (...)
        +inf where p has weight on a key without weight in q.

    Examples
    --------
    >>> kl(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.5, 0.25]))
    tensor(0.3466)
    """
    p, q = torch.broadcast_tensors(*_rows(p=p, q=q))
    on = p != 0
    x, y = torch.where(on, p, 1.0), torch.where(on, q, 1.0)
    near = (x - y).abs() < y / 10
    ratio = torch.where(near, x - y, 0.0) / torch.where(near, y, 1.0)
    series = _by_series(ratio, 0.1, lambda k: (-1) ** k / ((k + 1) * (k + 2)), torch.ones_like)
    term = torch.where(near, (x - y) * ratio * series, x * (x.log() - y.log()) - x + y)
    return torch.where(on, term, q).sum(-1)


def bregman(t, s, tau=1.0, regularizer=None):
    r"""The Bregman divergence of the potential between two rows of raw scores.

    .. math:: D_V(t, s) = V(t) - V(s) - \langle p(s), t - s\rangle \;\ge\; 0.

    For Shannon it is :math:`\tau\,\mathrm{KL}(p(s)\,\|\,p(t))`: the arguments change places.

    Parameters
    ----------
    t, s : Tensor, shape (..., n)
        Raw scores.
    tau : float or Tensor
        Temperature; a tensor broadcasts with the last dimension kept.
    regularizer : Regularizer, optional

    Returns
    -------
    Tensor, shape (...)
        Raw units. A key that is excluded on both sides plays no part.

    Notes
    -----
    For `Shannon` close rows are compared by their weights: of scores h tau apart about
    log10(1/h) of the digits are lost. The other members take the difference of two values, which
    loses twice as many, and none are left at h of 1e-8 (float32: 3e-4).

    Bregman, "The relaxation method of finding the common point of convex sets and its application
    to the solution of problems in convex programming", USSR Computational Mathematics and
    Mathematical Physics 7 (1967).

    Examples
    --------
    >>> bregman(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0]))
    tensor(0.1201)
    """
    regularizer = member(regularizer)
    t, s = torch.broadcast_tensors(*_rows(t=t, s=s))
    p = regularizer(s, tau)
    value_t, value_s = regularizer.conjugate(t, tau), regularizer.conjugate(s, tau)
    # Rows that may attend to nothing have the value -inf, on both sides.
    rise = torch.where(value_t == value_s, 0.0, value_t - value_s)
    divergence = rise - (p * torch.where(p == 0, 0.0, t - s)).sum(-1)
    if not isinstance(regularizer, Shannon):
        return divergence
    q = regularizer(t, tau)
    # Only where weights are close: one that underflows would make the divergence infinite.
    near = ((q - p).abs() <= p / 2).all(-1, keepdim=True)
    tau = temperature_rows(tau, s, -1)
    by_weights = (tau * kl(p, torch.where(near, q, p)).unsqueeze(-1)).squeeze(-1)
    return torch.where(near.squeeze(-1), by_weights, divergence)


def omega_bregman(p, q, regularizer=None):
    r"""The Bregman divergence of the regulariser between two rows of weights.

    .. math:: D_\Omega(p, q) = \Omega(p) - \Omega(q) - \langle \nabla\Omega(q), p - q\rangle.

    It is KL(p || q) for Shannon, :math:`\frac12 |p - q|^2` for alpha = 2. For p and q of the
    same support it is 1/tau times `bregman` of their scores, arguments exchanged.

    Parameters
    ----------
    p, q : Tensor, shape (..., n)
        Weights, of equal sums.
    regularizer : Regularizer, optional
        Its prior plays no part.

    Returns
    -------
    Tensor, shape (...)

    Notes
    -----
    `kl` for `Shannon`, which loses no digits. The other members take a difference, rounded like
    the penalties: of weights that differ by a share h about 2 log10(1/h) digits are lost.

    Examples
    --------
    >>> omega_bregman(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]), Tsallis(2.0))
    tensor(0.2500)
    """
    regularizer = member(regularizer)
    if isinstance(regularizer, Shannon):
        return kl(p, q)
    p, q = torch.broadcast_tensors(*_rows(p=p, q=q))
    step = torch.where(p == q, 0.0, dual_coordinates(q, regularizer)) * (p - q)
    return regularizer.penalty(p) - regularizer.penalty(q) - step.sum(-1)


def _half_angle(p, q):
    """Half the angle between the unit vectors sqrt p and sqrt q, without loss for close ones."""
    x, y = _sqrt(p), _sqrt(q)
    total = x + y
    difference = (p - q) / torch.where(total == 0, 1.0, total)
    return torch.atan2(_norm(difference), _norm(total))


def fisher_rao_distance(p, q, product=()):
    r"""The length of the shortest path of distributions, in the Fisher-Rao metric.

    .. math:: d(p, q) = 2 \arccos \sum_j \sqrt{p_j q_j}
              = 4 \arctan \frac{|\sqrt p - \sqrt q|}{|\sqrt p + \sqrt q|},

    the great circle distance on the sphere of radius 2 between 2 sqrt p and 2 sqrt q; the second
    form, which is the one computed, is right for close points too. Vertices are pi apart.

    Parameters
    ----------
    p, q : Tensor, shape (..., n)
        Weights.
    product : int or tuple of int
        Dimensions, other than the last, whose rows together are one point of a product of
        simplices: the heads, or the heads and queries, of a layer. Squared distances add.

    Returns
    -------
    Tensor, shape (...) without the dimensions of `product`

    Raises
    ------
    ValueError
        For `product` naming a dimension that isn't there, that of the keys, or one twice.

    Notes
    -----
    Rao, "Information and the accuracy attainable in the estimation of statistical parameters",
    Bulletin of the Calcutta Mathematical Society 37 (1945).

    Examples
    --------
    >>> p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
    >>> fisher_rao_distance(p, q)
    tensor(0.7393)
    >>> fisher_rao_distance(torch.stack([p, p]), torch.stack([q, p]), product=0)
    tensor(0.7393)
    """
    p, q = torch.broadcast_tensors(*_rows(p=p, q=q))
    product = (product,) if isinstance(product, int) else tuple(product)
    dims = [d if d < 0 else d - p.dim() for d in product]
    if any(not -p.dim() <= d < -1 for d in dims):
        raise ValueError(
            f"product must name dimensions of {tuple(p.shape)} before the last, got {product}"
        )
    if len(set(dims)) < len(dims):
        raise ValueError(f"product names a dimension of {tuple(p.shape)} twice: {product}")
    distance = 4 * _half_angle(p, q)
    if not dims:
        return distance
    return _sqrt((distance**2).sum([d + 1 for d in dims]))


def fisher_rao_geodesic(p, q, t):
    r"""The shortest path between two distributions: a great circle, squared.

    .. math:: \sqrt{p(t)} = \frac{\sin((1-t)\omega)\,\sqrt p + \sin(t\omega)\,\sqrt q}{\sin\omega},
              \qquad \omega = \arccos \sum_j \sqrt{p_j q_j}.

    It is the Levi-Civita geodesic of the Fisher-Rao metric, run at constant speed, and stays in
    the smallest face that has both ends.

    Parameters
    ----------
    p, q : Tensor, shape (..., n)
        Weights at t = 0 and t = 1.
    t : float or Tensor of any shape
        Times in [0, 1]; beyond, the path is reflected where it meets the boundary.

    Returns
    -------
    Tensor, shape (\*t.shape, ..., n)

    Examples
    --------
    >>> fisher_rao_geodesic(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), 1 / 3)
    tensor([0.7500, 0.2500])
    """
    p, q = _rows(p=p, q=q)
    t = _along(t, p, q)
    omega = 2 * _half_angle(p, q).unsqueeze(-1)
    still = omega == 0
    omega = torch.where(still, 1.0, omega)
    at_p = torch.where(still, 1 - t, torch.sin((1 - t) * omega) / torch.sin(omega))
    at_q = torch.where(still, t, torch.sin(t * omega) / torch.sin(omega))
    return (at_p * _sqrt(p) + at_q * _sqrt(q)) ** 2


def e_geodesic(p, q, t, regularizer=None):
    r"""The path that is a straight line in the scores.

    .. math:: \nabla\Omega(p(t)) = (1-t)\,\nabla\Omega(p) + t\,\nabla\Omega(q) + \text{const};

    for Shannon :math:`p(t) \propto p^{1-t} q^t`, the exponential geodesic.

    Parameters
    ----------
    p, q : Tensor, shape (..., n)
        Weights at t = 0 and t = 1.
    t : float or Tensor of any shape
        Times; beyond [0, 1] the line goes on.
    regularizer : Regularizer, optional
        Its prior plays no part.

    Returns
    -------
    Tensor, shape (\*t.shape, ..., n)
        For Shannon a key of weight 0 at one end has weight 0 strictly between; ends without
        a common key are joined by no such path, and rows between them are 0.

    Notes
    -----
    Amari and Nagaoka, "Methods of Information Geometry", AMS, 2000.

    Examples
    --------
    >>> e_geodesic(torch.tensor([0.8, 0.1, 0.1]), torch.tensor([0.1, 0.8, 0.1]), 0.5)
    tensor([0.4249, 0.4249, 0.1502])
    """
    regularizer = member(regularizer)
    p, q = _rows(p=p, q=q)
    t = _along(t, p, q)
    start, end = dual_coordinates(p, regularizer), dual_coordinates(q, regularizer)
    excluded = ((start == -math.inf) & (t != 1)) | ((end == -math.inf) & (t != 0))
    start, end = (torch.where(x == -math.inf, 0.0, x) for x in (start, end))
    line = (1 - t) * start + t * end
    return regularizer.solve(torch.where(excluded, -math.inf, line))[0]


def m_geodesic(p, q, t):
    r"""The path of mixtures, straight in the weights: :math:`p(t) = (1-t)\,p + t\,q`.

    Parameters
    ----------
    p, q : Tensor, shape (..., n)
        Weights at t = 0 and t = 1.
    t : float or Tensor of any shape
        Times; beyond [0, 1] weights may become negative.

    Returns
    -------
    Tensor, shape (\*t.shape, ..., n)

    Examples
    --------
    >>> m_geodesic(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), torch.tensor([0.25, 0.5]))
    tensor([[0.7500, 0.2500],
            [0.5000, 0.5000]])
    """
    p, q = _rows(p=p, q=q)
    t = _along(t, p, q)
    return (1 - t) * p + t * q


class Metric:
    r"""The Riemannian metric that a regulariser puts on the face of p.

    .. math:: \langle v, w\rangle_G = \tau \sum_{j \in S} \frac{v_j w_j}{u_j}, \qquad
              G = \tau\,\mathrm{diag}(1/u) = \tau\,\nabla^2\Omega(p),

    for tangent vectors v, w, with u the regulariser's `response`: :math:`p^{2-\alpha}` for the
    Tsallis family. Its inverse, from covectors to tangent vectors, is the Jacobian J of the map
    from raw scores to weights.

    ``G @ v`` and ``G.flat(v)`` lower a tangent vector to a covector, ``G.sharp(g)`` raises a
    covector to a tangent vector: the gradient in the metric G of a loss whose partial derivatives
    in p are g. That is J g, which is also its gradient in the raw scores.

    Parameters
    ----------
    p : Tensor, shape (..., n)
        Weights, as the regulariser returned them.
    regularizer : Regularizer, optional
    tau : float or Tensor
        Temperature; a tensor broadcasts with the last dimension kept.

    Raises
    ------
    ValueError
        For vectors that leave the face: not 0 where p is 0.

    Examples
    --------
    >>> G = Metric(torch.tensor([0.64, 0.36, 0.0]), Tsallis(1.5))
    >>> v = torch.tensor([1.0, -1.0, 0.0])
    >>> G @ v
    tensor([ 1.2500, -1.6667,  0.0000])
    >>> G.sharp(G @ v)
    tensor([ 1.0000, -1.0000,  0.0000])
    >>> G.inner(v, v)
    tensor(2.9167)
    """

    def __init__(self, p, regularizer=None, tau=1.0):
        (p,) = _rows(p=p)
        self._u = member(regularizer).response(p)
        self._tau = temperature_rows(tau, p, -1)

    def flat(self, v):
        """The covector G v, shape (..., n), 0 off the support."""
        u, v = _rows(p=self._u, v=v)
        _stays(v, u)
        return self._tau * v / torch.where(u == 0, 1.0, u)

    __matmul__ = flat

    def sharp(self, g):
        """The tangent vector J g, shape (..., n)."""
        u, g = _rows(p=self._u, g=g)
        return Jacobian(u, self._tau) @ torch.where(u == 0, 0.0, g)

    def inner(self, v, w):
        """The inner product of tangent vectors, shape (...)."""
        v, w = _rows(v=v, w=w)
        return (self.flat(v) * w).sum(-1)

    def norm(self, v):
        """The length of a tangent vector, shape (...)."""
        return _sqrt(self.inner(v, v))


def _stays(v, u):
    """Raise `ValueError` unless v is 0 wherever u is."""
    inside = (v == 0) | (u != 0)
    if _known_false(inside):
        value = torch.broadcast_to(v, inside.shape)[~inside][0].item()
        raise ValueError(f"a vector leaves the face: {value} on a key of weight 0")


def embedding(p, regularizer=None, tau=1.0):
    r"""The isometry from the simplex with the regulariser's metric into flat space.

    .. math:: y_j = \sqrt\tau \int_0^{p_j} \frac{dq}{\sqrt{u(q)}}; \qquad
              y = \frac{2\sqrt\tau}{\alpha}\, p^{\alpha/2}

    for the Tsallis family, whose simplex becomes the part :math:`y \ge 0` of the sphere of the
    norm :math:`\ell_{2/\alpha}` with radius :math:`2\sqrt\tau/\alpha`: round for Shannon, the flat
    simplex itself for alpha = 2.

    Parameters
    ----------
    p : Tensor, shape (..., n)
        Weights.
    regularizer : Regularizer, optional
        One that only defines a penalty is integrated with 48 nodes.
    tau : float or Tensor
        Temperature; a tensor broadcasts with the last dimension kept.

    Returns
    -------
    Tensor, shape (..., n)

    Examples
    --------
    >>> embedding(torch.tensor([0.64, 0.36, 0.0]))
    tensor([1.6000, 1.2000, 0.0000])
    """
    regularizer = member(regularizer)
    (p,) = _rows(p=p)
    root_tau = temperature_rows(tau, p, -1) ** 0.5
    if isinstance(regularizer, Shannon):
        return root_tau * 2 * _sqrt(p)
    if isinstance(regularizer, Tsallis):
        half = regularizer._order(p) / 2
        return root_tau * torch.where(p == 0, 0.0, torch.where(p == 0, 1.0, p) ** half) / half
    nodes, weights = np.polynomial.legendre.leggauss(48)
    w = torch.as_tensor((nodes + 1) / 2, dtype=p.dtype, device=p.device)
    share = torch.as_tensor(weights * 2, dtype=p.dtype, device=p.device) * w**3
    # q = p w^4 crowds the nodes at 0, where 1/u may be infinite.
    u = regularizer.response(p.unsqueeze(-1) * w**4)
    return root_tau * p * (share / torch.where(u == 0, 1.0, u).sqrt()).sum(-1)


def curve_length(points, regularizer=None, tau=1.0):
    r"""The length of a path of weights in the regulariser's metric.

    The sum of the straight distances between consecutive points of its `embedding`: never more
    than the length of the curve through the points, and short by a part that goes with the square
    of their spacing.

    Parameters
    ----------
    points : Tensor, shape (m, ..., n)
        The path's points in order along the first dimension, as the geodesics return them.
    regularizer : Regularizer, optional
    tau : float or Tensor
        Temperature; a tensor broadcasts with the last dimension kept.

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    ValueError
        For points without a first dimension to follow.

    Examples
    --------
    >>> p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
    >>> path = m_geodesic(p, q, torch.linspace(0, 1, 101))
    >>> curve_length(path)
    tensor(0.7411)
    """
    y = embedding(points, regularizer, tau)
    if y.dim() < 2:
        raise ValueError(f"points must have shape (m, ..., n), got {tuple(points.shape)}")
    return _norm(y[1:] - y[:-1]).sum(0)


def sectional_curvature(p, x, y, regularizer=None, tau=1.0):
    r"""How the simplex with the regulariser's metric bends at p, in the plane of x and y.

    With :math:`\xi = x/\sqrt u`, :math:`\eta = y/\sqrt u` and :math:`A_{ij} = \xi_i\eta_j -
    \xi_j\eta_i`,

    .. math:: K = \frac{1}{4\tau \sum_k u_k} \;
              \frac{\sum_{i<j} u'_i u'_j\, A_{ij}^2}{\sum_{i<j} A_{ij}^2},

    u' being the derivative of the response: :math:`(2-\alpha)\, p^{1-\alpha}` for the Tsallis
    family. So K is 1/(4 tau) everywhere for Shannon, 0 for alpha = 2, and positive for every
    other alpha, not constant.

    Parameters
    ----------
    p : Tensor, shape (..., n)
        Weights.
    x, y : Tensor, shape (..., n)
        Two tangent vectors of the face of p, not parallel: at least three keys of positive weight.
    regularizer : Regularizer, optional
    tau : float or Tensor
        Temperature; a tensor broadcasts with the last dimension kept.

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    ValueError
        For vectors that leave the face, don't sum to 0, or span no plane.

    Notes
    -----
    The `embedding` makes the face a hypersurface of flat space, and this is Gauss's equation for
    it (do Carmo, "Riemannian Geometry", 1992, chapter 6). Memory grows with n squared.

    Examples
    --------
    >>> p = torch.tensor([0.5, 0.3, 0.2])
    >>> x, y = torch.tensor([1.0, -1.0, 0.0]), torch.tensor([1.0, 0.0, -1.0])
    >>> sectional_curvature(p, x, y), sectional_curvature(p, x, y, Tsallis(1.5))
    (tensor(0.2500), tensor(0.1246))
    """
    regularizer = member(regularizer)
    p, x, y = _rows(p=p, x=x, y=y)
    tau = temperature_rows(tau, p, -1)
    u = regularizer.response(p)
    slope = torch.func.grad(lambda q: regularizer.response(q).sum())(p)
    slope = torch.where(u == 0, 0.0, slope)
    xi, eta = _unit(x, u, "x"), _unit(y, u, "y")
    A2 = (xi[..., :, None] * eta[..., None, :] - xi[..., None, :] * eta[..., :, None]) ** 2
    area = A2.sum((-2, -1))
    plane = area > torch.finfo(area.dtype).eps
    if _known_false(plane):
        raise ValueError("x and y span no plane: they are parallel")
    bend = (slope[..., :, None] * slope[..., None, :] * A2).sum((-2, -1))
    tau = tau.squeeze(-1) if isinstance(tau, torch.Tensor) else tau
    return bend / area / (4 * tau * u.sum(-1))


def _unit(x, u, name):
    """x / sqrt u scaled to length 1, once x is known to be tangent to the face of u."""
    _stays(x, u)
    total = x.sum(-1)
    # Loose, for a difference of two close points on the simplex must pass, and a utility must not.
    tangent = total.abs() <= torch.finfo(x.dtype).eps ** 0.25 * x.abs().sum(-1)
    if _known_false(tangent):
        raise ValueError(f"{name} must sum to 0, got the sum {total[~tangent][0].item()}")
    xi = x / torch.where(u == 0, 1.0, u).sqrt()
    length = _norm(xi).unsqueeze(-1)
    return xi / torch.where(length == 0, 1.0, length)


class InformationProjection(NamedTuple):
    """The projected `weights` (..., n), and the temperature `tau` (...) that produces them."""

    weights: torch.Tensor
    tau: torch.Tensor


def information_projection(prior, s, level):
    r"""The distribution closest to the prior among those with a given mean score.

    .. math:: \min_p \; \mathrm{KL}(p\,\|\,\pi) \quad \text{subject to} \quad
              \langle s, p\rangle = \ell,

    whose only solution is :math:`p_j \propto \pi_j e^{s_j/\tau}`: softmax with a prior, at the
    temperature that meets the level.

    Parameters
    ----------
    prior : Tensor, shape (..., n)
        Weights; a key of weight 0 stays without weight.
    s : Tensor, shape (..., n)
        Raw scores.
    level : float or Tensor, shape (...)
        The mean score, strictly between the least and the largest score of the prior's support.

    Returns
    -------
    InformationProjection
        tau is positive above the prior's own mean score, negative below, and infinite, or too
        large to matter, at it. Differentiable in all arguments.

    Raises
    ------
    ValueError
        For a level out of reach.

    Notes
    -----
    Csiszar, "I-divergence geometry of probability distributions and minimization problems",
    Annals of Probability 3 (1975).

    Examples
    --------
    >>> uniform = torch.full((3,), 1 / 3)
    >>> information_projection(uniform, torch.tensor([4.0, 2.0, 0.0]), 3.1504)
    InformationProjection(weights=tensor([0.6652, 0.2447, 0.0900]), tau=tensor(2.0000))
    """
    prior, s = torch.broadcast_tensors(*_rows(prior=prior, s=s))
    on = prior != 0
    level = torch.as_tensor(level, dtype=s.dtype, device=s.device)
    high = torch.where(on, s, -math.inf).amax(-1)
    low = torch.where(on, s, math.inf).amin(-1)
    reached = (low < level) & (level < high)
    if _known_false(reached):
        wrong = torch.broadcast_to(level, reached.shape)[~reached][0].item()
        at = [torch.broadcast_to(x, reached.shape)[~reached][0].item() for x in (low, high)]
        raise ValueError(f"level must be strictly between {at[0]} and {at[1]}, got {wrong}")
    width = (high - low).detach()
    gap = torch.where(on, s - level.unsqueeze(-1), 0.0) / width.unsqueeze(-1)
    log_prior = dual_coordinates(prior)

    def weights(beta):
        return gibbs(log_prior + beta.unsqueeze(-1) * gap)[0]

    def excess(beta):
        return (weights(beta) * gap).sum(-1)

    grid = tuple(2.0**k for k in range(-40, 63))
    beta = _root(lambda b: -excess(b), gap.detach()[..., 0], tuple(-b for b in grid[::-1]) + grid)
    for _ in range(2):
        p = weights(beta)
        beta = beta - (p * gap).sum(-1) / (p * gap**2).sum(-1)
    return InformationProjection(weights(beta), width / beta)
