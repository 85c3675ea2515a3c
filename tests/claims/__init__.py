"""Executable claims: every numbered statement of the book is computed, and mutants of it must fail.

A claim is a generator function that takes an implementation and yields one residual per instance.
It runs against the package's own functions, where every residual must be at most the tolerance,
and against mutants of them, each of which must be caught.  A claim that cannot tell the package
from a mutant is worth nothing.
"""

import dataclasses
import importlib
import inspect
import pathlib
import types
from collections.abc import Callable

ROOT = pathlib.Path(__file__).parent
STATUSES = ("proved", "checked")
# A mutant only slightly above the tolerance would be caught by rounding, not by the claim.
MUTANT_MARGIN = 10
MUTANTS_PER_ID = 3

REGISTRY = []


@dataclasses.dataclass(frozen=True)
class Claim:
    id: str
    part: str
    result: str
    status: str
    tol: float
    instances: int
    real: dict
    mutants: dict
    covers: tuple
    page: str
    check: Callable

    @property
    def name(self):
        return f"{self.page}:{self.id}" + (f":{self.part}" if self.part else "")

    @property
    def says(self):
        return inspect.getdoc(self.check)

    @property
    def source(self):
        return inspect.getsource(self.check)

    def residuals(self, mutant=None):
        """Yield the residuals of the package, or of one mutant, as floats."""
        changed = self.mutants[mutant] if mutant else {}
        for residual in self.check(types.SimpleNamespace(**{**self.real, **changed})):
            yield float(residual)


def claim(id, *, tol, instances, real, mutants, part="", result="", status="proved", covers=()):
    """Register a check of the statement with sphinx label ``id`` (see CONTRIBUTING)."""
    if status not in STATUSES:
        raise ValueError(f"{id}: status {status!r} is not one of {STATUSES}")
    if not mutants:
        raise ValueError(f"{id}: a claim without a mutant")
    for name, changed in mutants.items():
        unknown = set(changed) - set(real)
        if unknown or not changed:
            raise ValueError(f"{id}: mutant {name!r} changes {unknown or 'nothing'}")

    def register(check):
        page = check.__module__.removeprefix("claims.").replace(".", "/").replace("_", "-")
        entry = Claim(id, part, result, status, tol, instances, real, mutants, tuple(covers), page, check)
        if not entry.says:
            raise ValueError(f"{id}: the check has no sentence saying what it computes")
        if any(c.name == entry.name for c in REGISTRY):
            raise ValueError(f"{entry.name} is registered twice")
        REGISTRY.append(entry)
        return check

    return register


def verdict(entry, mutant=None):
    """None if the claim behaves as it must, else one sentence that says how it does not."""
    worst, count = 0.0, 0
    for residual in entry.residuals(mutant):
        count += 1
        bad = not residual <= entry.tol * (MUTANT_MARGIN if mutant else 1)
        if bad and mutant:
            return None
        if bad:
            return f"instance {count} is off by {residual:.3g}, more than {entry.tol:g}"
        worst = max(worst, residual)
    if mutant:
        return f"mutant {mutant!r} was not caught: largest residual {worst:.3g}"
    if count != entry.instances:
        return f"{count} instances were checked, {entry.instances} are declared"
    return None


def load():
    """Import every claims module and return all claims, in the order of pages and files."""
    for path in sorted(ROOT.glob("*/*.py")):
        importlib.import_module(f"claims.{path.parent.name}.{path.stem}")
    return REGISTRY
