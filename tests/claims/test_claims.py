"""Run every claim against the package and against its mutants."""

from collections import defaultdict

import pytest

from claims import MUTANTS_PER_ID, Claim, load, verdict

CLAIMS = load()


@pytest.mark.parametrize("entry", CLAIMS, ids=lambda c: c.name)
def test_claim_holds(entry):
    assert (fault := verdict(entry)) is None, fault


@pytest.mark.parametrize(
    "entry, mutant",
    [pytest.param(c, m, id=f"{c.name}[{m}]") for c in CLAIMS for m in c.mutants],
)
def test_mutant_is_caught(entry, mutant):
    assert (fault := verdict(entry, mutant)) is None, fault


def test_every_statement_has_enough_mutants():
    names = defaultdict(list)
    for c in CLAIMS:
        names[c.id] += list(c.mutants)
    few = {id: found for id, found in names.items() if len(set(found)) < MUTANTS_PER_ID}
    assert not few


def _canary(check, mutants=None, instances=1):
    return Claim("thm-canary", "", "", "checked", 1e-12, instances, dict(sign=1.0),
                 mutants or {"flipped sign": dict(sign=-1.0)}, (), "canary", check)


def test_canary_flipped_sign_is_reported():
    def good(impl):
        yield abs(impl.sign * 2.0 - 2.0)

    def bad(impl):
        yield abs(-impl.sign * 2.0 - 2.0)

    assert verdict(_canary(good)) is None
    assert verdict(_canary(good), "flipped sign") is None
    assert "off by 4" in verdict(_canary(bad))


def test_canary_check_that_cannot_fail_is_reported():
    def hollow(impl):
        yield 0.0

    assert "not caught" in verdict(_canary(hollow), "flipped sign")


def test_canary_nan_and_missing_instances_are_reported():
    def nan(impl):
        yield float("nan")

    def none(impl):
        yield from ()

    assert "off by nan" in verdict(_canary(nan))
    assert "0 instances" in verdict(_canary(none))
