"""Fenchel-Young losses: what to train with when the prediction is a regularised argmax."""

import math

import torch

from .regularizers import Tsallis, member
from .simplex import to_last, working

_SPARSEMAX = Tsallis(2.0)


def fenchel_young_loss(s, target, regularizer=None, tau=1.0, dim=-1, reduction="mean"):
    r"""How far the target is from solving the problem of its scores.

    .. math:: L(s; y) = V(s) + \tau\,\Omega(y) - \langle s, y\rangle \;\ge\; 0,

    where V is the value of the problem (`Regularizer.conjugate`). It is 0 exactly when y is the
    maximiser p of the scores, convex in s, and its gradient in s is p - y. With `Shannon` and a
    class as target it is tau times the cross-entropy of s / tau.

    Parameters
    ----------
    s : Tensor, shape (..., n, ...)
        Raw scores.
    target : Tensor
        Classes, of an integer dtype and the shape of `s` without `dim`; or distributions,
        floating point, of the shape of `s` (non-negative, summing to one along `dim`: not
        checked).
    regularizer : Regularizer, optional
        `Shannon()` by default.
    tau : float or Tensor
        Temperature, positive and finite; a tensor broadcasts with `dim` kept.
    dim : int
        Dimension of the simplex.
    reduction : {"mean", "sum", "none"}
        Over all rows.

    Returns
    -------
    Tensor
        A scalar, or with "none" the shape of `s` without `dim`; raw units, float32 for the half
        precisions. Never below 0 by more than rounding. A score of -inf is harmless where the
        target is 0; a target with mass there costs +inf, with gradient 0 in that row. A row
        with every score -inf and a target of zeros, such as padding, costs 0.

    Raises
    ------
    TypeError
        For scores that aren't floating point and targets that are boolean or complex.
    ValueError
        For shapes that don't fit, classes out of range and unknown reductions.

    Notes
    -----
    Blondel, Martins and Niculae, "Learning with Fenchel-Young losses", JMLR 21 (2020).

    Examples
    --------
    >>> s = torch.tensor([[4.0, 2.0, 0.0]])
    >>> fenchel_young_loss(s, torch.tensor([0])), fenchel_young_loss(s, torch.tensor([1]))
    (tensor(0.1429), tensor(2.1429))
    >>> fenchel_young_loss(s, torch.tensor([0]), Tsallis(2.0))
    tensor(0.)
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be mean, sum or none, got {reduction!r}")
    regularizer = member(regularizer)
    rows = to_last(working(s), dim)
    y = _distribution(target, rows, dim)
    theta, _, tau = regularizer._scaled(s, tau, dim)
    impossible = ((theta == -math.inf) & (y != 0)).any(-1)
    y = torch.where(impossible.unsqueeze(-1), 0.0, y)
    # Shifting the row changes neither side, so that large offsets cost no digits.
    gain = (y * torch.where(y == 0, 0.0, theta)).sum(-1)
    loss = tau * (regularizer.potential(theta) + regularizer.penalty(y) - gain)
    loss = torch.where(impossible, math.inf, loss)
    loss = torch.where((theta == -math.inf).all(-1) & ~impossible, 0.0, loss)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def _distribution(target, rows, dim):
    """The target as distributions of the shape of `rows`."""
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(f"target must be classes or distributions, got {target.dtype}")
    soft = target.is_floating_point()
    y = to_last(target, dim).to(rows.dtype) if soft else target
    expected = rows.shape if soft else rows.shape[:-1]
    if y.shape != expected:
        raise ValueError(
            f"a target of shape {tuple(target.shape)} doesn't fit {rows.shape[-1]} scores in each "
            f"of {tuple(rows.shape[:-1])} rows"
        )
    if soft:
        return y
    classes = torch.arange(rows.shape[-1], device=rows.device)
    y = (target.unsqueeze(-1) == classes).to(rows.dtype)
    if not torch.compiler.is_compiling() and bool((y.sum(-1) == 0).any()):
        wrong = target[y.sum(-1) == 0][0].item()
        raise ValueError(f"a target of class {wrong} among {rows.shape[-1]} classes")
    return y


def softmax_loss(s, target, tau=1.0, dim=-1, reduction="mean"):
    """The Fenchel-Young loss of softmax: tau times the cross-entropy of s / tau.

    Arguments, results and errors are those of `fenchel_young_loss`; for a soft target its
    entropy is subtracted, so that the smallest value is 0.

    >>> softmax_loss(torch.tensor([[4.0, 2.0, 0.0]]), torch.tensor([0]))
    tensor(0.1429)
    """
    return fenchel_young_loss(s, target, None, tau, dim, reduction)


def sparsemax_loss(s, target, tau=1.0, dim=-1, reduction="mean"):
    """The Fenchel-Young loss of sparsemax: 0 once the target leads by tau.

    Arguments, results and errors are those of `fenchel_young_loss`. Martins and Astudillo,
    "From softmax to sparsemax", ICML 2016.

    >>> s = torch.tensor([[0.1, 0.6, 1.0]])
    >>> sparsemax_loss(s, torch.tensor([2])), sparsemax_loss(10 * s, torch.tensor([2]))
    (tensor(0.0900), tensor(0.))
    """
    return fenchel_young_loss(s, target, _SPARSEMAX, tau, dim, reduction)


def entmax_loss(s, target, alpha=1.5, tau=1.0, dim=-1, reduction="mean"):
    """The Fenchel-Young loss of entmax: 0 once the target leads by tau / (alpha - 1).

    Arguments, results and errors are those of `fenchel_young_loss` and `Tsallis`. Peters,
    Niculae and Martins, "Sparse sequence-to-sequence models", ACL 2019.

    >>> entmax_loss(torch.tensor([[1.0, 0.5, 0.0]]), torch.tensor([0]))
    tensor(0.2033)
    """
    return fenchel_young_loss(s, target, Tsallis(alpha), tau, dim, reduction)
