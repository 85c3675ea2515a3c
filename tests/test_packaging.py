"""The wheel alone is the package: away from the repository every module imports."""

import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
IMPORT_ALL = """
import importlib, json, pkgutil, sys
sys.path[:0] = json.loads(sys.argv[1])
import eotcourse
names = [m.name for m in pkgutil.walk_packages(eotcourse.__path__, "eotcourse.", onerror=None)]
modules = [importlib.import_module(n) for n in names]
print(json.dumps({m.__name__: m.__file__ for m in [eotcourse, *modules]}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that no leftover of an earlier build in this folder gets in."""
    source = tmp_path_factory.mktemp("source")
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("eotcourse", "tests", "tools"):
        shutil.copytree(ROOT / name, source / name, ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("wheel")
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", target, source]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = target.iterdir()
    return built


def test_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    inside = {n for n in names if ".dist-info/" not in n}
    there = {
        p.relative_to(ROOT).as_posix()
        for p in (ROOT / "eotcourse").rglob("*")
        if p.suffix in (".py", ".mplstyle") or p.name == "py.typed"
    }
    assert inside == there
    assert {"eotcourse/py.typed", "eotcourse/course/eot.mplstyle"} <= inside
    assert any(n.endswith("/LICENSE") for n in names)


def test_every_module_imports_from_the_wheel_alone(wheel, tmp_path):
    install = [*PIP, "install", "-q", "--no-deps", "--no-index", "--target", tmp_path, wheel]
    done = subprocess.run(install, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # -S: no site, so neither the editable install of this repository nor its path is seen;
    # torch and the rest are lent by naming their folders after the wheel's.
    lent = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    paths = json.dumps([str(tmp_path), *dict.fromkeys(lent)])
    run = [sys.executable, "-I", "-S", "-W", "error:::eotcourse", "-c", IMPORT_ALL, paths]
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)
    there = [p for p in (ROOT / "eotcourse").rglob("*.py") if p.name != "__init__.py"]
    assert len(files) >= len(there)
    assert all(f is None or Path(f).is_relative_to(tmp_path) for f in files.values())


def test_importing_the_package_leaves_the_course_alone():
    """The mathematics needs torch, numpy and scipy; matplotlib comes only with eotcourse.course."""
    code = "import sys, eotcourse; print({'matplotlib', 'eotcourse.course'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stdout + done.stderr


def test_every_module_is_an_attribute_of_the_package():
    """`import eotcourse` is enough to write eotcourse.transport.sinkhorn, and loads no more."""
    modules = [
        p.stem for p in (ROOT / "eotcourse").glob("*.py") if not p.name.startswith("_")
    ]
    assert {"losses", "nn", "transport"} <= set(modules)
    code = f"""
import sys, eotcourse
assert "eotcourse.transport" not in sys.modules and "eotcourse.nn" not in sys.modules
for name in {modules}:
    assert name in dir(eotcourse), name
    assert getattr(eotcourse, name) is sys.modules["eotcourse." + name], name
assert eotcourse.transport.sinkhorn
assert not hasattr(eotcourse, "nothing")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
