r"""The backward pass of attention read as an advantage, and the estimators it is compared with.

One row of attention has weights p over its keys, an output :math:`c = \sum_j p_j v_j` and an
upstream gradient :math:`g_c = \partial L/\partial c`. The marginal utility of key j is
:math:`a_j = -\partial L/\partial p_j = -\langle g_c, v_j\rangle`, and with u the `response` of the
regulariser (u = p for softmax)

.. math:: \frac{\partial L}{\partial s_j} = -\frac{u_j}{\tau} (a_j - \bar a), \qquad
          \bar a = \frac{\langle u, a\rangle}{\langle u, 1\rangle}.

This is the exact policy gradient of a one-step bandit with rewards a, held fixed; `reinforce` is
the estimator that samples it.

Everywhere the last dimension of `utility` and `p` runs over the n keys and leading dimensions
broadcast; `tau` divides raw scores, and as a tensor it broadcasts with the last dimension kept;
`regularizer=None` is `Shannon()`. Weights are as the regulariser returned them (not checked). A
weight of 0 keeps its key out of every average, whatever its utility; averages over a row without
any weight are 0. The half precisions are computed, and returned, in float32. Everything is
differentiable and runs on any device.

Errors: `TypeError` for tensors that aren't floating point, `ValueError` for shapes that don't fit
and for a temperature that isn't positive and finite, naming shape or value.
"""

import math
import numbers

import torch
from torch.nn import functional as F

from .priors import broadcasts_to
from .regularizers import member
from .simplex import _known_false, anchored, scaled_rows, temperature_rows, to_last, working

__all__ = [
    "advantage",
    "bandit_gradient",
    "baseline",
    "covariance",
    "estimator_variance",
    "flash_baseline",
    "group_advantages",
    "gumbel_max",
    "marginal_utility",
    "optimal_baseline",
    "query_jacobian",
    "reinforce",
    "score_gradient",
]

def marginal_utility(grad_output, value):
    r"""What an infinitesimal weight on each key would gain.

    .. math:: a_j = -\frac{\partial L}{\partial p_j} = -\langle g_c, v_j\rangle

    Only differences within a row mean something: weight is moved, never added.

    Parameters
    ----------
    grad_output : Tensor, shape (..., L, Ev)
        Gradient of the loss in the output of attention.
    value : Tensor, shape (..., S, Ev)
        With grouped heads, repeated to the heads of the query.

    Returns
    -------
    Tensor, shape (..., L, S)

    Notes
    -----
    Agarwal, Dalal and Misra, "Gradient dynamics of attention", arXiv:2512.22473 (2025), write the
    backward pass with these numbers, under the opposite sign.

    Examples
    --------
    >>> marginal_utility(torch.tensor([[1.0, 0.0]]), torch.tensor([[-1.0, 0.0], [2.0, 5.0]]))
    tensor([[ 1., -2.]])
    """
    g, v = _fitting(2, grad_output=grad_output, value=value)
    return -(g @ v.mT)


def baseline(utility, p, regularizer=None):
    r"""The average utility against which every key is held.

    .. math:: \bar a = \frac{\langle u, a\rangle}{\langle u, 1\rangle}, \qquad
              u_j = 1/\varphi''(p_j) \text{ on the support, else } 0

    For softmax u = p and it is the expected utility; for sparsemax the plain mean over the
    support. It isn't chosen: no other number makes the score gradients of a row sum to 0.

    Parameters
    ----------
    utility, p : Tensor, shape (..., n)
    regularizer : Regularizer, optional
        Whose `response` gives u.

    Returns
    -------
    Tensor, shape (...)
        0 in a row without any weight.

    Examples
    --------
    >>> from eotcourse import Tsallis
    >>> a, p = torch.tensor([1.0, 0.0, 9.0]), torch.tensor([0.75, 0.25, 0.0])
    >>> baseline(a, p), baseline(a, p, Tsallis(2.0))
    (tensor(0.7500), tensor(0.5000))
    """
    a, p = _fitting(1, utility=utility, p=p)
    return _average(a, member(regularizer).response(p))


def advantage(utility, p, regularizer=None):
    r"""How much better each key is than the average: :math:`a_j - \bar a`.

    Arguments and errors are those of `baseline`.

    Returns
    -------
    Tensor, shape (..., n)
        In attention it is :math:`-\langle g_c, v_j - \bar v\rangle` with the average taken under
        u. Keys of weight 0 have theirs too, though with u = 0 it moves nothing.

    Examples
    --------
    >>> advantage(torch.tensor([1.0, 0.0, 9.0]), torch.tensor([0.75, 0.25, 0.0]))
    tensor([ 0.2500, -0.7500,  8.2500])
    """
    return working(utility, "utility") - baseline(utility, p, regularizer).unsqueeze(-1)


def score_gradient(utility, p, tau=1.0, regularizer=None):
    r"""The backward pass of attention, in raw scores.

    .. math:: \frac{\partial L}{\partial s_j} = -\frac{u_j}{\tau} (a_j - \bar a)

    Descent therefore raises the scores of keys that are better than the average. In scaled scores
    s / tau there is no 1 / tau: pass tau = 1.

    Parameters
    ----------
    utility, p : Tensor, shape (..., n)
    tau : float or Tensor
    regularizer : Regularizer, optional

    Returns
    -------
    Tensor, shape (..., n)
        Every row sums to 0. For sparse members at the edge of a support cell, where the map has
        no derivative, that of the cell of p's own support.

    Examples
    --------
    >>> score_gradient(torch.tensor([1.0, 0.0]), torch.tensor([0.9, 0.1]))
    tensor([-0.0900,  0.0900])
    """
    a, p = _fitting(1, utility=utility, p=p)
    u = member(regularizer).response(p)
    a = torch.where(u == 0, 0.0, a)
    return -anchored(u, a)[0] / temperature_rows(tau, p, -1)


def flash_baseline(grad_output, output):
    r"""The baseline of softmax from the output alone, without weights or utilities.

    .. math:: \bar a = \sum_j p_j a_j = -\langle g_c, c\rangle

    Its negative is the row sum of dO * O that fused attention kernels compute once and save for
    their backward pass. It holds under dropout too, and for no other member of the family.

    Parameters
    ----------
    grad_output, output : Tensor, shape (..., L, Ev)

    Returns
    -------
    Tensor, shape (..., L)

    Notes
    -----
    Dao, Fu, Ermon, Rudra and Re, "FlashAttention: fast and memory-efficient exact attention with
    IO-awareness", NeurIPS 2022.

    Examples
    --------
    >>> flash_baseline(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 0.5]]))
    tensor([-4.])
    """
    g, c = _fitting(1, grad_output=grad_output, output=output)
    return -(g * c).sum(-1)


def covariance(p, x, y):
    r"""The covariance of two functions of the key, when the key is drawn from the weights.

    .. math:: \mathrm{Cov}_w(x, y) = \sum_j w_j (x_j - \bar x)(y_j - \bar y)^\top, \qquad
              w = p / \langle p, 1\rangle

    Parameters
    ----------
    p : Tensor, shape (..., L, n), or (n,) for a single row
        Weights of any positive sum.
    x : Tensor, shape (..., n, Ex)
    y : Tensor, shape (..., n, Ey)
        Shared by the L rows, as keys and values are. Not read at keys of weight 0.

    Returns
    -------
    Tensor, shape (..., L, Ex, Ey), or (..., Ex, Ey) for a single row
        0 in a row without any weight.

    Notes
    -----
    Centred before it is multiplied, so that large means cost no digits; for that it forms the
    centred x and y of every row, L n (Ex + Ey) numbers.

    Examples
    --------
    >>> x = torch.tensor([[1.0], [3.0]])
    >>> covariance(torch.tensor([0.5, 0.5]), x, 2 * x)
    tensor([[2.]])
    """
    return _covariance(p, x=x, y=y)


def query_jacobian(p, key, value, tau=1.0, regularizer=None):
    r"""How the output of attention answers to its query.

    .. math:: \frac{\partial c}{\partial q} = \frac{\langle u, 1\rangle}{\tau}\,
              \mathrm{Cov}_{u / \langle u, 1\rangle}(v, k), \qquad s_j = \langle q, k_j\rangle

    For softmax u = p and it is :math:`\mathrm{Cov}_p(v, k)/\tau`. The gradient in the query is its
    transpose applied to :math:`g_c`.

    Parameters
    ----------
    p : Tensor, shape (..., L, S), or (S,) for a single row
    key : Tensor, shape (..., S, E)
    value : Tensor, shape (..., S, Ev)
    tau : float or Tensor
    regularizer : Regularizer, optional

    Returns
    -------
    Tensor, shape (..., L, Ev, E), or (..., Ev, E) for a single row

    Examples
    --------
    >>> k, v = torch.tensor([[1.0], [-1.0]]), torch.eye(2)
    >>> query_jacobian(torch.tensor([0.5, 0.5]), k, v, tau=2.0)
    tensor([[ 0.2500],
            [-0.2500]])
    """
    p = to_last(working(p, "p"), -1)
    u = member(regularizer).response(p)
    gain = u.sum(-1, keepdim=True) / temperature_rows(tau, p, -1)
    return gain.unsqueeze(-1) * _covariance(u, value=value, key=key)


def bandit_gradient(reward, p, tau=1.0, regularizer=None):
    r"""The exact gradient of an expected reward in the raw scores of the policy.

    .. math:: \frac{\partial}{\partial s_j} \sum_k p_k(s)\, r_k = \frac{u_j}{\tau} (r_j - \bar r)

    The policy gradient of a one-step bandit summed over all actions, not sampled. With the
    utilities of soft attention as rewards it is minus `score_gradient`; hard attention, which
    draws one key J and pays :math:`L(v_J)`, has the rewards :math:`-L(v_j)` instead.

    Parameters
    ----------
    reward, p : Tensor, shape (..., n)
        The rewards don't depend on the scores.
    tau : float or Tensor
    regularizer : Regularizer, optional

    Returns
    -------
    Tensor, shape (..., n)

    Notes
    -----
    Sutton, McAllester, Singh and Mansour, "Policy gradient methods for reinforcement learning with
    function approximation", NIPS 1999. Over all actions: Allen et al., "Mean actor critic",
    arXiv:1709.00503 (2017). Hard attention: Xu et al., "Show, attend and tell", ICML 2015.

    Examples
    --------
    >>> bandit_gradient(torch.tensor([1.0, 0.0]), torch.tensor([0.9, 0.1]))
    tensor([ 0.0900, -0.0900])
    """
    return -score_gradient(reward, p, tau, regularizer)


def gumbel_max(s, tau=1.0, num_samples=1, *, generator=None):
    r"""Keys drawn from softmax, as the largest of perturbed scores.

    .. math:: J = \mathrm{argmax}_j \; s_j + \tau G_j \;\sim\; \mathrm{softmax}(s/\tau), \qquad
              G_j \text{ independent, standard Gumbel}

    Parameters
    ----------
    s : Tensor, shape (..., n)
        Raw scores. -inf excludes a key.
    tau : float or Tensor
    num_samples : int
        Independent draws for every row, at least 1.
    generator : torch.Generator, optional
        On the device of `s`; the global one by default.

    Returns
    -------
    Tensor of int64, shape (num_samples, ...)
        -1 for a row that may attend to nothing, or that holds a NaN or +inf.

    Raises
    ------
    TypeError
        Also if `num_samples` isn't an integer.
    ValueError
        Also if `num_samples` is below 1.

    Notes
    -----
    Papandreou and Yuille, "Perturb-and-MAP random fields", ICCV 2011.

    Examples
    --------
    >>> s = torch.tensor([1.0, 0.0, -torch.inf])
    >>> draws = gumbel_max(s, 0.5, 100_000, generator=torch.Generator().manual_seed(0))
    >>> (draws.bincount(minlength=3) / 100_000).round(decimals=2)
    tensor([0.8800, 0.1200, 0.0000])
    """
    if isinstance(num_samples, bool) or not isinstance(num_samples, numbers.Integral):
        raise TypeError(f"num_samples must be an integer, got {num_samples!r}")
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}")
    rows = to_last(working(s), -1)
    theta, _ = scaled_rows(rows, temperature_rows(tau, rows, -1))
    exponential = theta.new_empty((num_samples, *theta.shape)).exponential_(generator=generator)
    perturbed = theta - exponential.log()
    # One more entry, which never wins, so that a row without keys has a largest entry too.
    top, key = F.pad(perturbed, (0, 1), value=-math.inf).max(-1)
    return torch.where(top > -math.inf, key, -1)


def reinforce(utility, p, draws, tau=1.0, baseline="none"):
    r"""The score-function estimator of `bandit_gradient`, one estimate for every draw.

    .. math:: \hat g = (a_J - b)\, \nabla_s \log p_J = \frac{1}{\tau} (a_J - b)(e_J - p), \qquad
              J \sim p = \mathrm{softmax}(s/\tau)

    Unbiased when b doesn't depend on J: true for every choice here but "batch_mean".

    Parameters
    ----------
    utility, p : Tensor, shape (..., n)
        Rewards of the keys, and the softmax weights the draws came from.
    draws : Tensor of int64, shape (num_samples, ...)
        As from `gumbel_max`; -1 is no key.
    tau : float or Tensor
    baseline : str, float or Tensor, shape (...)
        - "none": b = 0;
        - "mean": the expected utility <p, a>, the one that the backward pass has;
        - "optimal": `optimal_baseline`;
        - "leave_one_out": the mean utility of the other draws of the row;
        - "batch_mean": of all M draws of the row, its own included, which shrinks the expected
          estimate by exactly (M - 1) / M;
        - or the number itself.

    Returns
    -------
    Tensor, shape (num_samples, ..., n)

    Raises
    ------
    TypeError
        Also for draws that aren't an int64 tensor.
    ValueError
        Also for an unknown baseline, a key out of range, and "leave_one_out" with one draw.

    Notes
    -----
    Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement
    learning", Machine Learning 8 (1992). Leave-one-out: Kool, van Hoof and Welling, "Buy 4
    REINFORCE samples, get a baseline for free!", ICLR workshop (2019).

    Examples
    --------
    >>> a, p = torch.tensor([1.0, 0.0]), torch.tensor([0.9, 0.1])
    >>> reinforce(a, p, torch.tensor([0, 1]), baseline="mean")
    tensor([[ 0.0100, -0.0100],
            [ 0.8100, -0.8100]])
    """
    a, p = _fitting(1, utility=utility, p=p)
    drawn = _one_hot(draws, a, p)
    gain = torch.where(drawn, a, 0.0).sum(-1)
    if isinstance(baseline, str) and baseline in ("leave_one_out", "batch_mean"):
        gain = group_advantages(gain, 0, leave_one_out=baseline == "leave_one_out")
    else:
        gain = gain - _baseline_by_name(baseline, a, p)
    return gain.unsqueeze(-1) * (drawn.to(p.dtype) - p) / temperature_rows(tau, p, -1)


def optimal_baseline(utility, p):
    r"""The constant baseline with which `reinforce` has the least variance.

    .. math:: b^* = \frac{\sum_j p_j w_j a_j}{\sum_j p_j w_j}, \qquad
              w_j = |e_j - p|^2 = 1 - 2 p_j + |p|^2

    With two keys it is :math:`p_2 a_1 + p_1 a_2`, and no variance is left.

    Parameters
    ----------
    utility, p : Tensor, shape (..., n)
        Softmax weights.

    Returns
    -------
    Tensor, shape (...)
        Where one key has all the weight every number is optimal, and this is 0.

    Notes
    -----
    Weaver and Tao, "The optimal reward baseline for gradient-based reinforcement learning", UAI
    2001; Greensmith, Bartlett and Baxter, "Variance reduction techniques for gradient estimates
    in reinforcement learning", JMLR 5 (2004).

    Examples
    --------
    >>> optimal_baseline(torch.tensor([1.0, 0.0]), torch.tensor([0.9, 0.1]))
    tensor(0.1000)
    """
    a, p = _fitting(1, utility=utility, p=p)
    return _average(a, p * _square_steps(p))


def estimator_variance(utility, p, baseline=0.0, tau=1.0):
    r"""The total variance of one estimate of `reinforce`, in closed form.

    .. math:: \mathrm{tr}\,\mathrm{Cov}(\hat g) = \frac{1}{\tau^2} \Bigl(
              \sum_j p_j (a_j - b)^2 |e_j - p|^2 - |C_p a|^2 \Bigr), \qquad
              C_p = \mathrm{diag}(p) - p p^\top

    Parameters
    ----------
    utility, p : Tensor, shape (..., n)
        Softmax weights.
    baseline : str, float or Tensor, shape (...)
        "none", "mean" or "optimal", as for `reinforce`, or the number itself.
    tau : float or Tensor

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    ValueError
        Also for an unknown baseline, and for those that depend on other draws.

    Notes
    -----
    Greensmith, Bartlett and Baxter (2004), as for `optimal_baseline`.

    Examples
    --------
    The mean is 64 times worse than no baseline here:

    >>> a, p = torch.tensor([1.0, 0.0]), torch.tensor([0.9, 0.1])
    >>> estimator_variance(a, p), estimator_variance(a, p, "mean")
    (tensor(0.0018), tensor(0.1152))
    """
    a, p = _fitting(1, utility=utility, p=p)
    a = torch.where(p == 0, 0.0, a)
    gain = (a - _baseline_by_name(baseline, a, p).unsqueeze(-1)) / temperature_rows(tau, p, -1)
    second_moment = (p * gain**2 * _square_steps(p)).sum(-1)
    mean = bandit_gradient(a, p, tau)
    return (second_moment - (mean**2).sum(-1)).clamp_min(0)


def group_advantages(rewards, dim=-1, *, leave_one_out=False):
    r"""Rewards of one group of samples, held against the mean of the group or of the others.

    .. math:: r_i - \frac{1}{n} \sum_k r_k \qquad\text{or}\qquad
              r_i - \frac{1}{n-1} \sum_{k \ne i} r_k = \frac{n}{n-1} \Bigl(
              r_i - \frac{1}{n} \sum_k r_k \Bigr)

    As a baseline the mean of the others leaves the policy gradient unbiased; that of the group
    shrinks it by (n - 1) / n. Nothing is divided by a standard deviation.

    Parameters
    ----------
    rewards : Tensor, shape (..., n, ...)
    dim : int
        Dimension of the group.
    leave_one_out : bool
        Hold each reward against the others only; needs n >= 2.

    Returns
    -------
    Tensor, shape of `rewards`

    Raises
    ------
    ValueError
        Also for `leave_one_out` in a group of fewer than two.

    Notes
    -----
    Kool, van Hoof and Welling (2019), as for `reinforce`; the mean of the group, divided by its
    standard deviation, is the advantage of Shao et al., "DeepSeekMath" (2024).

    Examples
    --------
    >>> group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor([ 0.7500, -0.2500, -0.2500, -0.2500])
    >>> group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), leave_one_out=True)
    tensor([ 1.0000, -0.3333, -0.3333, -0.3333])
    """
    r = to_last(working(rewards, "rewards"), dim)
    n = r.shape[-1]
    if leave_one_out and n < 2:
        raise ValueError(f"leave_one_out needs at least two rewards in a group, got {n}")
    against_mean = r - r.mean(-1, keepdim=True)
    return (n / (n - 1) * against_mean if leave_one_out else against_mean).movedim(-1, dim)


def _fitting(trailing, **tensors):
    """The two tensors as they are computed with, once their shapes fit.

    The last dimensions must agree, and all but the `trailing` last ones broadcast.
    """
    x, y = (working(tensor, name) for name, tensor in tensors.items())
    fits = min(x.dim(), y.dim()) >= trailing and x.shape[-1] == y.shape[-1]
    if fits:
        try:
            torch.broadcast_shapes(x.shape[:-trailing], y.shape[:-trailing])
        except RuntimeError:
            fits = False
    if not fits:
        shapes = " and ".join(f"{name} {tuple(x.shape)}" for name, x in tensors.items())
        raise ValueError(f"shapes don't fit: {shapes}")
    dtype = torch.promote_types(x.dtype, y.dtype)
    return x.to(dtype), y.to(dtype)


def _covariance(p, **functions):
    """`covariance` of two functions of the key, which errors call by their names."""
    p = to_last(working(p, "p"), -1)
    x, y = (working(z, name) for name, z in functions.items())
    for name, z in functions.items():
        if z.dim() < 2 or z.shape[-2] != p.shape[-1]:
            raise ValueError(
                f"{name} of shape {tuple(z.shape)} needs a row for each of the {p.shape[-1]} "
                f"weights of p, whose shape is {tuple(p.shape)}"
            )
    try:
        torch.broadcast_shapes(p.shape[:-2], x.shape[:-2], y.shape[:-2])
    except RuntimeError:
        shapes = ", ".join(f"{name} {tuple(z.shape)}" for name, z in functions.items())
        raise ValueError(f"shapes don't fit: p {tuple(p.shape)}, {shapes}") from None
    dtype = torch.promote_types(p.dtype, torch.promote_types(x.dtype, y.dtype))
    p, x, y = p.to(dtype), x.to(dtype).unsqueeze(-3), y.to(dtype).unsqueeze(-3)
    rows = p.unsqueeze(0) if p.dim() == 1 else p
    total = rows.sum(-1, keepdim=True)
    w = (rows / torch.where(total == 0, 1.0, total)).unsqueeze(-1)
    x, y = (torch.where(w == 0, 0.0, z) for z in (x, y))
    x = x - (w * x).sum(-2, keepdim=True)
    y = y - (w * y).sum(-2, keepdim=True)
    covariances = (w * x).mT @ y
    return covariances.squeeze(-3) if p.dim() == 1 else covariances


def _average(x, w):
    """The w-weighted mean of each row; 0 in a row without weight."""
    total = w.sum(-1)
    return (w * torch.where(w == 0, 0.0, x)).sum(-1) / torch.where(total == 0, 1.0, total)


def _square_steps(p):
    """|e_j - p|^2 for every key j."""
    return 1 - 2 * p + (p**2).sum(-1, keepdim=True)


def _baseline_by_name(baseline, a, p):
    """The baseline as a tensor that broadcasts to the rows."""
    if isinstance(baseline, str):
        if baseline == "none":
            return a.new_zeros(())
        if baseline == "mean":
            return _average(a, p)
        if baseline == "optimal":
            return optimal_baseline(a, p)
        raise ValueError(f"no baseline {baseline!r} here")
    b = torch.as_tensor(baseline, dtype=a.dtype, device=a.device)
    rows = torch.broadcast_shapes(a.shape, p.shape)[:-1]
    if not broadcasts_to(b.shape, rows):
        raise ValueError(f"baseline of shape {tuple(b.shape)} doesn't fit rows of shape {rows}")
    return b


def _one_hot(draws, a, p):
    """Where the drawn key of each row is, shape (num_samples, ..., n)."""
    if not isinstance(draws, torch.Tensor):
        raise TypeError(f"draws must be a torch.Tensor, got {type(draws).__name__}")
    if draws.dtype != torch.int64:
        raise TypeError(f"draws must be int64, got {draws.dtype}")
    rows = torch.broadcast_shapes(a.shape, p.shape)
    if draws.dim() == 0 or draws.shape[1:] != rows[:-1]:
        raise ValueError(
            f"draws of shape {tuple(draws.shape)} don't fit rows of shape {tuple(rows[:-1])}"
        )
    valid = (draws >= -1) & (draws < rows[-1])
    if _known_false(valid):
        raise ValueError(f"draw {draws[~valid][0].item()} among {rows[-1]} keys")
    return draws.unsqueeze(-1) == torch.arange(rows[-1], device=draws.device)
