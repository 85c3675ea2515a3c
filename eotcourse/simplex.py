"""Maps from scores to the probability simplex, one row at a time."""

import math
import numbers

import torch

from torch.autograd.forward_ad import unpack_dual

from . import _newton, _ragged

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
    """`x` with dimension `dim` moved to the end.

    `TypeError` for a `dim` that isn't an integer, `ValueError` for an `x` without dimensions.

    >>> to_last(torch.zeros(2, 3, 5), 0).shape
    torch.Size([3, 5, 2])
    """
    if isinstance(dim, bool) or not isinstance(dim, numbers.Integral):
        raise TypeError(f"dim must be an integer, got {dim!r}")
    if x.dim() == 0:
        raise ValueError("a row needs a dimension, got a tensor of shape ()")
    return x.movedim(dim, -1)


def temperature_rows(tau, rows, dim):
    """`tau` checked, and shaped so that it divides `rows` (whose reduced dimension is the last).

    `tau` is a positive number, or a tensor that broadcasts against the scores with the reduced
    dimension `dim` kept (size 1). A tensor comes back as a tensor with at least the number of
    dimensions of `rows`, a number as it is.

    Raises `TypeError` naming the type of anything else (a boolean too), and
    `ValueError` naming the value unless 0 < tau < infinity in the dtype of `rows`. The
    values of a tensor can't be read inside `torch.vmap` and `torch.compile`: there a temperature
    out of range gives NaN.

    >>> temperature_rows(0.5, torch.zeros(2, 3), -1)
    0.5
    >>> temperature_rows(torch.ones(1, 3), torch.zeros(3, 2), 0).shape
    torch.Size([3, 1])
    """
    smallest = torch.finfo(rows.dtype).tiny
    wanted = f"tau must be positive and finite in {rows.dtype}"
    return _per_row(tau, rows, dim, "tau", wanted, smallest)


def order_rows(alpha, rows, dim):
    """`alpha` checked, and shaped like a temperature; see `temperature_rows`.

    Raises as there, unless 1 <= alpha < infinity.

    >>> order_rows(0.5, torch.zeros(2, 3), -1)
    Traceback (most recent call last):
    ValueError: alpha must be at least 1 and finite, got 0.5
    """
    return _per_row(alpha, rows, dim, "alpha", "alpha must be at least 1 and finite", 1.0)


def _per_row(value, rows, dim, name, wanted, smallest):
    """A number, or one value per row, not below `smallest`; see `temperature_rows`."""
    tensor = isinstance(value, torch.Tensor)
    kind = value.dtype if tensor else type(value).__name__
    real = not kind.is_complex if tensor else isinstance(value, numbers.Real)
    if not real or kind in ("bool", torch.bool):
        raise TypeError(f"{name} must be a number or a tensor of numbers, got {kind}")
    if not tensor:
        if not smallest <= value < math.inf:
            raise ValueError(f"{wanted}, got {value}")
        return value
    value = value.to(rows.dtype)
    valid = (value >= smallest) & (value < math.inf)
    if _known_false(valid):
        raise ValueError(f"{wanted}, got {value[~valid][0].item()}")
    value = torch.where(valid, value, math.nan)
    if value.dim() < rows.dim():
        value = value.reshape((1,) * (rows.dim() - value.dim()) + tuple(value.shape))
    axis = dim if dim < 0 else dim - rows.dim()
    value = value.movedim(axis, -1)
    if value.shape[-1] != 1:
        raise ValueError(
            f"{name} must have size 1 along the reduced dimension {dim}, got {value.shape[-1]}"
        )
    return value


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
        For integer, boolean or complex scores, a temperature that isn't a real number or a tensor
        of them, or a `dim` that isn't an integer.
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


def _by_series(t, radius, coefficient, closed):
    """`closed(t)`, whose derivatives cancel near 0, there by its power series."""
    small = t.abs() < radius
    near = torch.where(small, t, 0.0)
    series = torch.zeros_like(near)
    for k in reversed(range(18 if t.dtype == torch.float64 else 11)):
        series = series * near + coefficient(k)
    return torch.where(small, series, closed(torch.where(small, 1.0, t)))


def log_alpha(x, alpha):
    r""":math:`\log_\alpha x = (x^{\alpha-1} - 1)/(\alpha-1)`, the logarithm at alpha = 1.

    >>> log_alpha(torch.tensor([0.25, 1.0]), 1.5)
    tensor([-1., 0.])
    """
    log = x.log()
    t = (alpha - 1) * log
    ratio = _by_series(t, 1, lambda k: 1 / math.factorial(k + 1), lambda t: t.expm1() / t)
    return log * ratio


def exp_alpha(x, alpha):
    r""":math:`\exp_\alpha x = (1 + (\alpha-1) x)_+^{1/(\alpha-1)}`, the inverse of `log_alpha`.

    >>> exp_alpha(torch.tensor([-1.0, 0.0, -5.0]), 1.5)
    tensor([0.2500, 1.0000, 0.0000])
    """
    t = (alpha - 1) * x
    zero = t <= -1
    t, x = torch.where(zero, 0.0, t), torch.where(zero, 0.0, x)
    ratio = _by_series(t, 0.1, lambda k: (-1) ** k / (k + 1), lambda t: t.log1p() / t)
    return torch.where(zero, 0.0, (x * ratio).exp())


def response(p, alpha):
    r"""The response :math:`u = p^{2-\alpha}` of the Tsallis family, 0 where p = 0.

    Above alpha = 2, where small weights have large responses, it is bounded by `_most`.

    >>> response(torch.tensor([0.25, 0.75, 0.0]), 1.5)
    tensor([0.5000, 0.8660, 0.0000])
    """
    on = p != 0
    log_u = (2 - alpha) * torch.where(on, p, 1.0).log()
    if _may_be_steep(alpha):
        log_u = log_u.clamp_max(math.log(_most(p.dtype)))
    return torch.where(on, log_u.exp(), 0.0)


def _most(dtype):
    """So far below overflow that a row of millions still has a finite sum."""
    return torch.finfo(dtype).max * 2.0**-24


def _may_be_steep(alpha):
    """Whether alpha is above 2, or a tensor, whose values can't always be read."""
    return isinstance(alpha, torch.Tensor) or alpha > 2


def _drift(p, alpha):
    r"""What a change of alpha does to the scores: :math:`\dot p = -u (g - \bar g)`, this is g.

    :math:`g = \log^2 p \; \varphi((\alpha-1) \log p)` with
    :math:`\varphi(t) = (t e^t - e^t + 1)/t^2`. Above alpha = 2, where 1/t^2 times the response
    would cancel, the constant :math:`1/(\alpha-1)^2` is left out of g.
    """
    log_p = torch.where(p == 0, 1.0, p).log()
    t = (alpha - 1) * log_p

    def below():
        def phi(t):
            return (t * t.exp() - t.expm1()) / t**2

        return log_p**2 * _by_series(t, 1, lambda k: (k + 1) / math.factorial(k + 2), phi)

    def above(order):
        return t.exp() * (t - 1) / (order - 1) ** 2

    if not isinstance(alpha, torch.Tensor):
        return above(alpha) if alpha > 2 else below()
    return torch.where(_above(alpha, p), above(alpha.clamp_min(2)), below())


def _above(alpha, p):
    """Whether alpha is above 2, as a tensor."""
    return torch.as_tensor(alpha, dtype=p.dtype, device=p.device) > 2


def _shift(alpha, p):
    """The constant that `_drift` leaves out."""
    above = _above(alpha, p)
    return torch.where(above, (torch.where(above, alpha, 2.0) - 1) ** -2, 0.0)


def _row_sums(x):
    return x.sum(-1, keepdim=True)


def centred(u, x, total=0.0, row_sums=_row_sums):
    """u (x - m) and m, with m such that every row sums to `total`.

    `row_sums` gives every entry the sum over its row, in a shape that broadcasts.

    >>> centred(torch.tensor([1.0, 3.0]), torch.tensor([4.0, 0.0]))
    (tensor([ 3., -3.]), tensor([1.]))
    """
    mass = row_sums(u)
    mean = (row_sums(u * x) - total) / torch.where(mass == 0, 1.0, mass)
    return u * (x - mean), mean


def centred_(x, u, total):
    """The first result of `centred` in place of `x`, for rows: fewer passes, no derivatives."""
    x.mul_(u)
    mass = u.sum(-1, keepdim=True)
    mean = (x.sum(-1, keepdim=True) - total) / torch.where(mass == 0, 1.0, mass)
    return x.addcmul_(u, mean, value=-1)


def anchored(u, x, total=0.0):
    """`centred` over the last dimension, for responses of any size: one that dwarfs the rest.

    There m is x at that entry to the last digits, and x - m would cancel. Here x is taken
    relative to it, and it gets what the others leave of `total`. No result exceeds `_most`.

    >>> anchored(torch.tensor([1.0, 1e30]), torch.tensor([3.0, 2.0]))
    (tensor([ 1., -1.]), tensor([2.]))
    """
    if u.shape[-1] == 0:
        return centred(u, x, total)
    most = _most(u.dtype)
    largest = torch.arange(u.shape[-1], device=u.device) == u.argmax(-1, keepdim=True)
    anchor = _row_sums(torch.where(largest, x, 0.0))
    x = x - anchor
    # m depends on ratios of responses only; of these no sum overflows.
    scale = u.detach().amax(-1, keepdim=True)
    scale = torch.where(scale == 0, 1.0, scale)
    _, mean = centred(u / scale, x, total / scale)
    moved = (u * (x - mean)).clamp(-most, most)
    return moved + torch.where(largest, total - _row_sums(moved), 0.0), anchor + mean


def pullback(p, alpha, grad_p, grad_zeta, with_alpha, centre=centred):
    r"""Gradients in scaled scores and alpha, from those in the weights and the soft maximum.

    With :math:`u = p^{2-\alpha}` and g from `_drift`, for upstream gradients w and v,

    .. math:: d\theta = u\,(w - m), \quad m = (\langle u, w\rangle - v)/\langle u, 1\rangle,
              \qquad d\alpha = -\langle d\theta, g\rangle .

    `centre` is `centred`, or what does the same for other rows; `grad_zeta` and a tensor `alpha`
    come in the shape of its row sums. The second result is one row's sum short of the gradient
    in alpha, for the caller knows how rows are laid out; see `_drift` for what it subtracts.
    """
    grad_p = torch.where(p == 0, 0.0, grad_p)
    grad_theta, _ = centre(response(p, alpha), grad_p, grad_zeta)
    return grad_theta, -(grad_theta * _drift(p, alpha)) if with_alpha else None


def _centre(alpha):
    """The way to centre whole rows."""
    return anchored if _may_be_steep(alpha) else centred


def dense_pullback(p, alpha, grad_p, grad_zeta, with_alpha):
    """`pullback` for whole rows, with the gradient in alpha summed to its shape."""
    grad_zeta = torch.where(p.sum(-1) == 0, 0.0, grad_zeta).unsqueeze(-1)
    grad_theta, slope = pullback(p, alpha, grad_p, grad_zeta, with_alpha, _centre(alpha))
    if not with_alpha:
        return grad_theta, None
    slope = _row_sums(slope) - grad_zeta * _shift(alpha, p)
    if alpha.dim() == 0:
        return grad_theta, slope.sum()
    over = [i for i, size in enumerate(slope.shape) if alpha.shape[i] == 1 != size]
    return grad_theta, slope.sum(over, keepdim=True) if over else slope


class _Tsallis(torch.autograd.Function):
    """Weights and soft maximum of rows of scaled scores, through every transform of PyTorch."""

    @staticmethod
    def forward(theta, alpha):
        return _newton.solve(theta, alpha)

    @staticmethod
    def setup_context(ctx, inputs, output):
        alpha = inputs[1]
        tensors = (output[0], alpha) if isinstance(alpha, torch.Tensor) else (output[0],)
        ctx.alpha = None if isinstance(alpha, torch.Tensor) else alpha
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx, grad_p, grad_zeta):
        p, *alpha = ctx.saved_tensors
        alpha = alpha[0] if alpha else ctx.alpha
        return dense_pullback(p, alpha, grad_p, grad_zeta, ctx.needs_input_grad[1])

    @staticmethod
    def jvp(ctx, theta_t, alpha_t):
        p, *alpha = ctx.saved_tensors
        alpha = alpha[0] if alpha else ctx.alpha
        move = torch.zeros_like(p) if theta_t is None else torch.where(p == 0, 0.0, theta_t)
        constant = 0.0
        if alpha_t is not None:
            move = move - alpha_t * torch.where(p == 0, 0.0, _drift(p, alpha))
            constant = torch.where(p.sum(-1) == 0, 0.0, (alpha_t * _shift(alpha, p)).squeeze(-1))
        moved, mean = _centre(alpha)(response(p, alpha), move)
        return moved, mean.squeeze(-1) - constant

    @staticmethod
    def vmap(info, in_dims, theta, alpha):
        if in_dims[0] is not None:
            theta = theta.movedim(in_dims[0], 0)
        if in_dims[1] is not None:
            alpha = alpha.movedim(in_dims[1], 0)
            if in_dims[0] is None:
                theta = theta.expand(info.batch_size, *theta.shape)
        elif isinstance(alpha, torch.Tensor):
            alpha = alpha.unsqueeze(0)
        return _Tsallis.apply(theta, alpha), (0, 0)


@torch.library.custom_op("eotcourse::tsallis", mutates_args=())
def _traced(theta: torch.Tensor, alpha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What `torch.compile` sees of `_Tsallis`: one operation with a known shape."""
    return _newton.solve(theta, alpha.item() if alpha.dim() == 0 else alpha)


@_traced.register_fake
def _(theta, alpha):
    return theta.new_empty(theta.shape), theta.new_empty(theta.shape[:-1])


def _traced_context(ctx, inputs, output):
    ctx.save_for_backward(output[0], inputs[1])


def _traced_backward(ctx, grad_p, grad_zeta):
    p, alpha = ctx.saved_tensors
    return dense_pullback(p, alpha, grad_p, grad_zeta, ctx.needs_input_grad[1])


_traced.register_autograd(_traced_backward, setup_context=_traced_context)


class _Ragged(torch.autograd.Function):
    """Weights and soft maximum of rows whose support is known, which is all that is touched."""

    @staticmethod
    def forward(ctx, rows, alpha, tau, support):
        flat, row, weights, zeta = support
        p = torch.zeros_like(rows)
        p.view(-1).scatter_(0, flat, weights)
        tensors = (alpha,) if isinstance(alpha, torch.Tensor) else ()
        ctx.order = alpha.item() if tensors and alpha.dim() == 0 else None if tensors else alpha
        ctx.tau = tau
        ctx.save_for_backward(p, flat, row, weights, *tensors)
        return p, zeta.squeeze(-1)

    @staticmethod
    def backward(ctx, grad_p, grad_zeta):
        p, flat, row, weights, *alpha = ctx.saved_tensors
        alpha = alpha[0] if alpha else ctx.order
        with_alpha = ctx.needs_input_grad[1]
        if torch.is_grad_enabled():  # the gradient's own graph needs the weights, not a copy
            grad, slope = dense_pullback(p, alpha, grad_p, grad_zeta, with_alpha)
            return grad / ctx.tau, slope, None, None

        def sums(x):
            return x.new_zeros(len(p)).index_add_(0, row, x)

        def spread(x):
            return x.index_select(0, row)

        def centre(u, x, total):
            return centred(u, x, total, lambda x: spread(sums(x)))

        order = spread(alpha.view(-1)) if ctx.order is None else ctx.order
        upstream = grad_p.reshape(-1).index_select(0, flat)
        entry, slope = pullback(
            weights, order, upstream, spread(grad_zeta), with_alpha, centre
        )
        grad = torch.zeros_like(p)
        grad.view(-1).scatter_(0, flat, entry / ctx.tau)
        if with_alpha:
            grad_zeta = torch.where(sums(weights) == 0, 0.0, grad_zeta).unsqueeze(-1)
            slope = sums(slope).unsqueeze(-1) - grad_zeta * _shift(alpha, p)
            slope = slope if ctx.order is None else slope.sum()
        return grad, slope, None, None


def _support(rows, alpha, tau):
    """The support of flattened rows if that is the way to go, else None.

    The choice depends on the values, so that every transform of PyTorch takes the other way.
    """
    transformed = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    if transformed or not _ragged.pays(rows, alpha, tau):
        return None
    tensors = [x for x in (rows, alpha) if isinstance(x, torch.Tensor)]
    if any(unpack_dual(x).tangent is not None for x in tensors):
        return None
    if isinstance(alpha, torch.Tensor):
        alpha = alpha.detach() if alpha.dim() else alpha.item()
    return _ragged.find(rows.detach(), alpha, tau)


def tsallis(rows, alpha, tau=1.0):
    r"""Weights and soft maximum of the Tsallis problem, for rows (last dimension) of scores.

    .. math:: p_j = \exp_\alpha(\theta_j - \zeta), \qquad \sum_j p_j = 1, \qquad \theta = s/\tau;

    alpha = 1 is softmax and its log-sum-exp. `alpha` and `tau` come from `order_rows` and
    `temperature_rows`.

    >>> tsallis(torch.tensor([[1.0, 0.5, 0.0]]), 1.5)
    (tensor([[0.6242, 0.2917, 0.0841]]), tensor([1.4199]))
    """
    if isinstance(alpha, torch.Tensor):
        shape = torch.broadcast_shapes(rows.shape[:-1], alpha.shape[:-1])
        rows = rows.expand(shape + rows.shape[-1:])
    elif alpha == 1:
        theta, top = scaled_rows(rows, tau)
        p, zeta = gibbs(theta)
        return p, zeta + (top / tau).squeeze(-1)
    if rows.shape[-1] >= _ragged.SHORTEST:
        flat = rows.reshape(-1, rows.shape[-1])
        order = alpha
        if isinstance(alpha, torch.Tensor):
            one = alpha.numel() == 1
            order = alpha.reshape(()) if one else alpha.expand(shape + (1,)).reshape(-1, 1)
        support = _support(flat, order, tau)
        if support is not None:
            p, zeta = _Ragged.apply(flat, order, tau, support)
            return p.view(rows.shape), zeta.view(rows.shape[:-1])
    theta, top = scaled_rows(rows, tau)
    if torch.compiler.is_compiling():
        order = alpha if isinstance(alpha, torch.Tensor) else torch.tensor(alpha).double()
        p, zeta = _traced(theta, order)
    else:
        p, zeta = _Tsallis.apply(theta, alpha)
    return p, zeta + (top / tau).squeeze(-1)


def entmax(s, alpha=1.5, tau=1.0, dim=-1):
    r"""The distribution that trades score against Tsallis entropy: softmax with exact zeros.

    Solves, for every row of scores,

    .. math:: \max_{p \in \Delta} \; \langle s, p\rangle - \tau\,\Omega_\alpha(p), \qquad
              \Omega_\alpha(p) = \frac{\sum_j p_j^\alpha - 1}{\alpha(\alpha-1)},

    whose only solution is :math:`p_j = [(\alpha-1) s_j/\tau - \kappa]_+^{1/(\alpha-1)}`, with
    kappa such that the weights sum to one. For alpha = 1 it is `softmax` (the limit), for
    alpha = 2 `sparsemax`; for every alpha > 1 entries far enough below the top get exactly 0.

    Parameters
    ----------
    s : Tensor, shape (..., n, ...)
        Raw scores: `tau` divides them here and nowhere else.
    alpha : float or Tensor
        At least 1 and finite. A tensor broadcasts with `dim` kept (size 1) and may ask for its
        gradient.
    tau : float or Tensor
        Temperature, positive and finite; a tensor as for `alpha`.
    dim : int
        The dimension along which the weights sum to one.

    Returns
    -------
    Tensor
        Weights of the shape and dtype of `s` (the half precisions are computed in float32).
        Masks, empty rows, ties, NaN and +inf are treated as by `softmax`.

    Raises
    ------
    TypeError
        As `softmax`, and for an alpha of a type that isn't a temperature's: `entmax(s, True)`.
    ValueError
        For alpha below 1 or a temperature that isn't positive, by value. Inside `torch.vmap` and
        `torch.compile` the values of a *tensor* can't be read; there a wrong one gives NaN.

    Notes
    -----
    Peters, Niculae and Martins, "Sparse sequence-to-sequence models", ACL 2019; the gradient in
    alpha: Correia, Niculae and Martins, "Adaptively sparse transformers", EMNLP 2019.

    The map is continuously differentiable in the scores for alpha < 2, piecewise linear at 2,
    and for alpha > 2 only Hoelder continuous with exponent 1/(alpha - 1) where entries enter
    the support together. The weights are right to a few eps for the differences (s - max s) / tau
    as they are rounded; where these are not exact, that rounding can move a weight at the edge of
    the support by eps^(1/(alpha-1)), in float32 about 4e-4 at alpha = 3 and 0.2 at alpha = 10.
    Gradients for alpha > 2 grow with p^(2-alpha), without bound as a weight p gets small, and keep
    their digits until that power reaches 2e31 in float32 and 1e301 in float64, where it is cut
    off. One such weight in a row costs nothing; with several the row's gradients are finite, and
    no more is promised.

    Examples
    --------
    >>> entmax(torch.tensor([1.0, 0.5, 0.0]))
    tensor([0.6242, 0.2917, 0.0841])
    >>> entmax(torch.tensor([4.0, 2.0, 0.0]), alpha=2.0, tau=4.0)
    tensor([0.7500, 0.2500, 0.0000])
    """
    rows = to_last(working(s), dim)
    order, tau = order_rows(alpha, rows, dim), temperature_rows(tau, rows, dim)
    return tsallis(rows, order, tau)[0].movedim(-1, dim).to(s.dtype)


def sparsemax(s, tau=1.0, dim=-1):
    r"""The Euclidean projection of the scaled scores onto the simplex.

    Solves :math:`\max_{p \in \Delta} \langle s, p\rangle - \frac{\tau}{2} |p|^2`; the solution
    :math:`p_j = (s_j/\tau - \kappa)_+` is the point of the simplex closest to s / tau. It is
    `entmax` with alpha = 2: same arguments, results and errors.

    Notes
    -----
    Martins and Astudillo, "From softmax to sparsemax: a sparse model of attention and multi-label
    classification", ICML 2016.

    Examples
    --------
    >>> sparsemax(torch.tensor([0.1, 0.6, 1.0]))
    tensor([0.0000, 0.3000, 0.7000])
    """
    return entmax(s, 2.0, tau, dim)
