"""Attention as entropic optimal transport: the mathematics of the course, as PyTorch functions."""

import importlib

from .losses import entmax_loss, fenchel_young_loss, softmax_loss, sparsemax_loss
from .one_sided import Aux, attention
from .priors import ALiBi, Causal, LogPrior, Padding, Window, alibi_slopes
from .regularizers import LearnableTsallis, Regularizer, Shannon, Tsallis
from .simplex import entmax, softmax, sparsemax

__version__ = "0.1.0"

__all__ = [
    "ALiBi",
    "Aux",
    "Causal",
    "LearnableTsallis",
    "LogPrior",
    "Padding",
    "Regularizer",
    "Shannon",
    "Tsallis",
    "Window",
    "alibi_slopes",
    "attention",
    "entmax",
    "entmax_loss",
    "fenchel_young_loss",
    "softmax",
    "softmax_loss",
    "sparsemax",
    "sparsemax_loss",
]

_ON_FIRST_USE = ("geometry", "nn", "policy", "transport")


def __getattr__(name):
    if name in _ON_FIRST_USE:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_ON_FIRST_USE})
