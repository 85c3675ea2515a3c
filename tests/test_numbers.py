"""Every number in the prose is one that the page computes.

A number that has a decimal point, three digits, an exponent or a per cent sign must be found, up to
rounding, in its own section (from one heading or exercise to the next): in what the cells print, in
the numbers written in their code, as the year of a work cited on the page, or in a note

    % number: 0.6652 = softmax(torch.tensor([4.0, 2.0, 0.0]), 2.0)[0]
    % printed: 0.6652
    % given: 900, 2.5

The first is evaluated here with the package, the second is looked up in the outputs of the whole
page, and the third lists what nobody computes.
"""

import ast
import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace

import jupytext
import nbformat
import notebooks
import numpy as np
import pytest
import scipy
import sklearn.datasets
import torch
from prose import pieces

import eotcourse

NAMES = {name: getattr(eotcourse, name) for name in eotcourse.__all__}
NAMES |= {"eotcourse": eotcourse, "math": math, "np": np, "scipy": scipy}
NAMES |= {"sklearn": sklearn, "torch": torch}
NAMES["stored"] = json.loads((notebooks.BOOK / "data/tasks.json").read_text())["experiments"]
NUMBER = re.compile(
    r"(?<![\w.])(?<!version )(?<!release )(?<!Python )(?<!CC BY )"
    r"(?P<digits>\d{1,3}(?:(?:\{,\}|\\,|\\;|,| )\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?)"
    r"(?:\s*[·×]?\s*10\^\{?(?P<tex>-?\d+)\}?|e(?P<plain>[+-]?\d+))?"
    r"(?P<percent>\s*(?:\\[,;]\s*)?\\?%| per cent)?"
)
POWER = re.compile(r"(?<![\w.])10\^\{?(-?\d+)\}?")
PRINTED = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?")
YEAR = re.compile(r"(?<!\d)(?:1[5-9]|20)\d\d")
NOTE = re.compile(r"\s*(number|printed|given): (.*)")


@dataclass(frozen=True)
class Number:
    value: float
    edge: float  # half a unit of the last digit
    where: str

    def rounds(self, values):
        return any(abs(abs(x) - self.value) <= self.edge * (1 + 1e-9) for x in values)

    def equals(self, values):
        return any(math.isclose(abs(x), self.value) for x in values)

    @property
    def digits(self):
        return len(f"{self.value / self.edge / 2:.0f}")

    def shown(self, values):
        # Nearly every section prints something that rounds to a given single digit.
        return self.rounds(values) if self.digits > 1 else self.equals(values)


def numbers(text):
    """The numbers of a piece of prose that are subject to the rule above; versions are not."""
    text = re.sub(r"\\(?:cdot|times)(?![a-zA-Z])", "×", text)
    text = re.sub(r"\\[a-zA-Z]+", " ", text)
    found = []

    def add(m, value, edge):
        found.append(Number(value, edge, " ".join(text[max(m.start() - 30, 0) : m.end() + 15].split())))

    for m in NUMBER.finditer(text):
        digits = re.sub(r"[^\d.]", "", m["digits"])
        power = int(m["tex"] or m["plain"] or 0) - 2 * bool(m["percent"])
        if "." in digits or len(digits) >= 3 or power:
            edge = 10.0 ** (power - len(digits.partition(".")[2])) / 2
            add(m, float(digits) * 10.0**power, edge)
    for m in POWER.finditer(re.sub(r"[·×]\s*10\^", " ", text)):
        add(m, 10.0 ** int(m[1]), 10.0 ** int(m[1]) / 2)
    return found


def literals(code):
    """The numbers written in code; what an answer key says of wrong answers is left out."""
    tree = ast.parse(code)
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        call.keywords = [k for k in call.keywords if k.arg != "wrong"]
    constants = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
    return [float(value) for value in constants if type(value) in (int, float)]


def printed(texts):
    return [float(x) for x in PRINTED.findall("\n".join(texts))]


@dataclass
class Section:
    prose: list = field(default_factory=list)
    captions: list = field(default_factory=list)
    output: list = field(default_factory=list)
    drawn: list = field(default_factory=list)
    code: list = field(default_factory=list)
    notes: list = field(default_factory=list)  # (number, kind, text)

    def numbers(self):
        return [(n, False) for n in self.prose] + [(n, True) for n in self.captions]

    def support(self, number, years, in_caption):
        """How a number of this section is known to be right, or None."""
        if number.shown(self.output):
            return "printed"
        if in_caption and number.shown(self.drawn):
            return "drawn"
        if number.equals(self.code):
            return "in the code"
        if number.equals(years):
            return "year of a cited work"
        return next((kind for n, kind, _ in self.notes if number.equals([n.value])), None)


def sections(nb, built):
    """The page in sections, and the years of the works it cites."""
    found, years = [Section()], []
    executed = iter([c for c in built.cells if c.cell_type == "code"])
    for cell in nb.cells:
        if cell.cell_type == "code":
            shown = cell.metadata.get("mystnb", {})
            for text in (shown.get("figure", {}).get("caption"), shown.get("image", {}).get("alt")):
                found[-1].captions += numbers(text or "")
            found[-1].code += literals(cell.source)
            if "exercise-check" not in notebooks.tags(cell):
                outputs = next(executed, cell).outputs
                found[-1].output += printed(o.get("text", "") for o in outputs)
                found[-1].drawn += printed(o.get("data", {}).get("text/plain", "") for o in outputs)
            continue
        for kind, text in pieces(cell.source):
            if kind == "break":
                found.append(Section())
            elif kind == "role":
                years += [float(year) for year in YEAR.findall(text)]
            elif kind == "comment":
                for note, said in NOTE.findall(text):
                    listed = said.partition(" = ")[0] if note == "number" else said
                    found[-1].notes += [(n, f"noted as {note}", said) for n in numbers(listed)]
            else:
                found[-1].prose += numbers(text)
    return found, years


def evaluate(note):
    _, _, expression = note.partition(" = ")
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return float(eval(expression, dict(NAMES)))
    finally:
        torch.set_default_dtype(default)


def faults(nb, built):
    """Everything that is wrong with the numbers of a page, as sentences."""
    found, (parts, years) = [], sections(nb, built)
    for section in parts:
        for number, in_caption in section.numbers():
            if not section.support(number, years, in_caption):
                found.append(f"{number.value:g} in {number.where!r} has no support in its section")
        for number, kind, said in section.notes:
            if kind == "noted as number" and not number.rounds([value := evaluate(said)]):
                found.append(f"{number.value:g} is noted as {said}, which is {value:.8g}")
            if kind == "noted as printed" and not number.rounds(x for s in parts for x in s.output):
                found.append(f"{number.value:g} is noted as printed and no cell prints it")
            if not number.equals([n.value for n, _ in section.numbers()]):
                found.append(f"{number.value:g} is noted and does not occur in its section")
    return found


BUILT = [page for page in notebooks.pages() if notebooks.target(page).exists()]
WITHOUT_CODE = sorted(path.stem for path in notebooks.BOOK.glob("*.md"))


def read(page, change=("", "")):
    """A page, with one piece of its source changed, and its notebook as it is."""
    bare = page in WITHOUT_CODE
    source = notebooks.BOOK / f"{page}.md" if bare else notebooks.source(page)
    text = source.read_text(encoding="utf-8")
    assert change[0] in text
    nb = jupytext.reads(text.replace(*change), fmt="md:myst")
    return nb, nbformat.v4.new_notebook() if bare else nbformat.read(str(notebooks.target(page)), 4)


@pytest.mark.parametrize("page", BUILT + WITHOUT_CODE)
def test_numbers_are_supported(page):
    found = faults(*read(page))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page, right, wrong, words", [
    ("taste", "0.665, 0.245", "0.655, 0.245", "0.655 in"),
    ("index", "0.665, 0.245", "0.655, 0.245", "0.655 in"),
    ("errata", "0.31, 0.19", "0.31, 0.16", "0.16 in"),
    ("one-sided/temperature", "= 0.8808$", "= 0.8880$", "0.888 in"),
    ("family/entmax", "gives the last one 19 %", "gives the last one 16 %", "0.16 in"),
    ("family/entmax", "from 0.01 to 100;", "from 0.01 to 1000;", "1000 in"),
    ("transport/monge", "{cite:t}`monge1781`", "Monge", "1781 in"),
    ("one-sided/gibbs", "% number: 0.8152 = ", "% number: 0.8152 = 1e-3 + ", "which is 0.8162"),
    ("family/choose", "% printed: 16.4", "% printed: 16.5", "16.5 is noted as printed and no"),
    ("one-sided/gibbs", "log 0.66524 = 0.8152", "log p", "0.8152 is noted and does not occur"),
])
def test_canary_a_wrong_number_is_named(page, right, wrong, words):
    assert any(words in fault for fault in faults(*read(page, (right, wrong))))


def test_what_counts_as_a_number():
    def values(text):
        return [number.value for number in numbers(text)]

    assert values(r"3 of 12 at $x_{10}$, $\tfrac12$, E09, version 2.14") == []
    assert values(r"$-0.25$, $5{,}013$, 40 000, $2\cdot10^{-3}$, 1e-06") == [0.25, 5013, 40000, 2e-3, 1e-6]
    assert values(r"19 %, $\approx0.5$, $10^{-7}$") == [0.19, 0.5, 1e-7]
    assert literals("f(x, right=0.5, wrong={'a': 0.7})") == [0.5]


def test_few_wrong_digits_would_pass():
    """A section with many numbers supports some wrong ones as well; they must stay few."""
    ways, missed, tried = Counter(), 0, 0
    for page in BUILT:
        parts, years = sections(*read(page))
        for section in parts:
            for number, in_caption in section.numbers():
                ways[section.support(number, years, in_caption)] += 1
                for off in (-3, -2, -1, 1, 2, 3) if number.digits > 1 else ():
                    wrong = replace(number, value=number.value + off * 2 * number.edge)
                    missed += section.support(wrong, years, in_caption) is not None
                    tried += 1
    print(f"{dict(ways)}; {missed} of {tried} wrong last digits would pass")
    assert tried > 600 and missed < 0.08 * tried
