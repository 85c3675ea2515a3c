"""Regularisers of the problem on the simplex, each with its maximiser, value and Jacobian."""

import abc
import math

import torch
from torch import nn

from .priors import bias_of_rows
from .simplex import gibbs, scaled_rows, temperature_rows, to_last, working


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
        total = u.sum(-1, keepdim=True)
        self._u = u
        self._share = u / torch.where(total == 0, 1.0, total)
        self._tau = tau

    def __matmul__(self, v):
        centred = v - (self._share * v).sum(-1, keepdim=True)
        return self._u * centred / self._tau

    def dense(self):
        """The matrix, shape (..., n, n)."""
        tau = self._tau.unsqueeze(-1) if isinstance(self._tau, torch.Tensor) else self._tau
        return (torch.diag_embed(self._u) - self._u[..., None] * self._share[..., None, :]) / tau


class Regularizer(nn.Module, abc.ABC):
    r"""The problem every row of attention solves, for one choice of regulariser.

    .. math:: V(s) = \max_{p \in \Delta} \; \langle s, p\rangle - \tau\,\Omega(p), \qquad
              \Omega(p) = \Omega_0(p) - \langle p, b\rangle,

    with b the additive term of `prior` in scaled units. With the scaled scores
    :math:`\theta = s/\tau + b` it is the problem of :math:`\Omega_0` alone, at temperature 1, so a
    subclass says four things about rows of scaled scores (last dimension, float32 or float64):

    - `penalty(p)`: :math:`\Omega_0(p)`, finite at p = 0, shape (...);
    - `response(p)`: :math:`u_j = 1/\varphi''(p_j)` when :math:`\Omega_0 = \sum_j \varphi(p_j)`,
      and 0 off the support;
    - `solve_threshold(theta)`: the soft maximum :math:`\zeta` of each row, shape (...),
      differentiable, -inf for a row that is -inf throughout;
    - `pointwise(gap)`: the weight of an entry with :math:`\theta_j - \zeta` = gap.

    `solve` and `potential` follow from these; a subclass overrides them when it has something
    more accurate. No method of that level takes a temperature, so attention can't apply it twice.

    Parameters
    ----------
    prior : Prior, optional
        Its term is taken at query positions 0, 1, ... along the dimension before the reduced one
        (a single vector of scores is the row of query 0), and at key positions 0, 1, ...
    """

    def __init__(self, prior=None):
        super().__init__()
        self.prior = prior

    @abc.abstractmethod
    def penalty(self, p):
        """The regulariser of each row of `p`, without prior or temperature."""

    @abc.abstractmethod
    def response(self, p):
        """How much each weight answers to its own scaled score, before centring."""

    @abc.abstractmethod
    def solve_threshold(self, theta):
        """The soft maximum of each row of scaled scores."""

    @abc.abstractmethod
    def pointwise(self, gap):
        """The weight of an entry, from its scaled score minus the row's soft maximum."""

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
        gap = torch.where(excluded, -math.inf, theta) - torch.where(excluded, 0.0, threshold)
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
