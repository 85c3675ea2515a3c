"""Train and test every mechanism on every task of the page "Choose by assumption".

    python -m experiments.tasks                  about ten minutes; writes book/data/tasks.json
    python -m experiments.tasks --quick --out X  seconds; the same table with meaningless numbers

One thread. A seed fixes initial weights, training inputs and test inputs of a run.
"""

import argparse
import datetime
import json
import pathlib
import time

import torch

from eotcourse.course import tasks

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "book" / "data" / "tasks.json"
SEEDS = tuple(range(5))
SPLITS = tuple(range(10))

FAMILY = ("softmax", "entmax", "sparsemax")
BY_POSITION = ("no position", "sinusoids", "ALiBi", "trained slope")
DENSE = {"no position", "sinusoids", "cooled softmax"}

# task: models, steps, shortest and longest training input, test lengths
SETTINGS = {
    "needle": (FAMILY, 600, 4, 16, (16, 256, 4096, 65536)),
    "maximum": (FAMILY, 1500, 4, 16, (16, 64, 256, 1024)),
    "recent": (BY_POSITION, 1000, 8, 32, (32, 64, 512)),
    "first": (BY_POSITION, 1000, 8, 32, (32, 64, 512)),
    "bags": ((*FAMILY, "cooled softmax"), 1000, 10, 10, (10, 50, 200)),
}


def count_at(n):
    """How many test inputs of length n a run can afford."""
    return min(500, 2**22 // n)


def run(task, model, seed, steps=None, lengths=None, count=count_at):
    """Train one model on one task; returns it and its (accuracy, weight) at every length.

    "cooled softmax" is trained as softmax and tested at half the temperature.
    """
    _, planned, shortest, longest, planned_lengths = SETTINGS[task]
    generator = torch.Generator().manual_seed(seed)
    if task == "bags":
        learn, unseen, shape = tasks.bags(0), tasks.bags(1), (64, 2)
    else:
        learn = unseen = tasks.TASKS[task]
        shape = (1 + tasks.CLASSES, tasks.CLASSES)
    name = "softmax" if model in DENSE else model
    reader = tasks.Reader(
        *shape, tasks.regularizer(name), generator, positions=model == "sinusoids"
    )
    tasks.train(reader, learn, steps or planned, generator, shortest, longest)
    if model == "cooled softmax":
        with torch.no_grad():
            reader.query.mul_(2)
    return reader, [
        tasks.examine(reader, unseen, n, generator, count(n)) for n in lengths or planned_lengths
    ]


def label_shift(seed):
    """Log loss and accuracy of one split, by population and prior."""
    tau, queries, answers, keys, labels = tasks.label_shift(seed)
    equal, law = tasks.class_law(1.0), tasks.class_law(0.5)
    found = {"log loss": {}, "accuracy": {}, "no-shift loss": {}}
    for prior, weights in (("uniform", None), ("falling", law), ("rising", law.flip(0))):
        guess = tasks.classify(queries, keys, labels, tau, weights)
        found["log loss"][prior], found["accuracy"][prior] = tasks.score(guess, answers, law)
        found["no-shift loss"][prior], _ = tasks.score(guess, answers, equal)
    return found


def add(results, column, model, value):
    results.setdefault(column, {}).setdefault(model, []).append(round(value, 4))


def table(seeds, splits, steps=None, lengths=None, count=count_at):
    """All experiments: for each a dictionary column -> model -> one number a seed."""
    plan = [(t, m, s) for t, setting in SETTINGS.items() for m in setting[0] for s in seeds]
    found = {}
    for i, (task, model, seed) in enumerate(plan, 1):
        start = time.monotonic()
        reader, scores = run(task, model, seed, steps, lengths, count)
        for n, (right, held) in zip(lengths or SETTINGS[task][-1], scores, strict=True):
            add(found.setdefault(task, {}), f"n = {n}", model, right)
            add(found.setdefault(f"{task}-weight", {}), f"n = {n}", model, held)
        if model == "trained slope":
            slope = reader.regularizer.prior.slopes.item()
            add(found.setdefault("slopes", {}), "slope", task, slope)
        shown = " ".join(f"{right:.2f}" for right, _ in scores)
        took = time.monotonic() - start
        print(f"[{i}/{len(plan)}] {task}, {model}, seed {seed}: {shown} ({took:.0f} s)", flush=True)
    for seed in splits:
        for column, models in label_shift(seed).items():
            for model, value in models.items():
                add(found.setdefault("label-shift", {}), column, model, value)
    print(f"label shift: {len(splits)} splits", flush=True)
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few steps; needs --out")
    parser.add_argument("--out", type=pathlib.Path, help=f"default {TABLE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    if options.quick and not options.out:
        parser.error("--quick needs --out: its numbers must not replace the table")
    torch.set_num_threads(1)
    if options.quick:
        seeds, splits = SEEDS[:1], SPLITS[:1]
        found = table(seeds, splits, steps=3, lengths=(4,), count=lambda n: 4)
    else:
        seeds, splits = SEEDS, SPLITS
        found = table(seeds, splits)
    made = {
        "command": "python -m experiments.tasks" + " --quick" * options.quick,
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__.partition("+")[0],
        "threads": 1,
        "seeds": list(seeds),
        "splits": list(splits),
    }
    out = options.out or TABLE
    out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"made": made, "experiments": found}, indent=1)
    out.write_text(text + "\n", encoding="utf-8")
    print(f"wrote {out}", flush=True)


if __name__ == "__main__":
    main()
