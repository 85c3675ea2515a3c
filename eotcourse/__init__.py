"""Attention as entropic optimal transport: the mathematics of the course, as PyTorch functions."""

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
