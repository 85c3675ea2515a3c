"""The experiments of the page "Choose by assumption": fair tasks, and a table that still holds."""

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch

from eotcourse.course import tasks

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments import tasks as script  # noqa: E402

STORED = json.loads(script.TABLE.read_text(encoding="utf-8"))
TABLE = STORED["experiments"]
WHICH = {
    "needle": lambda numbers: numbers.index(1.0),
    "maximum": lambda numbers: numbers.index(max(numbers)),
    "recent": lambda numbers: max(i for i, x in enumerate(numbers) if x == 1.0),
    "first": lambda numbers: min(i for i, x in enumerate(numbers) if x == 1.0),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------- the tasks are what they say


@pytest.mark.parametrize("name", WHICH)
def test_the_answer_is_the_class_of_the_right_item(name):
    x, answer, where = tasks.TASKS[name](300, 13, seeded())
    assert x.shape == (300, 13, 1 + tasks.CLASSES)
    for row, a, at in zip(x, answer, where, strict=True):
        assert WHICH[name](row[:, 0].tolist()) == at
        assert row[at, 1:].argmax() == a
        assert torch.equal(row[:, 1:].sum(-1), torch.ones(13))


@pytest.mark.parametrize("name", WHICH)
def test_nothing_but_the_right_item_tells_the_answer(name):
    n, count = 7, 20_000
    x, answer, where = tasks.TASKS[name](count, n, seeded(1))
    classes = x[..., 1:].argmax(-1)
    error = (0.09 / count) ** 0.5
    shares = torch.bincount(answer, minlength=10) / count
    assert (shares - 0.1).abs().max() < 5 * error, "a constant guess beats chance"
    other = (where[:, None] + torch.arange(1, n)) % n
    hits = (classes.gather(1, other) == answer[:, None]).float().mean(0)
    assert (hits - 0.1).abs().max() < 5 * error, "another item knows the answer"
    at_place = (classes == answer[:, None]).float().mean(0)
    law = torch.bincount(where, minlength=n) / count
    assert (at_place - 0.1 - 0.9 * law).abs().max() < 5 * error, "a place knows the answer"


@pytest.mark.parametrize("name", ["needle", "maximum"])
def test_the_right_item_may_be_anywhere(name):
    _, _, where = tasks.TASKS[name](20_000, 5, seeded(2))
    assert (torch.bincount(where) / 20_000 - 0.2).abs().max() < 5 * (0.16 / 20_000) ** 0.5


def test_gaps_stay_or_shrink_as_the_page_says():
    for n in (4, 64):
        flag = tasks.needle(50, n, seeded())[0][..., 0].sort(-1).values
        assert (flag[:, -1] - flag[:, -2] == 1).all()
        top = tasks.maximum(20_000, n, seeded())[0][..., 0].topk(2).values
        gap = top[:, 0] - top[:, 1]
        assert abs(gap.mean() * (n + 1) - 1) < 0.05


def test_bags_hold_one_nine_or_none_and_halves_share_no_picture():
    pictures, labels = tasks.digits()
    label = {p.numpy().tobytes(): int(y) for p, y in zip(pictures.float(), labels, strict=True)}
    seen = []
    for half in (0, 1):
        x, answer, where = tasks.bags(half)(400, 10, seeded())
        found = torch.tensor([[label[p.numpy().tobytes()] for p in bag] for bag in x])
        nines = found == tasks.SOUGHT
        assert torch.equal(nines.sum(1), answer)
        assert torch.equal(where >= 0, answer == 1)
        assert nines[answer == 1].gather(1, where[answer == 1, None]).all()
        assert 0.4 < answer.float().mean() < 0.6, "guessing would beat one half"
        assert (torch.bincount(where[where >= 0], minlength=10) > 5).all()
        seen.append({p.numpy().tobytes() for bag in x for p in bag})
    assert not seen[0] & seen[1]


@pytest.mark.parametrize("name", WHICH)
def test_an_untrained_reader_guesses(name):
    model = tasks.Reader(11, 10, tasks.regularizer("softmax"), seeded())
    right, held = tasks.examine(model, tasks.TASKS[name], 20, seeded(1), count=2000)
    assert abs(right - 0.1) < 0.05
    assert held < 0.2


# ---------------------------------------------------------------- the models


def test_the_query_stands_at_the_last_position():
    model = tasks.Reader(11, 10, tasks.regularizer("ALiBi"), seeded())
    with torch.no_grad():
        model.query.zero_()
    x, _, _ = tasks.recent(2, 6, seeded())
    _, weights = model(x, need_weights=True)
    law = torch.exp(torch.arange(6.0) - 5)
    assert torch.allclose(weights, (law / law.sum()).expand(2, 6), atol=1e-6)


def test_only_sinusoids_see_the_order():
    x, _, _ = tasks.recent(3, 9, seeded())
    for positions in (False, True):
        model = tasks.Reader(11, 10, tasks.regularizer("entmax"), seeded(1), positions)
        same = torch.allclose(model(x), model(x.flip(1)), atol=1e-5)
        assert same is not positions
    assert torch.allclose(tasks.sinusoids(3, 4)[0], torch.tensor([0.0, 0.0, 1.0, 1.0]))


def test_readers_and_data_depend_on_their_generator_only():
    def weights():
        torch.manual_seed(int(torch.randint(100, ())))
        model = tasks.Reader(11, 10, tasks.regularizer("trained slope"), seeded(3))
        tasks.train(model, tasks.recent, 2, seeded(4), 4, 8)
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    assert torch.equal(weights(), weights())


def test_the_weight_of_the_right_item_is_its_own():
    model = tasks.Reader(11, 10, tasks.regularizer("sparsemax"), seeded())
    with torch.no_grad():
        model.query.zero_()
    right, held = tasks.examine(model, tasks.needle, 8, seeded(), count=40)
    assert 0 <= right <= 1 and abs(held - 1 / 8) < 1e-6
    bag = tasks.Reader(64, 2, tasks.regularizer("softmax"), seeded())
    with torch.no_grad():
        bag.query.zero_()
    assert abs(tasks.examine(bag, tasks.bags(0), 10, seeded(), count=40)[1] - 0.1) < 1e-6


# ---------------------------------------------------------------- digits and label shift


def test_classifying_is_bayes_with_clouds_around_the_keys():
    rng = np.random.default_rng(0)
    keys, queries = rng.normal(size=(30, 4)), rng.normal(size=(9, 4))
    labels, law, tau = np.arange(30) % 10, rng.dirichlet(np.ones(10)), 0.7
    distance = ((queries[:, None] - keys) ** 2).sum(-1)
    joint = np.exp(-distance / (2 * tau)) * law[labels]
    by_class = joint @ np.eye(10)[labels]
    expected = by_class / by_class.sum(-1, keepdims=True)
    as_tensors = [torch.as_tensor(x) for x in (queries, keys, labels)]
    got = tasks.classify(*as_tensors, tau, torch.as_tensor(law))
    assert np.allclose(got, expected, atol=1e-12)
    uniform = tasks.classify(*as_tensors, tau, tasks.class_law(1.0))
    assert torch.allclose(tasks.classify(*as_tensors, tau), uniform, atol=1e-12)


def test_the_score_is_that_of_a_population_with_the_given_law():
    labels = torch.tensor([0] * 3 + list(range(10)))
    law = tasks.class_law(0.5)
    p = torch.full((13, 10), 0.05, dtype=torch.float64)
    p[labels == 0, 0] = 0.55
    p[labels != 0, 0] = 0.55
    loss, right = tasks.score(p, labels, law)
    assert abs(right - float(law[0])) < 1e-12
    expected = -law[0] * np.log(0.55) - (1 - law[0]) * np.log(0.05)
    assert abs(loss - float(expected)) < 1e-12
    assert abs(float(law[0] / law[1]) - 2) < 1e-12 and abs(float(law.sum()) - 1) < 1e-12


def test_a_split_keeps_keys_tuning_and_test_apart():
    tau, queries, answers, keys, labels = tasks.label_shift(3)
    assert torch.bincount(labels).tolist() == [20] * 10
    assert len(queries) == len(answers) == (1797 - 200) // 2
    held = {k.numpy().tobytes() for k in keys}
    assert not held & {q.numpy().tobytes() for q in queries}
    again = tasks.label_shift(3)
    assert again[0] == tau and torch.equal(again[1], queries)
    assert not torch.equal(tasks.label_shift(4)[3], keys)


# ---------------------------------------------------------------- the stored table


def means(name):
    return {
        column: {model: float(np.mean(values)) for model, values in models.items()}
        for column, models in TABLE[name].items()
    }


def test_the_table_says_how_it_was_made():
    made = STORED["made"]
    assert made["command"] == "python -m experiments.tasks"
    assert made["seeds"] == list(script.SEEDS) and made["splits"] == list(script.SPLITS)
    assert made["threads"] == 1 and made["torch"][0].isdigit()
    assert len(made["date"]) == len("2020-01-01")


def test_the_table_is_complete():
    for task, (models, _, _, _, lengths) in script.SETTINGS.items():
        for name in (task, f"{task}-weight"):
            assert list(TABLE[name]) == [f"n = {n}" for n in lengths]
            for column in TABLE[name].values():
                assert list(column) == list(models)
                assert all(len(v) == len(script.SEEDS) for v in column.values())
                assert all(0 <= x <= 1 for v in column.values() for x in v)
    assert all(len(v) == len(script.SPLITS) for v in TABLE["label-shift"]["log loss"].values())


def test_a_quick_run_makes_a_table_of_the_same_form(tmp_path):
    out = tmp_path / "quick.json"
    command = [sys.executable, "-m", "experiments.tasks", "--quick", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "[1/18]" in done.stdout
    quick = json.loads(out.read_text(encoding="utf-8"))
    assert set(quick["made"]) == set(STORED["made"])
    assert quick["made"]["command"].endswith("--quick")
    assert list(quick["experiments"]) == list(TABLE)
    for name, columns in quick["experiments"].items():
        (first, *_), (stored, *_) = columns.values(), TABLE[name].values()
        assert list(first) == list(stored)


def test_a_quick_run_cannot_replace_the_table(capsys):
    with pytest.raises(SystemExit):
        script.main(["--quick"])
    assert "must not replace" in capsys.readouterr().err


def test_the_page_shows_the_stored_table():
    nb = nbformat.read(ROOT / "book" / "family" / "choose.ipynb", 4)
    printed = "\n".join(o.get("text", "") for c in nb.cells for o in c.get("outputs", []))
    shown = [name for name in TABLE if tasks.summary(TABLE[name]) in printed]
    assert set(shown) == set(TABLE) - {"recent-weight", "first-weight", "slopes"}
    for task, slopes in TABLE["slopes"]["slope"].items():
        assert f"slopes, {task} mark = ({sorted(slopes)[0]:.1f}, " in printed
    for what in ("command", "date", "torch"):
        assert f"{what}: {STORED['made'][what]}" in printed


def test_a_summary_gives_mean_smallest_and_largest():
    columns = {
        "n = 4": {"a": [0.5, 0.7], "long": [1.0]},
        "n = 8": {"a": [0.0], "long": [0.25]},
    }
    assert tasks.summary(columns).splitlines() == [
        "      n = 4           n = 8",
        "a     0.60 0.50-0.70  0.00 0.00-0.00",
        "long  1.00 1.00-1.00  0.25 0.25-0.25",
    ]


# ---------------------------------------------------------------- a short run says the same


def short(task, model, lengths, steps=200, seed=10):
    _, scores = script.run(task, model, seed, steps, lengths, count=lambda n: 200)
    return np.array(scores)


def test_needle_keeps_its_weight_only_when_sparse():
    stored = means("needle-weight")
    sparse = short("needle", "entmax", (16, 4096), steps=300)[:, 1]
    dense = short("needle", "softmax", (16, 4096), steps=300)[:, 1]
    for drop_sparse, drop_dense in (
        (sparse[0] - sparse[1], dense[0] - dense[1]),
        tuple(stored["n = 16"][m] - stored["n = 65536"][m] for m in ("entmax", "softmax")),
    ):
        assert drop_sparse < 0.15 < drop_dense


def test_maximum_loses_in_the_whole_family():
    stored = means("maximum")
    for model in script.FAMILY:
        fresh = short("maximum", model, (16, 1024), steps=300)[:, 0]
        assert fresh[0] - fresh[1] > 0.4
        assert stored["n = 16"][model] - stored["n = 1024"][model] > 0.4


def test_a_prior_on_recent_keys_wins_on_the_last_mark_and_loses_on_the_first():
    for task, wins in (("recent", True), ("first", False)):
        stored = means(task)
        fresh = short(task, "ALiBi", (32, 512))[:, 0]
        for right in (fresh[1], stored["n = 512"]["ALiBi"]):
            assert right > 0.8 if wins else right < 0.3
    assert means("recent")["n = 512"]["sinusoids"] < 0.3 < means("first")["n = 512"]["sinusoids"]
    assert min(TABLE["slopes"]["slope"]["recent"]) > 0 > max(TABLE["slopes"]["slope"]["first"])


def test_sparse_pools_concentrate_on_the_nine():
    dense, sparse = means("bags-weight")["n = 200"]["softmax"], TABLE["bags-weight"]["n = 200"]
    assert all(min(sparse[m]) > dense for m in ("entmax", "sparsemax"))
    fresh = {
        m: np.mean([short("bags", m, (200,), 300, seed)[0, 1] for seed in (10, 11)])
        for m in ("softmax", "sparsemax")
    }
    assert fresh["sparsemax"] > fresh["softmax"] + 0.1


def test_a_cooled_softmax_does_as_well_so_the_bags_decide_nothing():
    stored, weight = TABLE["bags"]["n = 200"], means("bags-weight")["n = 200"]
    lead = np.array(stored["sparsemax"]) - stored["cooled softmax"]
    assert lead.min() < 0.03 and lead.mean() < 0.03
    assert weight["cooled softmax"] > weight["softmax"] + 0.15
    warm, cool = (
        short("bags", m, (200,), 300)[0, 1] for m in ("softmax", "cooled softmax")
    )
    assert cool > warm + 0.1


def test_label_shift_rewards_the_right_prior_and_punishes_the_reversed_one():
    fresh, stored = script.label_shift(0)["log loss"], TABLE["label-shift"]["log loss"]
    assert fresh["falling"] < fresh["uniform"] < fresh["rising"] / 2
    for prior, values in stored.items():
        assert abs(values[0] - fresh[prior]) < 1e-3
    assert all(np.array(stored["falling"]) < stored["uniform"])
    assert all(np.array(stored["rising"]) > stored["uniform"])
    none, calm = means("label-shift")["log loss"], means("label-shift")["no-shift loss"]
    assert calm["falling"] > calm["uniform"] + 0.1
    assert none["uniform"] - none["falling"] < 0.2 * (none["rising"] - none["uniform"])
