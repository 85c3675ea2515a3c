"""Maps from scores to the probability simplex, one row at a time."""

import math

import torch

_FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_floating(x, name):
    """Raise `TypeError` naming type or dtype unless `x` is a real floating-point tensor.

    >>> check_floating(torch.tensor([1, 2]), "scores")
    Traceback (most recent call last):
    TypeError: scores must be float16, bfloat16, float32 or float64, got torch.int64
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
    if x.dtype not in _FLOATING:
        raise TypeError(
            f"{name} must be float16, bfloat16, float32 or float64, got {x.dtype}"
        )


def working(x, name="scores"):
    """`x` in the precision it is computed in: float32 for the half precisions, else its own.

    >>> working(torch.tensor([1.0], dtype=torch.bfloat16)).dtype
    torch.float32
    """
    check_floating(x, name)
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def to_last(x, dim):
    """`x` with dimension `dim` moved to the end; `ValueError` for a tensor without dimensions.

    >>> to_last(torch.zeros(2, 3, 5), 0).shape
    torch.Size([3, 5, 2])
    """
    if x.dim() == 0:
        raise ValueError("a row needs a dimension, got a tensor of shape ()")
    return x.movedim(dim, -1)


def temperature_rows(tau, rows, dim):
    """`tau` checked, and shaped so that it divides `rows` (whose reduced dimension is the last).

    `tau` is a positive number, or a tensor that broadcasts against the scores with the reduced
    dimension `dim` kept (size 1). A tensor comes back as a tensor with at least the number of
    dimensions of `rows`, a number as it is.

    Raises `ValueError` naming the value unless 0 < tau < infinity in the dtype of `rows`. The
    values of a tensor can't be read inside `torch.vmap` and `torch.compile`: there a temperature
    out of range gives NaN.

    >>> temperature_rows(0.5, torch.zeros(2, 3), -1)
    0.5
    >>> temperature_rows(torch.ones(1, 3), torch.zeros(3, 2), 0).shape
    torch.Size([3, 1])
    """
    smallest = torch.finfo(rows.dtype).tiny
    if not isinstance(tau, torch.Tensor):
        if not smallest <= tau < math.inf:
            raise ValueError(f"tau must be positive and finite in {rows.dtype}, got {tau}")
        return tau
    tau = tau.to(rows.dtype)
    valid = (tau >= smallest) & (tau < math.inf)
    if _known_false(valid):
        raise ValueError(
            f"tau must be positive and finite in {rows.dtype}, got {tau[~valid][0].item()}"
        )
    tau = torch.where(valid, tau, math.nan)
    if tau.dim() < rows.dim():
        tau = tau.reshape((1,) * (rows.dim() - tau.dim()) + tuple(tau.shape))
    axis = dim if dim < 0 else dim - rows.dim()
    tau = tau.movedim(axis, -1)
    if tau.shape[-1] != 1:
        raise ValueError(
            f"tau must have size 1 along the reduced dimension {dim}, got {tau.shape[-1]}"
        )
    return tau


def _known_false(condition):
    """Whether an entry is False, as far as values can be read: not in a trace, nor in vmap."""
    if torch.compiler.is_compiling():
        return False
    try:
        return not bool(condition.all())
    except RuntimeError:
        return False


def scaled_rows(rows, tau):
    """`(rows - top) / tau` and `top`, the largest score of each row (0 for a row of -inf).

    `rows` has the reduced dimension last and `tau` comes from `temperature_rows`. Subtracting
    before dividing keeps scores of 1e30 and tiny temperatures in range. `top` (kept dimension)
    carries no gradient: every map here either ignores a shift of the row or gives it back.

    >>> scaled_rows(torch.tensor([1e30, 1e30]), 1e-30)[0]
    tensor([0., 0.])
    """
    if rows.shape[-1] == 0:
        return rows / tau, rows.new_zeros(rows.shape[:-1] + (1,))
    top = _finite_top(rows)
    gap = rows - top
    # Where the derivative in tau overflows (a score of -inf, or a tiny tau) the weight is 0 in
    # every digit; cutting the entry out of the graph keeps 0 * inf = NaN out of the gradient.
    divisor = tau.detach() if isinstance(tau, torch.Tensor) else tau
    value = gap.detach() / divisor
    cut = torch.isinf(value / divisor)
    return torch.where(cut, value, torch.where(cut, 0.0, gap) / tau), top


def _finite_top(rows):
    """The largest entry of each row, without gradient; 0 for a row of -inf."""
    top = rows.detach().amax(-1, keepdim=True)
    return torch.where(top == -math.inf, 0.0, top)


def gibbs(theta):
    """Softmax of the rows of `theta` (last dimension), and their log-sum-exp.

    A row of -inf, and a row without entries, has weights 0, log-sum-exp -inf and gradient 0.
    An entry whose weight is exactly 0 passes on no gradient, however large.

    >>> gibbs(torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]]))
    (tensor([[0.5000, 0.5000],
            [0.0000, 0.0000]]), tensor([0.6931,   -inf]))
    """
    if theta.shape[-1] == 0:
        return theta.clone(), theta.sum(-1) - math.inf
    top = _finite_top(theta)
    e = torch.exp(theta - top)
    total = e.sum(-1, keepdim=True)
    empty = total == 0
    total = torch.where(empty, 1.0, total)
    p = torch.where((e == 0) & ~torch.isnan(total), 0.0, e / total)
    zeta = torch.where(empty, -math.inf, top + total.log())
    return p, zeta.squeeze(-1)


def softmax(s, tau=1.0, dim=-1):
    r"""The distribution that trades score against entropy.

    Solves, for every row of scores,

    .. math:: \max_{p \in \Delta} \; \langle s, p\rangle + \tau H(p), \qquad
              H(p) = -\sum_j p_j \log p_j,

    whose only solution is :math:`p_j = e^{s_j/\tau} / \sum_k e^{s_k/\tau}`.

    Parameters
    ----------
    s : Tensor, shape (..., n, ...)
        Raw scores: `tau` divides them here and nowhere else.
    tau : float or Tensor
        Temperature, positive and finite. A tensor broadcasts with `dim` kept (size 1) and may
        ask for its gradient.
    dim : int
        The dimension along which the weights sum to one.

    Returns
    -------
    Tensor
        Weights of the shape and dtype of `s` (the half precisions are computed in float32).
        A score of -inf excludes its entry; a row of nothing but -inf gets weights 0 and
        gradient 0. Equal scores in a row get equal weights, to the last bit. A NaN, or a score
        of +inf (for which the problem is unbounded), makes its own row NaN and no other.

    Raises
    ------
    TypeError
        For integer, boolean or complex scores.
    ValueError
        For a temperature that isn't positive and finite. Inside `torch.vmap` and
        `torch.compile` the values of a *tensor* of temperatures can't be read; there a wrong
        one gives NaN.

    Notes
    -----
    The Gibbs variational principle: Jaynes, "Information theory and statistical mechanics",
    Physical Review 106 (1957).

    Examples
    --------
    >>> softmax(torch.tensor([4.0, 2.0, 0.0]), tau=2.0)
    tensor([0.6652, 0.2447, 0.0900])
    >>> softmax(torch.tensor([1.0, 1.0, -torch.inf]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    rows = to_last(working(s), dim)
    theta, _ = scaled_rows(rows, temperature_rows(tau, rows, dim))
    return gibbs(theta)[0].movedim(-1, dim).to(s.dtype)
