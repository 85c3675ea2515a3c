"""The benchmarks run, on sizes that say nothing about speed, and report what they found."""

import importlib
import json
import math
import os
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT

from benchmarks import __main__ as command
from benchmarks import scaling
from benchmarks.harness import Row, judge, line, medians, shrunk, without

RESULT = {"goal", "what", "ours", "peer", "more", "must", "aim", "reached", "verdict", "note"}
POINT = {"way", "n", "seconds", "peer", "ratio", "mib"}
SHARE = {"deviation", "density", "alpha", "n", "sparse", "blocks", "chosen"}


def one(more, must, aim, ours, peer):
    return judge([Row("C0", "it", "ours", "peer", more, must, aim)], {"ours": ours, "peer": peer})[0]


@pytest.mark.parametrize("more, must, aim, ours, peer, reached, verdict", [
    (False, 0.5, 0.25, 1, 4, 0.25, "aim"),
    (False, 0.5, 0.25, 2, 4, 0.5, "must"),
    (False, 0.5, 0.25, 3, 4, 0.75, "MISSED"),
    (True, 2, 4, 1, 4, 4, "aim"),
    (True, 2, 4, 2, 4, 2, "must"),
    (True, 2, 4, 4, 4, 1, "MISSED"),
    (False, None, 0.25, 3, 4, 0.75, "report"),
    (False, None, 0.25, 1, 4, 0.25, "aim"),
    (True, 2, 4, 4, math.nan, math.nan, "MISSED"),
])  # fmt: skip
def test_a_verdict_is_about_the_ratio_the_row_asks_for(
    more, must, aim, ours, peer, reached, verdict
):
    result = one(more, must, aim, ours, peer)
    assert result["verdict"] == verdict
    assert result["reached"] == pytest.approx(reached, nan_ok=True)
    assert set(result) == RESULT


def test_a_line_has_goals_result_and_verdict():
    text = line(one(False, 5e-6, 1e-6, 3.8e-6, 1))
    assert text.split() == "C0 it 3.8e-06 must <= 5e-06 aim <= 1e-06 must".split()
    assert "must >= 20" in line(one(True, 20, 40, 1, 25))
    report = line(one(False, None, 0.2, 1, 4))
    assert "must <= -" in report and report.endswith("report")
    missing = without(Row("C0", "it", "a", "b", False, 1, 1), "no compiler")
    assert set(missing) == RESULT and missing["reached"] is None
    assert line(missing).split()[2] == "-" and line(missing).endswith("not run  no compiler")


def test_medians_are_of_counted_calls_in_turn():
    called, ticks = [], iter([0, 5, 0, 1, 10, 12, 10, 11, 20, 29, 20, 21])
    calls = {"a": lambda: called.append("a"), "b": lambda: called.append("b")}
    found = medians(calls, 3, clock=lambda: next(ticks))
    assert found == {"a": 5, "b": 1}
    assert called == ["a", "a", "b", "b"] * 3


def test_lengths_shrink_only_when_asked(monkeypatch):
    monkeypatch.delenv("BENCHMARKS_SHRINK", raising=False)
    assert shrunk(2048) == 2048
    monkeypatch.setenv("BENCHMARKS_SHRINK", "8")
    assert shrunk(2048) == 256 and shrunk(64) == 48


def test_the_parts_have_steps_and_can_be_chosen():
    every = command.plan([], False)
    assert {part for part, _, _ in every} == set(command.PARTS)
    for part in command.PARTS:
        module = importlib.import_module(f"benchmarks.{part}")
        mine = [name for p, name, _ in every if p == part]
        assert mine == list(module.STEPS) and set(getattr(module, "QUICK", mine)) <= set(mine)
    chosen = command.plan(["maps", "attention/C8"], False)
    assert {(part, name) for part, name, _ in chosen} == {
        ("attention", "C8"), *(("maps", name) for p, name, _ in every if p == "maps")
    }  # fmt: skip
    assert len(command.plan([], True)) < len(every)
    with pytest.raises(SystemExit, match="no part or step C8, gpu; there are maps/"):
        command.plan(["gpu", "C8", "maps"], False)


def test_what_is_said_of_the_machine_names_no_host_and_no_path():
    import getpass
    import platform

    said = json.dumps(command.machine())
    assert platform.node() not in said and str(ROOT) not in said
    assert f'"{getpass.getuser()}"' not in said
    assert command.machine()["cores"] == os.cpu_count()


def test_an_interrupted_run_is_continued(tmp_path, monkeypatch, capsys):
    out, called = tmp_path / "b.json", []

    def step(name, fail):
        def measure(repeats):
            called.append(name)
            if fail:
                raise KeyboardInterrupt
            return judge([Row("C0", name, "a", "b", False, 1, 1)], {"a": 1, "b": 2})

        return ("maps", name, measure)

    monkeypatch.setattr(command, "plan", lambda only, quick: [step("x", False), step("y", True)])
    with pytest.raises(KeyboardInterrupt):
        command.main(["--out", str(out)])
    assert [r["what"] for r in json.loads(out.read_text())["rows"]] == ["x"]
    monkeypatch.setattr(command, "plan", lambda only, quick: [step("x", True), step("y", False)])
    assert not command.main(["--out", str(out), "--resume"])
    assert called == ["x", "y", "y"]
    assert [r["what"] for r in json.loads(out.read_text())["rows"]] == ["x", "y"]
    assert "[2/2] maps/y" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["--out", str(out), "--resume", "--repeats", "2"])
    assert "of another run: repeats" in capsys.readouterr().err


def test_a_quick_run_cannot_replace_the_table(capsys):
    with pytest.raises(SystemExit):
        command.main(["--quick"])
    assert "must not replace" in capsys.readouterr().err


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A quick run of everything but the compiler, as it is run, and where its files are."""
    out = tmp_path_factory.mktemp("benchmarks") / "quick.json"
    steps = command.plan([], True)
    names = [f"{part}/{name}" for part, name, _ in steps if "flex" not in name]
    call = [sys.executable, "-m", "benchmarks", "--quick", "--only", ",".join(names)]
    done = subprocess.run([*call, "--out", str(out)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return names, json.loads(out.read_text(encoding="utf-8")), out, done


def test_a_quick_run_writes_every_step(quick):
    names, record, _, done = quick
    assert record["done"] == names
    assert f"[{len(names)}/{len(names)}] " in done.stderr
    goals = {r["goal"] for r in record["rows"]}
    assert goals >= {f"C{i}" for i in (1, 2, 3, *range(5, 17))}
    assert all(set(r) >= RESULT and r["reached"] > 0 for r in record["rows"])
    assert all(set(p) == POINT and p["seconds"] > 0 for p in record["scaling"])
    assert all(set(p) == SHARE and 0 < p["density"] <= 1 for p in record["density"])
    assert {p["way"] for p in record["scaling"]} == set(scaling.WAYS)
    assert len(record["density"]) == len(scaling.DEVIATIONS[2.0])
    made = record["made"]
    assert made["command"] == "python -m benchmarks --quick" and made["threads"] == 1
    assert set(command.machine()) < set(made)


def test_the_table_shows_every_row_and_the_exit_status_every_miss(quick):
    _, record, out, done = quick
    text = out.with_suffix(".txt").read_text(encoding="utf-8")
    assert all(line(r) in text for r in record["rows"])
    assert all(line(r) in done.stdout for r in record["rows"])
    assert sum(" MiB" in row and row.startswith(p["way"]) for p in record["scaling"]
               for row in text.splitlines()) >= len(record["scaling"])  # fmt: skip
    assert text.count("density ") == len(record["density"])
    assert done.returncode == any(r["verdict"] == "MISSED" for r in record["rows"])
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


# ---------------------------------------------------------------- the stored run

STORED = json.loads(command.TABLE.read_text(encoding="utf-8"))


def test_the_stored_run_says_how_it_was_made_and_is_complete():
    made = STORED["made"]
    assert made["command"] == "python -m benchmarks" and made["threads"] == 1
    assert set(made) == {"command", "repeats", "threads", "date", *command.machine()}
    assert len(STORED["done"]) == len(set(STORED["done"]))
    assert {name.partition("/")[0] for name in STORED["done"]} == set(command.PARTS)
    measured = {(p["way"], p["n"]) for p in STORED["scaling"]}
    assert measured >= {(way, n) for way in scaling.WAYS for n in scaling.LENGTHS
                        if n <= min(scaling.WAYS[way][0], 8192)}  # fmt: skip
    assert {p["alpha"] for p in STORED["density"]} == set(scaling.DEVIATIONS)


def test_the_page_shows_the_stored_run():
    nb = nbformat.read(ROOT / "book" / "kernel" / "measured.ipynb", 4)
    printed = "\n".join(o.get("text", "") for c in nb.cells for o in c.get("outputs", []))
    for what, value in STORED["made"].items():
        assert f"{what}: {value}\n" in printed
    shown = [" ".join(text.split()) for text in printed.splitlines()]
    for r in STORED["rows"]:
        if "ranks" not in r:
            what = r["what"].replace(", wall clock", "")
            reached = "-" if r["reached"] is None else f"{r['reached']:.3g}"
            mine = [text for text in shown if text.startswith(f"{what} {reached} ")]
            assert mine and mine[0].endswith(f" {r['verdict'].lower()}"), what
            assert r["note"] in printed
    for p in STORED["density"]:
        if p["alpha"] == 1.5:
            assert f" {p['sparse']:.2f}" in printed
