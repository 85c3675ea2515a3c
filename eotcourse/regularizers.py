"""Regularisers of the problem on the simplex, each with its maximiser, value and Jacobian."""

import math

import numpy as np
import torch
from torch import nn

from .priors import Prior, bias_of_rows, broadcasts_to, keep_parameter
from .simplex import (
    anchored,
    exp_alpha,
    gibbs,
    log_alpha,
    order_rows,
    response,
    scaled_rows,
    temperature_rows,
    to_last,
    tsallis,
    working,
)


class Jacobian:
    r"""The derivative of the maximiser: the second derivative of the value.

    .. math:: J v = \frac{u}{\tau} \Bigl(v -
              \frac{\langle u, v\rangle}{\langle u, 1\rangle}\Bigr),

    with u the regulariser's `response`; products of vectors are entry by entry. It is applied
    without being formed; `dense` forms it. `J @ v` works on the last dimension of `v`, which
    broadcasts against the weights. A row without any weight has J = 0.

    Examples
    --------
    >>> J = Shannon().jacobian(torch.tensor([0.5, 0.5]), tau=2.0)
    >>> J @ torch.tensor([1.0, 0.0])
    tensor([ 0.1250, -0.1250])
    >>> J.dense()
    tensor([[ 0.1250, -0.1250],
            [-0.1250,  0.1250]])
    """

    def __init__(self, u, tau):
        self._u = u
        self._tau = tau

    def __matmul__(self, v):
        return anchored(self._u, v)[0] / self._tau

    def dense(self):
        """The matrix, shape (..., n, n)."""
        total = self._u.sum(-1, keepdim=True)
        share = self._u / torch.where(total == 0, 1.0, total)
        tau = self._tau.unsqueeze(-1) if isinstance(self._tau, torch.Tensor) else self._tau
        apart = ~torch.eye(share.shape[-1], dtype=torch.bool, device=share.device)
        others = torch.where(apart, self._u[..., None] * share[..., None, :], 0.0)
        # Every row sums to 0. The diagonal written as u (1 - share) would cancel.
        return (torch.diag_embed(others.sum(-1)) - others) / tau


_UNIT = tuple(2.0 ** (k / 2) for k in range(-120, 1))
_BOTH_SIDES = tuple(-(2.0**-k) for k in range(-40, 21)) + tuple(2.0**k for k in range(-20, 41))


_CHUNK = 1 << 18


def _root(f, like, grid, cost=1):
    """Roots of a decreasing function, entry by entry and without gradient.

    `f` takes points of shape (k, *like.shape), k of them at a time as bounds its memory, which
    grows with `cost` for every point. Starts from the two neighbours on `grid` and cuts into 16
    until float64 would need at most two steps of Newton's method.
    """
    column = (-1,) + (1,) * like.dim()
    at_once = max(1, _CHUNK // max(1, cost * like.numel()))

    def bracket(points):
        left = sum((f(some) > 0).sum(0, keepdim=True) for some in points.split(at_once))
        left = left.clamp(1, len(points) - 1)
        return points.gather(0, left - 1), points.gather(0, left)

    start = torch.tensor(grid, dtype=like.dtype, device=like.device).reshape(column)
    cuts = torch.linspace(0, 1, 17, dtype=like.dtype, device=like.device).reshape(column)
    low, high = bracket(start.expand((len(grid),) + tuple(like.shape)))
    for _ in range(6):
        low, high = bracket(low + (high - low) * cuts)
    return ((low + high) / 2).squeeze(0).detach()


def _slope(f, x):
    """The derivative of a function that acts entry by entry."""
    return torch.func.jvp(f, (x,), (torch.ones_like(x),))[1]


class Regularizer(nn.Module):
    r"""The problem every row of attention solves, for one choice of regulariser.

    .. math:: V(s) = \max_{p \in \Delta} \; \langle s, p\rangle - \tau\,\Omega(p), \qquad
              \Omega(p) = \Omega_0(p) - \langle p, b\rangle,

    with b the additive term of `prior` in scaled units. With the scaled scores
    :math:`\theta = s/\tau + b` it is the problem of :math:`\Omega_0` alone, at temperature 1.

    A subclass with :math:`\Omega_0(p) = \sum_j \varphi(p_j)`, phi strictly convex, says one of
    two things, and everything else is found from it by root finding and differentiation:

    - `penalty(p)`: :math:`\Omega_0(p)`, finite at p = 0, shape (...); or
    - `pointwise(gap)`: the weight of an entry with :math:`\theta_j - \zeta` = gap, where zeta is
      the row's soft maximum: increasing where it isn't 0, and able to reach every weight.

    For speed or accuracy it can also give, for rows of scaled scores (last dimension, float32 or
    float64),

    - `response(p)`: :math:`u_j = 1/\varphi''(p_j)`, 0 off the support;
    - `solve_threshold(theta)`: zeta, shape (...), differentiable, -inf for a row of -inf;
    - `solve(theta)` and `potential(theta)`: weights and zeta together, and the value.

    Speed: `pointwise` alone costs about 700 evaluations of it for every score, and
    `penalty` alone, with one search inside another, about 50 000 of its derivative. Memory stays
    a small multiple of what the scores take.

    No method of that level takes a temperature, so attention can't apply it twice.

    Parameters
    ----------
    prior : Prior, optional
        Its term is taken at query positions 0, 1, ... along the dimension before the reduced one
        (a single vector of scores is the row of query 0), and at key positions 0, 1, ...

    Raises
    ------
    TypeError
        For a prior of another type, and for a subclass that says neither of the two.

    Examples
    --------
    >>> class Quartic(Regularizer):
    ...     def penalty(self, p):
    ...         return (p**2 / 2 + p**4 / 4).sum(-1)
    >>> Quartic()(torch.tensor([1.0, 0.6, 0.0]))
    tensor([0.6135, 0.3865, 0.0000])
    """

    def __init__(self, prior=None):
        super().__init__()
        if not (self._defines("penalty") or self._defines("pointwise")):
            raise TypeError(f"{type(self).__name__} must define penalty or pointwise")
        if not (prior is None or isinstance(prior, Prior)):
            raise TypeError(
                f"prior must be a Prior, such as LogPrior(log_pi), got {type(prior).__name__}"
            )
        self.prior = prior

    def _defines(self, name):
        return getattr(type(self), name) is not getattr(Regularizer, name)

    def penalty(self, p):
        """The regulariser of each row of `p`, without prior or temperature.

        The default integrates the inverse of `pointwise` from 0 to p.
        """
        nodes, weights = np.polynomial.legendre.leggauss(48)
        w = torch.as_tensor((nodes + 1) / 2, dtype=p.dtype, device=p.device)
        share = torch.as_tensor(weights * 1.5, dtype=p.dtype, device=p.device) * w**2
        column = (-1,) + (1,) * p.dim()
        # q = p w^3 crowds the nodes at 0, where the inverse may be a logarithm.
        inverse = self._gap_at(torch.where(p == 0, 1.0, p) * (w**3).reshape(column))
        return torch.where(p == 0, 0.0, p * (share.reshape(column) * inverse).sum(0)).sum(-1)

    def response(self, p):
        """How much each weight answers to its own scaled score, before centring."""
        on = p != 0
        q = torch.where(on, p, 0.5)
        if self._defines("pointwise"):
            slope = _slope(self.pointwise, self._gap_at(q))
        else:
            slope = 1 / _slope(self._marginal, q)
        return torch.where(on, slope, 0.0)

    def solve_threshold(self, theta):
        """The soft maximum of each row of scaled scores."""
        if theta.shape[-1] == 0:
            return theta.sum(-1) - math.inf
        top = theta.detach().amax(-1)
        empty = top == -math.inf
        top = torch.where(empty, 0.0, top)
        rows = torch.where(empty.unsqueeze(-1), 0.0, theta - top.unsqueeze(-1))

        def excess(zeta):
            return self._weights(rows.detach(), zeta).sum(-1) - 1

        zeta = _root(excess, top, _BOTH_SIDES, rows.shape[-1])
        # The second step makes the second derivative right.
        for _ in range(2):
            p = self._weights(rows, zeta)
            zeta = zeta + (p.sum(-1) - 1) / self.response(p).sum(-1)
        return torch.where(empty, -math.inf, zeta + top)

    def pointwise(self, gap):
        """The weight of an entry, from its scaled score minus the row's soft maximum.

        The default inverts the derivative of `penalty`.
        """
        target, one = gap.detach(), torch.ones_like(gap)
        p = _root(lambda p: target - self._marginal(p), target, _UNIT)
        on = target > self._marginal(torch.full_like(target, _UNIT[0]))
        top, slope = self._marginal(one), self.response(one)
        # No weight exceeds 1, and above 1 the penalty need not be convex or defined: the search
        # for the threshold only needs a function that goes on increasing there.
        beyond = target > top
        inside = on & ~beyond
        p = torch.where(inside, p, 0.5)
        for _ in range(2):
            p = p + (torch.where(inside, gap, 0.0) - self._marginal(p)) * self.response(p)
        p = torch.where(beyond, 1 + (gap - top) * torch.where(slope.isfinite(), slope, 1.0), p)
        return torch.where(on | target.isnan(), torch.where(on, p, target), 0.0)

    def _marginal(self, p):
        """The derivative of the penalty, entry by entry."""
        return torch.func.grad(lambda q: self.penalty(q).sum())(p)

    def _gap_at(self, p):
        """The inverse of `pointwise`, differentiable."""
        target = p.detach()
        gap = _root(lambda gap: target - self.pointwise(gap), target, _BOTH_SIDES)
        for _ in range(2):
            gap = gap + (p - self.pointwise(gap)) / _slope(self.pointwise, gap)
        return gap

    def solve(self, theta):
        """The maximiser for rows of scaled scores, and the threshold: shapes (..., n), (...)."""
        threshold = self.solve_threshold(theta)
        return self._weights(theta, threshold), threshold

    def potential(self, theta):
        """The maximum of <theta, p> - Omega_0(p), shape (...); -inf for a row of -inf."""
        p, threshold = self.solve(theta)
        gain = (p * torch.where(p == 0, 0.0, theta)).sum(-1) - self.penalty(p)
        return torch.where(threshold == -math.inf, -math.inf, gain)

    def omega(self, p, dim=-1):
        r"""The regulariser :math:`\Omega(p)`, prior included, temperature not.

        Parameters
        ----------
        p : Tensor, shape (..., n, ...)
            Weights (not checked); 0 log 0 = 0, and the derivative in a weight of 0 is 0.
        dim : int
            Dimension of the simplex.

        Returns
        -------
        Tensor, shape of `p` without `dim`
            float32 for the half precisions. +inf where a weight sits on an excluded key.

        Examples
        --------
        >>> Shannon().omega(torch.tensor([0.5, 0.5, 0.0]))
        tensor(-0.6931)
        """
        p = to_last(working(p, "p"), dim)
        value = self.penalty(p)
        if self.prior is not None:
            bias = torch.where(p == 0, 0.0, bias_of_rows(self.prior, p))
            value = value - (p * bias).sum(-1)
        return value

    def forward(self, s, tau=1.0, dim=-1):
        r"""The maximiser :math:`p^*(s)`.

        Parameters
        ----------
        s : Tensor, shape (..., n, ...)
            Raw scores.
        tau : float or Tensor
            Temperature, positive and finite; a tensor broadcasts with `dim` kept.
        dim : int
            Dimension of the simplex.

        Returns
        -------
        Tensor
            Weights of the shape and dtype of `s`; 0 throughout a row that may attend to nothing.

        Raises
        ------
        TypeError, ValueError
            As `eotcourse.softmax`; also if the prior doesn't fit the shape of the scores.

        Examples
        --------
        >>> from eotcourse import LogPrior
        >>> prior = LogPrior(torch.tensor([0.7, 0.2, 0.1]).log())
        >>> Shannon(prior)(torch.zeros(3))
        tensor([0.7000, 0.2000, 0.1000])
        """
        theta, _, _ = self._scaled(s, tau, dim)
        return self.solve(theta)[0].movedim(-1, dim).to(s.dtype)

    def conjugate(self, s, tau=1.0, dim=-1):
        r"""The value :math:`V(s)` of the problem; its gradient in `s` is the maximiser.

        Arguments and errors are those of `forward`.

        Returns
        -------
        Tensor, shape of `s` without `dim`
            Raw units (float32 for the half precisions); -inf, with gradient 0, for a row that
            may attend to nothing.

        Examples
        --------
        >>> Shannon().conjugate(torch.tensor([4.0, 2.0, 0.0]), tau=2.0)
        tensor(4.8152)
        """
        theta, top, tau = self._scaled(s, tau, dim)
        value = self.potential(theta)
        empty = value == -math.inf
        return torch.where(empty, value, top + tau * torch.where(empty, 0.0, value))

    def threshold(self, s, tau=1.0, dim=-1):
        r"""The soft maximum :math:`\zeta` of each row, in scaled units.

        Arguments and errors are those of `forward`.

        Returns
        -------
        Tensor, shape of `s` without `dim`
            float32 for the half precisions; -inf, with gradient 0, for a row that may attend to
            nothing. For `Shannon` it is the log-sum-exp of s / tau.

        Examples
        --------
        >>> Shannon().threshold(torch.tensor([4.0, 2.0, 0.0]), tau=2.0)
        tensor(2.4076)
        """
        theta, top, tau = self._scaled(s, tau, dim)
        value = self.solve(theta)[1]
        empty = value == -math.inf
        return torch.where(empty, value, top / tau + torch.where(empty, 0.0, value))

    def weights_at(self, s, threshold, tau=1.0, dim=-1):
        """The weights, entry by entry, when the threshold of the row is known.

        Parameters
        ----------
        s, tau, dim
            As for `forward`.
        threshold : Tensor, shape of `s` without `dim`
            As returned by `threshold`.

        Returns
        -------
        Tensor
            Weights of the shape and dtype of `s`.

        Examples
        --------
        >>> s = torch.tensor([4.0, 2.0, 0.0])
        >>> Shannon().weights_at(s, Shannon().threshold(s, tau=2.0), tau=2.0)
        tensor([0.6652, 0.2447, 0.0900])
        """
        theta, top, tau = self._scaled(s, tau, dim)
        empty = threshold == -math.inf
        relative = torch.where(empty, threshold, threshold - top / tau)
        return self._weights(theta, relative).movedim(-1, dim).to(s.dtype)

    def jacobian(self, p, tau=1.0):
        """The derivative of the maximiser in the raw scores, at the maximiser `p`.

        Parameters
        ----------
        p : Tensor, shape (..., n)
            Weights, as returned by `forward`.
        tau : float or Tensor
            Temperature; a tensor broadcasts with the last dimension kept.

        Returns
        -------
        Jacobian
            ``J @ v`` applies it to `v` of shape (..., n), ``J.dense()`` forms the matrix.

        Examples
        --------
        >>> Shannon().jacobian(torch.tensor([0.9, 0.1])) @ torch.tensor([1.0, 0.0])
        tensor([ 0.0900, -0.0900])
        """
        p = to_last(working(p, "p"), -1)
        return Jacobian(self.response(p), temperature_rows(tau, p, -1))

    def _weights(self, theta, threshold):
        threshold = threshold.unsqueeze(-1)
        excluded = (theta == -math.inf) & ~torch.isnan(threshold)
        gap = torch.where(excluded, 0.0, theta) - torch.where(excluded, 0.0, threshold)
        return torch.where(excluded, 0.0, self.pointwise(gap))

    def _scaled(self, s, tau, dim):
        """Scaled scores up to a shift of the row, that shift in raw units, and tau.

        The shift and tau have the shape of a row's statistics, so that they combine with them.
        """
        rows = to_last(working(s), dim)
        tau = temperature_rows(tau, rows, dim)
        if self.prior is None:
            theta, top = scaled_rows(rows, tau)
        else:
            bias = bias_of_rows(self.prior, rows)
            theta, top = scaled_rows(torch.where(bias == -math.inf, -math.inf, rows), tau)
            theta = theta + bias
        return theta, top.squeeze(-1), tau.squeeze(-1) if isinstance(tau, torch.Tensor) else tau


class Shannon(Regularizer):
    r"""Negative entropy: :math:`\Omega_0(p) = \sum_j p_j \log p_j`, whose maximiser is softmax.

    With a prior, :math:`\Omega(p) = \mathrm{KL}(p\,\|\,\pi)` up to the constant log of the prior's
    mass, and :math:`p_j \propto \pi_j e^{s_j/\tau}`. The value is
    :math:`V(s) = \tau \log \sum_j \pi_j e^{s_j/\tau}`.

    Parameters
    ----------
    prior : Prior, optional
        See `Regularizer`.

    Notes
    -----
    Jaynes (1957); Niculae and Blondel, "A regularized framework for sparse and structured neural
    attention", NIPS 2017, for attention as a regularised argmax.

    Examples
    --------
    >>> s = torch.tensor([4.0, 2.0, 0.0])
    >>> Shannon()(s, tau=2.0)
    tensor([0.6652, 0.2447, 0.0900])
    """

    def penalty(self, p):
        return (p * torch.where(p == 0, 1.0, p).log()).sum(-1)

    def response(self, p):
        return p

    def solve_threshold(self, theta):
        return gibbs(theta)[1]

    def pointwise(self, gap):
        return gap.exp()

    def solve(self, theta):
        return gibbs(theta)

    def potential(self, theta):
        return gibbs(theta)[1]


class Tsallis(Regularizer):
    r"""Negative Tsallis entropy, from Shannon (alpha = 1) over sparsemax (2) to argmax.

    .. math:: \Omega_0(p) = \frac{\sum_j p_j^\alpha - 1}{\alpha(\alpha-1)}
              = \frac{1}{\alpha} \sum_j p_j \log_\alpha p_j, \qquad
              \log_\alpha x = \frac{x^{\alpha-1} - 1}{\alpha - 1}

    (the second form, which is the one computed, also says what alpha = 1 means). The maximiser is
    `eotcourse.entmax`, and with zeta its soft maximum the value is
    :math:`V(s) = \tau\,(\zeta + (\sum_j p_j^\alpha - 1)/\alpha)`.

    Parameters
    ----------
    alpha : float, Tensor or nn.Parameter
        At least 1. A tensor of shape () or (1,) holds for all rows; of shape (heads,) for the
        heads of scores (..., heads, q, k), as in attention; of more dimensions, it broadcasts
        against the scores with the reduced dimension moved last and kept. A parameter is trained;
        one that can't leave its range is in `LearnableTsallis`.
    prior : Prior, optional
        See `Regularizer`: sparse ALiBi is ``Tsallis(1.5, ALiBi(slopes))``.

    Raises
    ------
    ValueError
        If alpha is below 1 or doesn't fit the scores, when used.

    Notes
    -----
    Tsallis, "Possible generalization of Boltzmann-Gibbs statistics", Journal of Statistical
    Physics 52 (1988); Blondel, Martins and Niculae, "Learning with Fenchel-Young losses", JMLR 21
    (2020). `weights_at` loses digits of small weights in float32 as alpha grows: the gap to zeta
    then says little about them.

    Examples
    --------
    >>> s = torch.tensor([1.0, 0.5, 0.0])
    >>> Tsallis(1.5)(s)
    tensor([0.6242, 0.2917, 0.0841])
    >>> Tsallis(2.0).conjugate(s)
    tensor(1.0625)
    """

    def __init__(self, alpha, prior=None):
        super().__init__(prior)
        if isinstance(alpha, torch.Tensor):
            keep_parameter(self, "alpha", alpha)
        else:
            self.alpha = alpha

    def _order(self, rows):
        """alpha, checked and shaped to broadcast with these rows of scores."""
        alpha = self.alpha
        if isinstance(alpha, torch.Tensor):
            if alpha.numel() == 1:
                alpha = alpha.reshape(())
            elif alpha.dim() == 1:
                alpha = alpha[:, None, None]
            if not broadcasts_to(alpha.shape, (*rows.shape[:-1], 1)):
                raise ValueError(
                    f"alpha of shape {tuple(self.alpha.shape)} doesn't fit scores of shape "
                    f"{tuple(rows.shape)}"
                )
        return order_rows(alpha, rows, -1)

    def penalty(self, p):
        alpha = self._order(p)
        log = log_alpha(torch.where(p == 0, 1.0, p), alpha)
        return (p * log / alpha).sum(-1)

    def response(self, p):
        return response(p, self._order(p))

    def pointwise(self, gap):
        return exp_alpha(gap, self._order(gap))

    def solve(self, theta):
        return tsallis(theta, self._order(theta))

    def solve_threshold(self, theta):
        return self.solve(theta)[1]

    def potential(self, theta):
        alpha = self._order(theta)
        p, zeta = tsallis(theta, alpha)
        power = torch.where(p == 0, 0.0, torch.where(p == 0, 1.0, p) ** alpha)
        # Written with zeta, the gradient needs no cancellation: it is p to the last digits.
        order = alpha.squeeze(-1) if isinstance(alpha, torch.Tensor) else alpha
        gain = zeta + (power.sum(-1) - 1) / order
        return torch.where(zeta == -math.inf, zeta, gain)

    def forward(self, s, tau=1.0, dim=-1):
        if self.prior is not None:
            return super().forward(s, tau, dim)
        # The scores themselves, not their multiples, are enough to see which entries matter.
        rows = to_last(working(s), dim)
        p, _ = tsallis(rows, self._order(rows), temperature_rows(tau, rows, dim))
        return p.movedim(-1, dim).to(s.dtype)


class LearnableTsallis(Tsallis):
    r"""Tsallis with a trained alpha per head that can't leave [1, alpha_max].

    .. math:: \alpha_h = 1 + (\alpha_{\max} - 1)\,\sigma(x_h), \qquad
              x_h \text{ the parameter } \texttt{logit}.

    Parameters
    ----------
    num_heads : int
        At least 1. With one head alpha holds for all rows.
    alpha : float
        Value at the start, strictly between 1 and `alpha_max`.
    alpha_max : float
        Largest value.
    prior : Prior, optional
        See `Regularizer`.

    Raises
    ------
    ValueError
        For values out of range, naming them.

    Notes
    -----
    Correia, Niculae and Martins, "Adaptively sparse transformers", EMNLP 2019.

    Examples
    --------
    >>> LearnableTsallis(2, alpha=1.25).alpha
    tensor([1.2500, 1.2500], grad_fn=<ClampBackward1>)
    """

    def __init__(self, num_heads, alpha=1.5, alpha_max=2.0, prior=None):
        Regularizer.__init__(self, prior)
        if num_heads < 1:
            raise ValueError(f"num_heads must be at least 1, got {num_heads}")
        if not 1 < alpha < alpha_max < math.inf:
            raise ValueError(f"1 < alpha < alpha_max must hold, got {alpha} and {alpha_max}")
        self.alpha_max = alpha_max
        share = (alpha - 1) / (alpha_max - 1)
        self.logit = nn.Parameter(torch.full((num_heads,), math.log(share / (1 - share))))

    @property
    def alpha(self):
        """The orders, shape (num_heads,)."""
        alpha = 1 + (self.alpha_max - 1) * self.logit.sigmoid()
        return alpha.clamp(1, self.alpha_max)  # rounding can exceed the bound by an ulp


_SHANNON = Shannon()


def member(regularizer):
    """The regulariser that an argument means: `Shannon` for None, `TypeError` for anything else."""
    if regularizer is None:
        return _SHANNON
    if not isinstance(regularizer, Regularizer):
        raise TypeError(f"regularizer must be a Regularizer, got {type(regularizer).__name__}")
    return regularizer
