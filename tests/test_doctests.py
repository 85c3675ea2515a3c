"""The example in every docstring of the package runs and prints what it says."""

import doctest
import importlib
import pkgutil

import eotcourse
import pytest

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def examples():
    inside = pkgutil.walk_packages(eotcourse.__path__, "eotcourse.")
    for name in ["eotcourse", *(m.name for m in inside)]:
        for found in doctest.DocTestFinder().find(importlib.import_module(name)):
            if found.examples:
                yield pytest.param(found, id=found.name)


@pytest.mark.parametrize("example", list(examples()))
def test_docstring(example):
    report = []
    failed = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=report.append).failed
    assert not failed, "".join(report)
