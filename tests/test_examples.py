"""The example over many processes does what it says when started as the guides say."""

import os
import re
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT

COMMAND = "torchrun --nproc-per-node 2 examples/ring.py"
LINE = re.compile(
    r"rank (\d): (\d+) positions, largest difference (\S+), sent (\d+) \+ (\d+) bytes"
)


@pytest.fixture(scope="module")
def printed():
    program, *arguments = shlex.split(COMMAND)
    assert program == "torchrun"
    # The same program under this interpreter, on a free port: other tests may be running too.
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=240,
        env=os.environ | {"PET_STANDALONE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("name", ["README.md", "examples/ring.py", "book/src/kernel/ring.md"])
def test_the_guides_give_this_command(name):
    assert COMMAND in (ROOT / name).read_text(encoding="utf-8")


def test_two_processes_agree_with_one(printed):
    ranks = LINE.findall(printed)
    assert [int(rank) for rank, *_ in ranks] == [0, 1]
    assert sum(int(held) for _, held, *_ in ranks) == 1000
    # Single precision, on gradients of size 10; a block lost or weighted wrongly shows in the
    # first digit.
    assert all(float(gap) < 5e-5 for *_, gap, _, _ in ranks)


def test_they_send_what_the_model_says(printed):
    model = re.search(r"model: at most (\d+) \+ (\d+) bytes", printed)
    for k in (1, 2):
        assert max(int(found[2 + k]) for found in LINE.findall(printed)) == int(model[k]) > 0
