"""Attention as entropic optimal transport: the mathematics of the course, as PyTorch functions."""

from .one_sided import Aux, attention
from .priors import ALiBi, Causal, LogPrior, Padding, Window, alibi_slopes
from .regularizers import Regularizer, Shannon
from .simplex import entmax, softmax, sparsemax

__version__ = "0.1.0"

__all__ = [
    "ALiBi",
    "Aux",
    "Causal",
    "LogPrior",
    "Padding",
    "Regularizer",
    "Shannon",
    "Window",
    "alibi_slopes",
    "attention",
    "entmax",
    "softmax",
    "sparsemax",
]
