"""Priors: what is added to the scaled scores before a map to the simplex is taken.

A prior is a log-density over keys, in scaled units (added after the division by the
temperature). It need not be normalised: a constant added to a row changes no weight. A value of
-inf excludes a key, so masks are priors with zeros.
"""

import abc
import math
import numbers
import warnings

import torch
from torch import nn


class Prior(nn.Module, abc.ABC):
    """The additive term of scaled scores, for any tile of queries and keys.

    A subclass implements `bias`, which must give the same numbers whenever it is asked: attention by
    blocks asks again in the backward pass. Priors add: ``ALiBi(slopes) + Causal()`` is a prior, whose term
    is the sum of the two.
    """

    @abc.abstractmethod
    def bias(self, q_positions, k_positions, head=None):
        """The term for the given positions.

        Parameters
        ----------
        q_positions, k_positions : integer Tensor, shapes (q,) and (k,)
            Positions of the tile's queries and keys.
        head : int, optional
            One head only; all heads when omitted.

        Returns
        -------
        Tensor
            Scaled units, broadcastable to (..., heads, q, k); with `head` given, heads is 1.
        """

    def __add__(self, other):
        if not isinstance(other, Prior):
            return NotImplemented
        return _Sum(self, other)

    def parts(self):
        """The priors of which this one is the sum."""
        return [self]


class _Sum(Prior):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def bias(self, q_positions, k_positions, head=None):
        first = self.first.bias(q_positions, k_positions, head)
        return first + self.second.bias(q_positions, k_positions, head)

    def parts(self):
        return self.first.parts() + self.second.parts()


def _lag(q_positions, k_positions):
    """Key position minus query position, shape (q, k)."""
    return k_positions[None, :] - q_positions[:, None]


def _mask_bias(keep):
    """0 where `keep` is True, -inf elsewhere."""
    return torch.zeros(keep.shape, device=keep.device).masked_fill(~keep, -math.inf)


def _take(table, positions, dim, what):
    """Entries of `table` at `positions` along `dim`; `ValueError` when it doesn't reach them."""
    size = table.shape[dim]
    if positions.numel() and not torch.compiler.is_compiling():
        low, high = int(positions.min()), int(positions.max())
        if low < 0 or high >= size:
            raise ValueError(
                f"{what} of shape {tuple(table.shape)} covers positions 0 to {size - 1}, "
                f"asked for {low} to {high}"
            )
    return table.index_select(dim, positions)


def _one_head(table, head):
    """The slice of `table` (..., heads, q, k) for `head`, dimension kept."""
    if head is None or table.dim() < 3 or table.shape[-3] == 1:
        return table
    return table[..., [head], :, :]


def keep_parameter(module, name, value):
    """Store `value` so that a parameter is trained and a constant moves with the module."""
    if isinstance(value, nn.Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


def _numbers(value, name):
    """`value` as a tensor; `TypeError` naming it when it isn't made of numbers."""
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be numbers, got {value!r}") from None


def alibi_slopes(n_heads):
    r"""Slopes of the linear position bias, by the published rule.

    For a power of two, :math:`m_h = 2^{-8h/n}`, h = 1..n. For another number of heads, the
    slopes of the largest power of two c below it, followed by every second slope of 2c heads.

    Parameters
    ----------
    n_heads : int
        At least 1.

    Returns
    -------
    Tensor, shape (n_heads,), float64
        Slopes in units of scaled scores.

    Raises
    ------
    TypeError
        If `n_heads` isn't an integer.
    ValueError
        If it is below 1.

    Notes
    -----
    Press, Smith and Lewis, "Train short, test long: attention with linear biases enables input
    length extrapolation", ICLR 2022.

    Examples
    --------
    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    >>> alibi_slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """
    if not isinstance(n_heads, numbers.Integral):
        raise TypeError(f"n_heads must be an integer, got {n_heads!r}")
    n_heads = int(n_heads)
    if n_heads < 1:
        raise ValueError(f"n_heads must be at least 1, got {n_heads}")
    power = 1 << (n_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    slopes += [2.0 ** (-4.0 * h / power) for h in range(1, 2 * (n_heads - power), 2)]
    return torch.tensor(slopes, dtype=torch.float64)


class ALiBi(Prior):
    r"""A penalty linear in the distance: :math:`-m_h |i - j|` added to the scaled scores.

    As a prior, :math:`\pi_j \propto e^{-m_h|i-j|}`: the maximum-entropy distribution of the lag
    with a given mean. With a causal mask only lags i - j >= 0 are left.

    Parameters
    ----------
    slopes : sequence of float, Tensor or nn.Parameter, shape (heads,)
        Slopes in units of *scaled* scores: m = gamma / tau when gamma multiplies raw scores.
        A parameter is trained.

    Raises
    ------
    TypeError
        If `slopes` aren't numbers.
    ValueError
        If they aren't a vector.

    Notes
    -----
    Press, Smith and Lewis (2022). Their bias is causal; |i - j| is its two-sided form.

    Examples
    --------
    >>> position = torch.arange(3)
    >>> ALiBi([0.5]).bias(position, position)
    tensor([[[ 0.0000, -0.5000, -1.0000],
             [-0.5000,  0.0000, -0.5000],
             [-1.0000, -0.5000,  0.0000]]])
    """

    def __init__(self, slopes):
        super().__init__()
        slopes = _numbers(slopes, "slopes")
        if slopes.dim() != 1:
            raise ValueError(f"slopes must have shape (heads,), got {tuple(slopes.shape)}")
        keep_parameter(self, "slopes", slopes)

    def bias(self, q_positions, k_positions, head=None):
        slopes = _one_head(self.slopes[:, None, None], head)
        return slopes * -_lag(q_positions, k_positions).abs()


class LogPrior(Prior):
    r"""A log-density over keys: the weights become :math:`p_j \propto \pi_j e^{s_j/\tau}`.

    Parameters
    ----------
    log_pi : array, Tensor or nn.Parameter
        Logarithms (for probabilities see `from_probabilities`), in scaled units, of shape (n,),
        (m, n), (heads, m, n) or (batch, heads, m, n); batch, heads and m may be 1. Entries of
        -inf are masks. Rows need not be normalised. A parameter is trained.

    Raises
    ------
    TypeError
        If `log_pi` isn't made of numbers.
    ValueError
        For entries that are NaN or +inf, a tensor without dimensions, or, when used, positions
        that the tensor doesn't have.

    Warns
    -----
    UserWarning
        If every row sums to one and has no negative entry: these look like probabilities. They
        are taken as logarithms all the same; where that is meant, a constant taken away (it
        changes no weight) ends the warning.

    Examples
    --------
    >>> prior = LogPrior(torch.tensor([0.7, 0.2, 0.1]).log())
    >>> prior.bias(torch.arange(2), torch.arange(3)).exp()
    tensor([[0.7000, 0.2000, 0.1000]])
    """

    def __init__(self, log_pi):
        super().__init__()
        log_pi = _numbers(log_pi, "log_pi")
        if log_pi.dim() == 0:
            raise ValueError("log_pi needs at least one dimension, got a tensor of shape ()")
        if not bool((log_pi < math.inf).all()):
            raise ValueError("log_pi must not contain NaN or +inf")
        if _looks_like_probabilities(log_pi):
            warnings.warn(
                "log_pi looks like probabilities and is taken as logarithms: pass its logarithm, "
                "or use LogPrior.from_probabilities; to keep it, subtract 1 from every entry",
                stacklevel=2,
            )
        keep_parameter(self, "log_pi", log_pi)

    @classmethod
    def from_probabilities(cls, pi):
        r"""The prior whose densities are `pi` (not their logarithms).

        Parameters
        ----------
        pi : array or Tensor
            Numbers that are finite and not negative, in the shapes of `log_pi`; 0 excludes a
            key. Rows need not be normalised: counts will do.

        Returns
        -------
        LogPrior
            A constant. To train a prior, give `LogPrior` its logarithms as a parameter.

        Raises
        ------
        TypeError
            If `pi` isn't made of numbers, or requires a gradient.
        ValueError
            For an entry that is negative, infinite or NaN.

        Examples
        --------
        >>> prior = LogPrior.from_probabilities([0.75, 0.25, 0.0])
        >>> prior.bias(torch.arange(1), torch.arange(3))
        tensor([[-0.2877, -1.3863, -inf]])
        """
        pi = _numbers(pi, "pi")
        if pi.requires_grad:
            raise TypeError("pi requires a gradient: give LogPrior its logarithms as a parameter")
        bad = ~((pi >= 0) & (pi < math.inf))
        if bad.any():
            raise ValueError(
                f"probabilities must be finite and not negative, got {pi[bad][0].item():g}"
            )
        return cls(pi.log())

    def bias(self, q_positions, k_positions, head=None):
        table = self.log_pi if self.log_pi.dim() > 1 else self.log_pi[None, :]
        table = _take(_one_head(table, head), k_positions, -1, "log_pi")
        return table if table.shape[-2] == 1 else _take(table, q_positions, -2, "log_pi")


def _looks_like_probabilities(log_pi):
    if log_pi.numel() < 2 or log_pi.shape[-1] < 2 or not log_pi.is_floating_point():
        return False
    if not bool((log_pi >= 0).all()):
        return False
    excess = (log_pi.detach().double().sum(-1) - 1).abs()
    return bool((excess <= 2 * torch.finfo(log_pi.dtype).eps).all())


class Causal(Prior):
    """Query i may attend to the keys j <= i.

    Examples
    --------
    >>> Causal().bias(torch.arange(2), torch.arange(3))
    tensor([[0., -inf, -inf],
            [0., 0., -inf]])
    """

    def bias(self, q_positions, k_positions, head=None):
        return _mask_bias(_lag(q_positions, k_positions) <= 0)


class Window(Prior):
    """Query i may attend to the keys i - left <= j <= i + right.

    Parameters
    ----------
    left, right : int or None
        Reach on each side; None is unbounded.

    Raises
    ------
    TypeError
        For a reach that is neither None nor an integer.
    ValueError
        For a negative reach.

    Examples
    --------
    >>> Window(1, 0).bias(torch.arange(3), torch.arange(3))
    tensor([[0., -inf, -inf],
            [0., 0., -inf],
            [-inf, 0., 0.]])
    """

    def __init__(self, left=None, right=None):
        super().__init__()
        for name, reach in (("left", left), ("right", right)):
            if not isinstance(reach, numbers.Integral | None):
                raise TypeError(f"{name} must be None or an integer, got {reach!r}")
            if reach is not None and reach < 0:
                raise ValueError(f"{name} must be None or at least 0, got {reach}")
        self.left, self.right = left, right

    def bias(self, q_positions, k_positions, head=None):
        lag = _lag(q_positions, k_positions)
        keep = torch.ones_like(lag, dtype=torch.bool)
        if self.left is not None:
            keep &= lag >= -self.left
        if self.right is not None:
            keep &= lag <= self.right
        return _mask_bias(keep)


class Padding(Prior):
    """Every query may attend to the keys that are kept, sequence by sequence.

    Parameters
    ----------
    keep : bool Tensor, shape (batch, n)
        True = may attend.

    Raises
    ------
    TypeError
        If `keep` isn't a boolean tensor.
    ValueError
        If it isn't of shape (batch, n), or, when used, has no entry for a key's position.

    Examples
    --------
    >>> keep = torch.tensor([[True, True, False]])
    >>> Padding(keep).bias(torch.arange(2), torch.arange(3))
    tensor([[[[0., 0., -inf]]]])
    """

    def __init__(self, keep):
        super().__init__()
        if not isinstance(keep, torch.Tensor):
            raise TypeError(f"keep must be a torch.Tensor, got {type(keep).__name__}")
        if keep.dtype != torch.bool:
            raise TypeError(f"keep must be boolean (True = may attend), got {keep.dtype}")
        if keep.dim() != 2:
            raise ValueError(f"keep must have shape (batch, n), got {tuple(keep.shape)}")
        self.register_buffer("keep", keep)

    def bias(self, q_positions, k_positions, head=None):
        keep = _take(self.keep, k_positions, -1, "keep")
        return _mask_bias(keep[:, None, None, :])


def bias_of_rows(prior, scores, first_query=0):
    """The prior's term for whole rows: `scores` is (..., q, k), or (k,) for the row of query 0.

    Queries have the positions first_query, first_query + 1, ...; keys start at 0. The result has
    the dtype of `scores` and broadcasts to its shape; `ValueError` names both shapes if it can't.
    """
    n_queries = scores.shape[-2] if scores.dim() > 1 else 1
    q_positions = torch.arange(n_queries, device=scores.device) + first_query
    k_positions = torch.arange(scores.shape[-1], device=scores.device)
    return fitting(prior.bias(q_positions, k_positions).to(scores.dtype), scores.shape)


def fitting(bias, shape):
    """A prior's term without leading dimensions of size 1 that scores of `shape` don't have."""
    while bias.dim() > len(shape) and bias.shape[0] == 1:
        bias = bias[0]
    if not broadcasts_to(bias.shape, shape):
        raise ValueError(
            f"a prior of shape {tuple(bias.shape)} doesn't broadcast to scores of shape "
            f"{tuple(shape)}"
        )
    return bias


def broadcasts_to(shape, target):
    """Whether a tensor of this shape broadcasts to exactly the target shape.

    >>> broadcasts_to((3, 1), (2, 3, 4)), broadcasts_to((2, 1), (1, 4))
    (True, False)
    """
    return len(shape) <= len(target) and all(
        size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(target))
    )
