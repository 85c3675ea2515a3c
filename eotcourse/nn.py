"""Multi-head attention as a module, and a look into the backward pass of any model."""

import math
import sys
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from . import policy
from .one_sided import WATCHERS, attention
from .regularizers import Regularizer, Shannon, member
from .simplex import check_floating


class MultiheadAttention(nn.Module):
    r"""`torch.nn.MultiheadAttention` with the problem on the simplex left to choose.

    For head h with its projections of query, key and value,

    .. math:: \mathrm{head}_h = \mathrm{attention}(Q W_h^Q, K W_h^K, V W_h^V), \qquad
              \mathrm{out} = [\mathrm{head}_1, \dots, \mathrm{head}_H]\, W^O,

    where `eotcourse.attention` solves every query's problem for `regularizer`, with 1 / tau =
    1 / sqrt(embed_dim / num_heads). Arguments, parameter names, initialisation and masks are
    PyTorch's: a checkpoint of its module loads, and with the default regulariser the results are
    its results.

    .. warning::
       In both boolean masks **True = ignore**, as in `torch.nn.MultiheadAttention`. Everywhere
       else in this package, as in `scaled_dot_product_attention`, True = may attend.

    Parameters
    ----------
    embed_dim : int
        Features of query and output: the heads have embed_dim / num_heads each.
    num_heads : int
        Divides `embed_dim`.
    dropout : float
        Probability with which a weight is dropped in training, in [0, 1].
    bias : bool
        Whether the projections have a bias.
    add_bias_kv : bool
        Append a learned key and value (`bias_k`, `bias_v`) to every sequence.
    add_zero_attn : bool
        Append a key and a value of zeros. Appended keys are never masked, by `is_causal` neither.
        A prior meets them at the positions after the last key.
    kdim, vdim : int, optional
        Features of key and value; `embed_dim` by default.
    batch_first : bool
        Batched inputs are (batch, length, features), and not (length, batch, features).
    device, dtype : optional
        Of the parameters.
    regularizer : Regularizer, optional
        `Shannon()` by default. It is a submodule: what it learns is trained, saved and moved with
        this module. Tensors per head have the shape (num_heads,).
    num_kv_heads : int, optional
        Divides `num_heads`, its default. With fewer, consecutive groups of heads share a head of
        keys and values.

    Raises
    ------
    TypeError
        If `regularizer` isn't a Regularizer.
    ValueError
        For sizes below 1, heads that don't divide, and a `dropout` outside [0, 1].

    Notes
    -----
    The parameters are `in_proj_weight` (query, key and value stacked), `in_proj_bias`, `bias_k`,
    `bias_v`, `out_proj.weight` and `out_proj.bias`. When `kdim` or `vdim` differs from
    `embed_dim`, or `num_kv_heads` from `num_heads`, `q_proj_weight`, `k_proj_weight` and
    `v_proj_weight` stand for `in_proj_weight`. With fewer key heads, the parts of keys and values
    have embed_dim * num_kv_heads / num_heads rows. A regulariser's own parameters, such as
    ``regularizer.prior.slopes``, aren't in a checkpoint of PyTorch: load it with
    ``strict=False`` then.

    Vaswani et al., "Attention is all you need", NIPS 2017. Shared heads: Ainslie et al., "GQA:
    training generalized multi-query transformer models from multi-head checkpoints", EMNLP 2023.

    Examples
    --------
    >>> from eotcourse import ALiBi, alibi_slopes
    >>> layer = MultiheadAttention(4, num_heads=2, regularizer=Shannon(ALiBi(alibi_slopes(2))))
    >>> x = torch.zeros(3, 4)
    >>> out, weights = layer(x, x, x, key_padding_mask=torch.tensor([False, True, False]))
    >>> weights
    tensor([[0.5166, 0.0000, 0.4834],
            [0.5000, 0.0000, 0.5000],
            [0.4834, 0.0000, 0.5166]], grad_fn=<...>)

    A checkpoint of PyTorch's module:

    >>> theirs = nn.MultiheadAttention(4, num_heads=2)
    >>> MultiheadAttention(4, num_heads=2).load_state_dict(theirs.state_dict())
    <All keys matched successfully>
    """

    # PyTorch's encoder layers read this. If it were True they would, in evaluation, take the
    # weights away to a fused kernel that knows only softmax.
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim,
        num_heads,
        dropout=0.0,
        bias=True,
        add_bias_kv=False,
        add_zero_attn=False,
        kdim=None,
        vdim=None,
        batch_first=False,
        device=None,
        dtype=None,
        *,
        regularizer=None,
        num_kv_heads=None,
    ):
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        for name in ("embed_dim", "num_heads", "kdim", "vdim", "num_kv_heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} can't be divided among {num_heads} heads")
        if num_heads % self.num_kv_heads:
            raise ValueError(
                f"{num_heads} heads can't be shared out over num_kv_heads {self.num_kv_heads}"
            )
        if not 0.0 <= dropout <= 1.0:
            raise ValueError(f"dropout must be in [0, 1], got {dropout}")
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.add_zero_attn = add_zero_attn
        self.regularizer = member(Shannon() if regularizer is None else regularizer)

        def parameter(name, wanted, *shape):
            empty = torch.empty(shape, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, nn.Parameter(empty) if wanted else None)

        shared = self.num_kv_heads * self.head_dim
        self._rows = (embed_dim, shared, shared)
        stacked = self.kdim == self.vdim == embed_dim == shared
        parameter("in_proj_weight", stacked, 3 * embed_dim, embed_dim)
        parameter("q_proj_weight", not stacked, embed_dim, embed_dim)
        parameter("k_proj_weight", not stacked, shared, self.kdim)
        parameter("v_proj_weight", not stacked, shared, self.vdim)
        parameter("in_proj_bias", bias, sum(self._rows))
        parameter("bias_k", add_bias_kv, 1, 1, shared)
        parameter("bias_v", add_bias_kv, 1, 1, shared)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self._reset_parameters()

    def _reset_parameters(self):
        weights = (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        for weight in weights:
            if weight is not None:
                nn.init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                nn.init.zeros_(bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                nn.init.xavier_normal_(bias)

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        r"""Attend to `value` by comparing `query` with `key`.

        Parameters
        ----------
        query : Tensor, shape (L, embed_dim) or (L, N, embed_dim)
        key : Tensor, shape (S, kdim) or (S, N, kdim)
        value : Tensor, shape (S, vdim) or (S, N, vdim)
            With `batch_first` the batch N comes first; unbatched inputs never have it.
        key_padding_mask : Tensor, shape (S,) or (N, S), optional
            Boolean: **True = ignore** this key. Floating point: added to the scaled scores.
        need_weights : bool
            Also return the weights.
        attn_mask : Tensor, shape (L, S) or (N * num_heads, L, S), optional
            As `key_padding_mask`, for every pair of query and key. The first dimension of a mask
            with three runs through the heads of the first sequence, then of the second, and so
            on. What either mask excludes is excluded.
        average_attn_weights : bool
            Return the mean of the weights over the heads, or the weights of each head.
        is_causal : bool
            Query i attends to keys j <= i, whether or not `attn_mask` says so too. PyTorch takes
            it for a hint, demands `attn_mask` beside it and may then ignore either one; where
            the two agree there is no difference.

        Returns
        -------
        output : Tensor, shape of `query`
            A query that may attend to nothing gets `out_proj.bias` (zeros without bias), and its
            gradients are 0, where PyTorch has NaN.
        weights : Tensor, shape ([N,] L, S) or ([N,] num_heads, L, S), or None
            As they multiplied the values: in training after dropout, like PyTorch's. S counts the
            appended keys. Zeros for a query that may attend to nothing.

        Raises
        ------
        TypeError
            For nested tensors, inputs that aren't floating point, and masks that aren't boolean,
            float32 or of the dtype of the query.
        ValueError
            For shapes and devices that don't fit, naming them.
        """
        self._check_inputs(query, key, value)
        batched = query.dim() == 3
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))

        q, k, v = self._project(query, key, value)
        mask = self._merge(q, key.shape[1], attn_mask, key_padding_mask, is_causal, batched)
        dropout = self.dropout if self.training else 0.0
        if need_weights and dropout:
            # `attention` reports the weights before dropout: here the dropped ones are wanted.
            _, weights = self._attend(q, k, v[..., :0], mask, need_weights=True)
            weights = F.dropout(weights, dropout)
            out = weights @ v.repeat_interleave(self.num_heads // self.num_kv_heads, 1)
        else:
            out, weights = self._attend(q, k, v, mask, dropout, need_weights)

        out = out.transpose(1, 2) if batched and self.batch_first else out.permute(2, 0, 1, 3)
        out = self.out_proj(out.flatten(-2))
        if need_weights and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return out.squeeze(1), weights.squeeze(0) if need_weights else None
        return out, weights

    def _attend(self, q, k, v, mask, dropout=0.0, need_weights=False):
        out, aux = attention(
            q, k, v, mask, dropout, enable_gqa=self.num_kv_heads != self.num_heads,
            regularizer=self.regularizer, return_aux=True, need_weights=need_weights,
        )  # fmt: skip
        return out, aux.weights

    def _project(self, query, key, value):
        """The heads of query, key and value, shape (N, heads, length, head_dim)."""
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.split(self._rows)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3
        if self.in_proj_bias is not None:
            biases = self.in_proj_bias.split(self._rows)
        q, k, v = map(F.linear, (query, key, value), weights, biases)
        if self.bias_k is not None:
            k = torch.cat([k, self.bias_k.expand(len(k), 1, -1)], 1)
            v = torch.cat([v, self.bias_v.expand(len(v), 1, -1)], 1)
        if self.add_zero_attn:
            k, v = (F.pad(x, (0, 0, 0, 1)) for x in (k, v))
        return (x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for x in (q, k, v))

    def _merge(self, q, k_len, attn_mask, key_padding_mask, is_causal, batched):
        """What the masks add to the scaled scores (N, num_heads, L, S), or None."""
        n, heads, q_len, _ = q.shape
        terms = []
        if attn_mask is not None:
            pairs = (q_len, k_len)
            term = _additive(attn_mask, "attn_mask", (pairs, (n * heads, *pairs)), q)
            terms.append(term if term.dim() == 2 else term.unflatten(0, (n, heads)))
        if key_padding_mask is not None:
            shape = (n, k_len) if batched else (k_len,)
            term = _additive(key_padding_mask, "key_padding_mask", (shape,), q)
            terms.append(term[..., None, None, :])
        if is_causal:
            later = torch.ones(q_len, k_len, dtype=torch.bool, device=q.device).triu(1)
            terms.append(_exclude(later))
        if not terms:
            return None
        appended = int(self.bias_k is not None) + int(self.add_zero_attn)
        return F.pad(sum(terms), (0, appended))

    def _check_inputs(self, query, key, value):
        features = {"query": self.embed_dim, "key": self.kdim, "value": self.vdim}
        for (name, size), x in zip(features.items(), (query, key, value)):
            check_floating(x, name)
            if x.is_nested:
                raise TypeError(
                    f"{name} is a nested tensor: pass a padded one with key_padding_mask (and "
                    "enable_nested_tensor=False to nn.TransformerEncoder)"
                )
            if x.dim() not in (2, 3) or x.dim() != query.dim():
                raise ValueError(
                    f"query, key and value must all have 2 dimensions, or all 3; {name} has "
                    f"shape {tuple(x.shape)}, query {tuple(query.shape)}"
                )
            if x.shape[-1] != size:
                raise ValueError(f"{name} of shape {tuple(x.shape)} must have {size} features")
        if key.shape[:-1] != value.shape[:-1]:
            raise ValueError(
                f"key of shape {tuple(key.shape)} and value of shape {tuple(value.shape)} differ "
                "in length or batch"
            )
        batch = 0 if self.batch_first else 1
        if query.dim() == 3 and query.shape[batch] != key.shape[batch]:
            raise ValueError(
                f"query of shape {tuple(query.shape)} and key of shape {tuple(key.shape)} differ "
                f"in their batch, dimension {batch}"
            )


def _exclude(ignored):
    """-inf where `ignored` is True, 0 elsewhere."""
    zeros = torch.zeros(ignored.shape, dtype=torch.float32, device=ignored.device)
    return zeros.masked_fill(ignored, -math.inf)


def _additive(mask, name, shapes, q):
    """The term a mask of PyTorch's module adds to scaled scores, once it fits."""
    if mask.dtype not in (torch.bool, torch.float32, q.dtype):
        raise TypeError(f"{name} must be boolean, float32 or {q.dtype}, got {mask.dtype}")
    if mask.device != q.device:
        raise ValueError(f"{name} is on {mask.device}, query on {q.device}")
    if tuple(mask.shape) not in shapes:
        raise ValueError(
            f"{name} must have shape {' or '.join(map(str, shapes))}, got {tuple(mask.shape)}"
        )
    return _exclude(mask) if mask.dtype == torch.bool else mask


@dataclass(eq=False)
class AttentionCall:
    """One call of `eotcourse.attention`, as `record_advantages` has seen it.

    All tensors are detached, and float32 for the half precisions.

    Attributes
    ----------
    weights : Tensor, shape (..., q_len, k_len)
        Before dropout, for every head of the query.
    regularizer : Regularizer
        Of the call.
    name : str or None
        Of the innermost module of the recorded model that made the call.
    utility : Tensor, shape of `weights`, or None
        Minus the gradient of the loss in the weights. None until a backward pass has gone through
        the weights; a further pass replaces what the one before has left.
    baseline : Tensor, shape (..., q_len), or None
        See `eotcourse.policy.baseline`; with the regulariser as it was in the backward pass.
    """

    weights: torch.Tensor
    regularizer: Regularizer
    name: str | None = None
    utility: torch.Tensor | None = None
    baseline: torch.Tensor | None = None

    @property
    def advantage(self):
        """`utility` minus `baseline`, shape of `weights`; None until they are there."""
        return None if self.utility is None else self.utility - self.baseline.unsqueeze(-1)

    def _see(self, grad_weights):
        self.utility = -grad_weights.detach()
        with torch.no_grad():
            self.baseline = policy.baseline(self.utility, self.weights, self.regularizer)


@contextmanager
def record_advantages(model=None):
    r"""Record what the backward pass thinks of every key, in any model.

    Every call of `eotcourse.attention` made inside is seen, under whatever name it was imported.
    For weights p and loss L, once backward has run,

    .. math:: a_j = -\frac{\partial L}{\partial p_j}, \qquad
              \bar a = \frac{\langle u, a\rangle}{\langle u, 1\rangle}, \qquad
              \text{advantage}_j = a_j - \bar a .

    What the model computes, and its gradients, don't change.

    Parameters
    ----------
    model : nn.Module, optional
        Record only the calls made while it or a module of it runs, with the module's name.

    Yields
    ------
    list of AttentionCall
        In the order of the calls, and filled while they are made. Backward may run inside or
        later. Clear the list to let go of the tensors.

    Raises
    ------
    TypeError
        For a model that isn't an `nn.Module`.

    Notes
    -----
    With dropout the utility is that of the weight before it: 0 for a key that was dropped. Where
    the loss also reads the weights themselves, the utility counts that. A call under
    `torch.no_grad` is recorded, but its utility stays None.

    Calls of the thread (or asyncio task) that opened the context are seen, and of no other;
    contexts nest, and each sees all calls made inside it. What `torch.compile` was given before
    runs uncompiled inside; what it is given inside may not be seen. Activation checkpointing
    makes every call twice, and backward goes through one of the two. Inside `torch.vmap`, and the
    transforms built on it, the recorded tensors can't be read from outside.

    Examples
    --------
    >>> q = torch.tensor([[0.0]], requires_grad=True)
    >>> k, v = torch.tensor([[1.0], [-1.0]]), torch.tensor([[3.0], [1.0]])
    >>> with record_advantages() as calls:
    ...     attention(q, k, v).sum().backward()
    >>> calls[0].weights, calls[0].utility
    (tensor([[0.5000, 0.5000]]), tensor([[-3., -1.]]))
    >>> calls[0].baseline, calls[0].advantage
    (tensor([-2.]), tensor([[-1.,  1.]]))
    """
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    calls = []
    thread = threading.local()

    def running():
        """Names of the modules of `model` that are in their forward, in this thread."""
        return thread.__dict__.setdefault("names", [])

    def watch(weights, value, regularizer):
        if model is not None and not running():
            return weights
        if torch.is_grad_enabled() and value.requires_grad and not weights.requires_grad:
            # Nothing before the weights learns, so that no gradient would come to them.
            weights = weights.detach().requires_grad_()
        name = running()[-1] if model is not None else None
        call = AttentionCall(weights.detach(), regularizer, name)
        if weights.requires_grad:
            weights.register_hook(call._see)
        calls.append(call)
        return weights

    with ExitStack() as stack:
        for name, module in () if model is None else model.named_modules():

            def enter(module, args, name=name):
                running().append(name)

            def leave(module, args, output, name=name):
                # After an error in another hook, `enter` may not have been called.
                if running()[-1:] == [name]:
                    running().pop()

            for hook in (
                module.register_forward_pre_hook(enter),
                module.register_forward_hook(leave, always_call=True),
            ):
                stack.callback(hook.remove)
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        token = WATCHERS.set((*WATCHERS.get(), watch))
        stack.callback(WATCHERS.reset, token)
        yield calls
