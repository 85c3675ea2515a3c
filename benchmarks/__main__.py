"""All benchmarks that need no GPU, one after the other.

    python -m benchmarks                              an hour; writes book/data/benchmarks.json
    python -m benchmarks --resume                     the rest of a run that was interrupted
    python -m benchmarks --only scaling,attention/C8  some parts, or some steps of a part
    python -m benchmarks --quick --out X.json         a minute; a table with meaningless numbers

The file is written anew after every step; beside it, in the end, a table (.txt) and a plot of time
and memory against the length (.png, if matplotlib is installed). They say which machine they are
of: CPU, cores, memory, versions, threads. The exit status is 1 when a `must` is missed.
"""

import argparse
import datetime
import importlib
import json
import os
import pathlib
import platform
import sys
import time

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "book" / "data" / "benchmarks.json"
PARTS = ("maps", "attention", "ring", "scaling")
QUICK_SHRINK = 64


def cpu():
    """The processor's name, and family and model, since virtual machines hide the name."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    found = {key.strip(): value.strip() for key, _, value in lines}
    if "model name" not in found:
        return platform.machine()
    return f"{found['model name']} (family {found['cpu family']}, model {found['model']})"


def machine():
    """What a time depends on, and nothing that tells whose machine it is."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "memory_gib": round(pages / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__.partition("+")[0],
        "numpy": np.__version__,
    }


def plan(only, quick):
    """(part, step, function) for the parts or steps named, or for all."""
    steps = []
    for part in PARTS:
        module = importlib.import_module(f"benchmarks.{part}")
        wanted = getattr(module, "QUICK", module.STEPS) if quick else module.STEPS
        steps += [(part, name, module.STEPS[name]) for name in wanted]
    names = [(part, f"{part}/{name}") for part, name, _ in steps]
    if unknown := set(only) - {word for both in names for word in both}:
        known = ", ".join(name for _, name in names)
        raise SystemExit(f"no part or step {', '.join(sorted(unknown))}; there are {known}")
    return [step for step, both in zip(steps, names) if not only or set(both) & set(only)]


def write(path, record):
    """Replace the file in one go, so that an interruption leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def table(record):
    """The results as lines of text."""
    from .harness import line

    made = record["made"]
    head = [f"{key}: {value}" for key, value in made.items()]
    points = [
        f"{p['way']:28} n={p['n']:<6} {p['seconds']:9.4g} s {p['ratio']:8.3g} x {p['peer']:14}"
        f" {p['mib']:8.4g} MiB"
        for p in record["scaling"]
    ]
    shares = [
        f"alpha={p['alpha']:g} density {p['density']:.4f}: sparse {p['sparse']:.3g}, "
        f"blocks {p['blocks']:.3g}, chosen {p['chosen']:.3g} x SDPA"
        for p in record["density"]
    ]
    return "\n".join([*head, "", *map(line, record["rows"]), "", *points, "", *shares]) + "\n"


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def run(steps, record, path, repeats):
    """Run the steps that `record` lacks and write it after each."""
    from .harness import line

    begin = time.monotonic()
    for i, (part, name, step) in enumerate(steps, 1):
        known = f"{part}/{name}"
        if known in record["done"]:
            continue
        at = clock(time.monotonic() - begin)
        print(f"[{i}/{len(steps)}] {known}, {at} so far", file=sys.stderr, flush=True)
        found = step(repeats)
        of_scaling = "density" if name.startswith("density") else "scaling"
        kind = of_scaling if part == "scaling" else "rows"
        record[kind] += found
        record["done"].append(known)
        write(path, record)
        if kind == "rows":
            print(*map(line, found), sep="\n", flush=True)
    print(f"done in {clock(time.monotonic() - begin)}", file=sys.stderr, flush=True)


def draw(record, path):
    """The plot of the page "When to use which"."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("agg")
    from eotcourse.course import use_style
    from eotcourse.course.figures import measured

    use_style()
    measured.scaling(record["scaling"]).savefig(path)
    return True


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", default="", help=f"of {', '.join(PARTS)}, or part/step")
    parser.add_argument("--repeats", type=int, help="counted rounds (default 9)")
    parser.add_argument("--resume", action="store_true", help="keep what the file has")
    parser.add_argument("--quick", action="store_true", help="tiny sizes; needs --out")
    parser.add_argument("--out", type=pathlib.Path, help=f"default {TABLE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    if options.quick and not options.out:
        parser.error("--quick needs --out: its numbers must not replace the table")
    if options.quick:
        os.environ["BENCHMARKS_SHRINK"] = str(QUICK_SHRINK)
    repeats = options.repeats or (1 if options.quick else 9)
    path = options.out or TABLE
    made = {
        "command": "python -m benchmarks" + " --quick" * options.quick,
        "repeats": repeats,
        "threads": 1,
        "date": datetime.date.today().isoformat(),
        **machine(),
    }
    record = {"made": made, "done": [], "rows": [], "scaling": [], "density": []}
    if options.resume:
        record = json.loads(path.read_text(encoding="utf-8"))
        changed = [k for k in made if k != "date" and record["made"].get(k) != made[k]]
        if changed:
            parser.error(f"{path} is of another run: {', '.join(changed)}")
    from .harness import keep_memory

    torch.set_num_threads(1)
    keep_memory()
    only = [word for word in options.only.split(",") if word]
    run(plan(only, options.quick), record, path, repeats)
    path.with_suffix(".txt").write_text(table(record), encoding="utf-8")
    if record["scaling"] and draw(record, path.with_suffix(".png")):
        print(f"drew {path.with_suffix('.png')}", file=sys.stderr)
    return any(row["verdict"] == "MISSED" for row in record["rows"])


if __name__ == "__main__":
    sys.exit(main())
