"""Attention without the matrix of weights: what `eotcourse.attention` calls by `backend`."""
