"""Inputs that broke real software of this kind, with right values computed two ways.

`load("case-07")` gives one case; `values(x)` turns an entry of its `inputs` or `expected`
into a float64 array: explicit lists, `{"gen": "sin", ...}` and the strings inf, -inf, nan.
"""

import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("cases.json")
CASES = {case["id"]: case for case in json.loads(FILE.read_text(encoding="utf-8"))["cases"]}


def load(case_id):
    """The case with this id, as it stands in the file."""
    return CASES[case_id]


def values(entry):
    """An input or an expected value as a float64 array."""
    if isinstance(entry, dict):
        if entry["gen"] != "sin":
            raise ValueError(f"unknown generator {entry['gen']!r}")
        index = np.arange(int(np.prod(entry["shape"])), dtype=np.float64)
        flat = entry["amp"] * np.sin(entry["freq"] * index + entry["phase"]) + entry["offset"]
        return flat.reshape(entry["shape"])
    return np.array(entry, dtype=object).astype(np.float64)


def tolerance(case, dtype="float64"):
    """Keyword arguments for `numpy.testing.assert_allclose`."""
    limits = case["tolerance"][dtype]
    return {"atol": limits.get("atol", 0.0), "rtol": limits.get("rtol", 0.0)}
