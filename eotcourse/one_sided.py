"""Attention as one-sided entropic transport: every query solves its own problem over the keys."""

import math
import numbers
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch.nn import functional as F

from .engine import blockwise
from .priors import Causal, bias_of_rows, broadcasts_to
from .regularizers import Shannon, Tsallis, member
from .simplex import check_floating, working

_CAUSAL = Causal()

_WORTH_BLOCKS = 1 << 18

# What `eotcourse.nn.record_advantages` lets see the weights of every call, and give them back.
WATCHERS = ContextVar("watchers of attention", default=())


class Aux(NamedTuple):
    """What attention knows besides its output.

    `threshold` is the soft maximum of each query's scaled scores, shape (..., q_len), float32 for
    the half precisions; `weights` are the weights before dropout, shape (..., q_len, k_len), or
    None unless asked for.
    """

    threshold: torch.Tensor
    weights: torch.Tensor | None = None


def attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
    *,
    regularizer=None,
    causal_align="top_left",
    backend="auto",
    return_aux=False,
    need_weights=False,
):
    r"""Attention: the average of the values under the solution of each query's problem.

    For query i with raw scores :math:`s_j = \langle q_i, k_j\rangle` and tau = 1 / `scale`,

    .. math:: o_i = \sum_j p_j v_j, \qquad
              p = \mathrm{argmax}_{p \in \Delta} \; \langle s, p\rangle - \tau\,\Omega(p).

    With the default regulariser this is `torch.nn.functional.scaled_dot_product_attention`, whose
    first eight arguments these are. `backend` says whether all weights are formed at once, which is
    the specification, or never.

    Parameters
    ----------
    query : Tensor, shape (..., q_len, d)
    key : Tensor, shape (..., k_len, d)
    value : Tensor, shape (..., k_len, d_v)
        Same dtype and device; leading dimensions broadcast. Heads are the dimension before the
        length.
    attn_mask : Tensor, optional
        Broadcasts to (..., q_len, k_len). Boolean: True = may attend. Floating point (float32 or
        the dtype of the query): added to the scaled scores; only -inf excludes a key.
    dropout_p : float
        Probability with which a weight is dropped, in [0, 1], always applied. The kept weights
        are divided by 1 - dropout_p.
    is_causal : bool
        Query i attends to keys j <= i (see `causal_align`). Together with `attn_mask`, both hold.
    scale : float, optional
        1 / tau, applied exactly once; 1 / sqrt(d) by default. 0 is tau =
        infinity: all allowed keys are equal, up to mask and prior. Negative values are refused
        here, though PyTorch takes them: no temperature corresponds to them.
    enable_gqa : bool
        Let consecutive groups of query heads share one key (and value) head.
    regularizer : Regularizer, optional
        `Shannon()` by default. Its prior is added to the scaled scores.
    causal_align : {"top_left", "bottom_right"}
        Position of query i: i, or i + k_len - q_len so that the last query sees every key. Holds
        for `is_causal` and for every prior.
    backend : {"auto", "dense", "blockwise", "triton"}
        "dense" forms all weights; it is the specification. "blockwise" needs memory linear in the
        lengths and gives the same results, to rounding, and first derivatives, for tensors on a
        CPU, `Shannon`, and `Tsallis` with an alpha per head at most (softmax with `ALiBi` leaves
        out far keys that have together at most half a unit in the last place of a row's weight:
        to rounding of the largest value, then). "auto" takes it for such
        problems from 2**18 pairs of query and key on, and else "dense": for `need_weights`,
        inside `torch.compile`, `torch.func` and `eotcourse.nn.record_advantages`, and
        for forward-mode derivatives. "triton" does the same on a GPU, in float32 and the half
        precisions, for alpha up to 2 and the priors of `eotcourse.priors`, without dropout; it
        goes through `torch.compile`, and the result has the accuracy of the query's dtype. These
        kernels have been checked in Triton's interpreter and compiled for an H100, but neither
        run nor timed on a GPU; "auto" doesn't take them.
    return_aux : bool
        Also return an `Aux`.
    need_weights : bool
        Fill in `Aux.weights`; needs `return_aux`.

    Returns
    -------
    Tensor, shape (..., q_len, d_v), or (Tensor, Aux)
        In the dtype of the query (the autocast dtype under autocast); the half precisions are
        computed in float32. A query that may attend to nothing has weights 0, output 0, gradients
        0 and threshold -inf. Finite keys and values at excluded positions change no bit.

    Raises
    ------
    TypeError
        For what isn't a tensor or a number, dtypes that aren't floating point or differ, and
        masks that are neither boolean nor floating point.
    ValueError
        For shapes, devices, probabilities, scales or names that don't fit, naming them; for what
        the backend that was named can't do.
    RuntimeError
        For a second derivative of "blockwise" or "triton".

    Notes
    -----
    Vaswani et al., "Attention is all you need", NIPS 2017. Grouped heads: Ainslie et al., "GQA:
    training generalized multi-query transformer models from multi-head checkpoints", EMNLP 2023.

    Examples
    --------
    >>> q, k, v = torch.tensor([[1.0]]), torch.tensor([[4.0], [2.0], [0.0]]), torch.eye(3)
    >>> attention(q, k, v, scale=0.5)
    tensor([[0.6652, 0.2447, 0.0900]])
    >>> out, aux = attention(q, k, v, scale=0.5, is_causal=True, return_aux=True)
    >>> out, aux.threshold
    (tensor([[1., 0., 0.]]), tensor([2.]))
    """
    if backend not in ("auto", "dense", "blockwise", "triton"):
        raise ValueError(f"backend {backend!r} is unknown")
    if causal_align not in ("top_left", "bottom_right"):
        raise ValueError(f"causal_align must be top_left or bottom_right, got {causal_align!r}")
    if need_weights and not return_aux:
        raise ValueError("need_weights=True needs return_aux=True")
    if not 0.0 <= _number(dropout_p, "dropout_p") <= 1.0:
        raise ValueError(f"dropout_p must be in [0, 1], got {dropout_p}")
    regularizer = member(regularizer)

    for name, x in (("query", query), ("key", key), ("value", value)):
        check_floating(x, name)
    if attn_mask is not None and not isinstance(attn_mask, torch.Tensor):
        raise TypeError(f"attn_mask must be a torch.Tensor, got {type(attn_mask).__name__}")
    device_type = query.device.type
    if torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type):
        dtype = torch.get_autocast_dtype(device_type)
        if attn_mask is not None and _autocasts(query) and _autocasts(attn_mask):
            attn_mask = attn_mask.to(dtype)
        query, key, value = (x.to(dtype) if _autocasts(x) else x for x in (query, key, value))
        with torch.autocast(device_type, enabled=False):
            return attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa,
                regularizer=regularizer, causal_align=causal_align, backend=backend,
                return_aux=return_aux, need_weights=need_weights,
            )
    _check_inputs(query, key, value, attn_mask)
    by_kernels = backend == "triton" and (torch.compiler.is_compiling() or not WATCHERS.get())
    # The kernels widen and repeat nothing: of their tensors only the shapes are looked at here.
    tensors = (x.detach().to("meta") if by_kernels else x for x in (query, key, value))
    q, k, v = map(working, tensors)
    if enable_gqa:
        k, v = _share_heads(q, k, "key"), _share_heads(q, v, "value")
    _check_leading(q, k, v)

    scale = _check_scale(scale, q.shape[-1])
    shape = (*torch.broadcast_shapes(q.shape[:-2], k.shape[:-2]), q.shape[-2], k.shape[-2])
    if attn_mask is not None and not broadcasts_to(attn_mask.shape, shape):
        raise ValueError(
            f"attn_mask of shape {tuple(attn_mask.shape)} doesn't broadcast to scores of shape "
            f"{tuple(shape)}"
        )
    first_query = k.shape[-2] - q.shape[-2] if causal_align == "bottom_right" else 0
    if by_kernels:
        from .engine import kernels  # importing Triton takes a moment

        tensors = dict(query=query, key=key, value=value, attn_mask=attn_mask)
        tensors.update(regularizer.named_parameters())
        order = _order(regularizer, q, shape)
        obstacle = _rows_obstacle(regularizer) or kernels.obstacle(
            {name: x for name, x in tensors.items() if x is not None}, order, regularizer.prior,
            dropout_p, need_weights,
        )  # fmt: skip
        if obstacle is not None:
            raise ValueError(f"backend 'triton' can't be used: {obstacle}")
        out, threshold = kernels.attend(
            query, key, value, order, scale, attn_mask, first_query, is_causal,
            regularizer.prior, enable_gqa,
        )  # fmt: skip
        return (out, Aux(threshold)) if return_aux else out
    if _goes_blockwise(backend, q, k, v, attn_mask, regularizer, shape, need_weights):
        reach = blockwise.Reach(first_query, math.inf, 0 if is_causal else math.inf)
        order = _order(regularizer, q, shape)
        out, threshold = blockwise.attend(
            q, k, v, order, scale, attn_mask, reach, regularizer.prior, dropout_p
        )
        out = out.to(query.dtype)
        return (out, Aux(threshold)) if return_aux else out

    theta = (q * scale) @ k.mT
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            theta = torch.where(attn_mask, theta, -math.inf)
        else:
            theta = _add(theta, attn_mask.to(theta.dtype))
    if is_causal:
        theta = _add(theta, bias_of_rows(_CAUSAL, theta, first_query))
    if regularizer.prior is not None:
        theta = _add(theta, bias_of_rows(regularizer.prior, theta, first_query))

    weights, threshold = regularizer.solve(theta)
    if not torch.compiler.is_compiling():
        for watch in WATCHERS.get():
            weights = watch(weights, value, regularizer)
    out = (F.dropout(weights.contiguous(), dropout_p) if dropout_p else weights) @ v
    out = out.to(query.dtype)
    if not return_aux:
        return out
    return out, Aux(threshold, weights.to(query.dtype) if need_weights else None)


def _goes_blockwise(backend, q, k, v, mask, regularizer, shape, need_weights):
    """Whether a call is computed block by block; `ValueError` if it was told to and can't."""
    if backend == "dense":
        return False
    if backend == "auto" and (
        shape[-2] * shape[-1] < _WORTH_BLOCKS or torch.compiler.is_compiling() or WATCHERS.get()
    ):
        return False
    obstacle = "need_weights=True needs all weights" if need_weights else None
    obstacle = _rows_obstacle(regularizer) or obstacle
    if obstacle is None:
        tensors = [x for x in (q, k, v, mask, *regularizer.parameters()) if x is not None]
        obstacle = blockwise.obstacle(tensors, _order(regularizer, q, shape), regularizer.prior)
    if obstacle is not None and backend == "blockwise":
        raise ValueError(f"backend 'blockwise' can't be used: {obstacle}")
    return obstacle is None and not WATCHERS.get()


def _rows_obstacle(regularizer):
    """Why a regulariser's weights aren't found one block of a row after the other, or None."""
    if type(regularizer).solve in (Shannon.solve, Tsallis.solve):
        return None
    return f"a {type(regularizer).__name__} needs whole rows of weights"


def _order(regularizer, q, shape):
    """The order alpha of the regulariser's problem, for scores of this shape."""
    if not isinstance(regularizer, Tsallis):
        return 1.0
    return regularizer._order(q.new_zeros(()).expand(shape))


def _add(theta, bias):
    # Excluding with where, not with a sum, holds even where a key of size 1e38 gave theta = inf.
    return torch.where(bias == -math.inf, -math.inf, theta + bias)


def _autocasts(x):
    """Whether autocast lowers the precision of `x`: it leaves float64 alone."""
    return x.is_floating_point() and x.dtype != torch.float64


def _check_inputs(query, key, value, attn_mask):
    tensors = {"query": query, "key": key, "value": value}
    for name, x in tensors.items():
        if x.dim() < 2:
            raise ValueError(f"{name} needs at least two dimensions, got {tuple(x.shape)}")
        if x.dtype != query.dtype:
            raise TypeError(f"{name} is {x.dtype}, query is {query.dtype}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"query of shape {tuple(query.shape)} and key of shape {tuple(key.shape)} differ in "
            "their last dimension"
        )
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"key of shape {tuple(key.shape)} and value of shape {tuple(value.shape)} differ in "
            "length"
        )
    if attn_mask is not None:
        if attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
            raise TypeError(
                f"attn_mask must be boolean, float32 or {query.dtype}, got {attn_mask.dtype}"
            )
        tensors["attn_mask"] = attn_mask
    for name, x in tensors.items():
        if x.device != query.device:
            raise ValueError(f"{name} is on {x.device}, query on {query.device}")


def _check_leading(q, k, v):
    try:
        torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    except RuntimeError:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(f"leading dimensions of {shapes} don't broadcast") from None


def _share_heads(q, x, name):
    """`x` with its heads repeated in consecutive groups, one for each head of `q`."""
    if q.dim() < 3 or x.dim() < 3:
        raise ValueError(f"enable_gqa needs a head dimension, got {name} {tuple(x.shape)}")
    heads, shared = q.shape[-3], x.shape[-3]
    if heads == shared:
        return x
    if shared == 0 or heads % shared:
        raise ValueError(f"{heads} query heads can't be shared out over {shared} {name} heads")
    return x.repeat_interleave(heads // shared, dim=-3)


def _check_scale(scale, d):
    if scale is None:
        return 1.0 / math.sqrt(d) if d else 1.0
    if isinstance(scale, torch.Tensor):
        raise TypeError("scale must be a number; multiply the query by a tensor instead")
    if not 0.0 <= _number(scale, "scale") < math.inf:
        raise ValueError(f"scale must be finite and at least 0, got {scale}")
    return scale


def _number(value, name):
    if not isinstance(value, numbers.Real | torch.SymInt | torch.SymFloat):
        shown = "a Tensor" if isinstance(value, torch.Tensor) else repr(value)
        raise TypeError(f"{name} must be a number, got {shown}")
    return value
