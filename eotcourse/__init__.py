"""Attention as one-sided entropic optimal transport."""

__version__ = "0.1.0"
