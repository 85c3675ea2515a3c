"""Paths that several test files share."""

import pathlib
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "book" / "_ext")]


@pytest.fixture(autouse=True)
def default_dtype_stays():
    """A test that leaves another default behind would fail others, whichever run after it."""
    yield
    assert torch.get_default_dtype() == torch.float32
