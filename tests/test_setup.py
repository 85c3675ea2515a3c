"""The decisions of tools/course.py, with all outside it replaced; and the README's promises."""

import contextlib
import importlib.util
import io
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location("course_tool", ROOT / "tools" / "course.py")
course = importlib.util.module_from_spec(spec)
spec.loader.exec_module(course)

README = (ROOT / "README.md").read_text(encoding="utf-8")
CPU = course.CPU_INDEX


def fake_environment(folder):
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    return folder


# ---------------------------------------------------------------- which environment


def test_running_inside_an_environment_uses_it(tmp_path):
    other = fake_environment(tmp_path / "other")
    found = course.active_environment({"VIRTUAL_ENV": str(other)}, "/here", "/usr")
    assert found == Path("/here")


@pytest.mark.parametrize(
    "variables, used",
    [
        ({"VIRTUAL_ENV": "env"}, True),
        ({"CONDA_PREFIX": "env", "CONDA_DEFAULT_ENV": "work"}, True),
        ({"CONDA_PREFIX": "env", "CONDA_DEFAULT_ENV": "base"}, False),
        ({"VIRTUAL_ENV": "deleted-long-ago"}, False),
        ({"VIRTUAL_ENV": ""}, False),
        ({}, False),
    ],
)
def test_switched_on_environments(tmp_path, variables, used):
    env = fake_environment(tmp_path / "env")
    paths = {
        k: str(tmp_path / v) if v and k != "CONDA_DEFAULT_ENV" else v for k, v in variables.items()
    }
    assert course.active_environment(paths, "/usr", "/usr") == (env if used else None)


@pytest.mark.parametrize("name", ["bin/python", "Scripts/python.exe", "python.exe"])
def test_interpreter_of_an_environment_on_every_system(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    assert course.python_in(tmp_path) == tmp_path / name


def test_probe_reads_this_interpreter():
    version, packages = course.ask(sys.executable)
    assert version == sys.version_info[:3]
    assert "pytest" in packages and "torch" in packages


def test_probe_of_what_does_not_run(tmp_path):
    assert course.ask(tmp_path / "nothing") is None


# ---------------------------------------------------------------- which Python


def test_a_new_enough_python_is_taken_as_it_is():
    assert course.base_python((3, 11), "/this/python", which=None, ask=None) == "/this/python"


def test_an_old_python_finds_a_newer_one():
    on_path = {"python3.13": "/shim/python3.13", "python3.12": "/usr/bin/python3.12"}
    # A version manager's shim may be there and not run.
    answers = {"/usr/bin/python3.12": ((3, 12, 1), {})}
    assert course.base_python((3, 9), "/old", on_path.get, answers.get) == "/usr/bin/python3.12"


def test_no_python_says_what_was_found():
    on_path, answers = {"python3": "/usr/bin/python3"}, {"/usr/bin/python3": ((3, 10, 4), {})}
    with pytest.raises(course.Stop) as stop:
        course.base_python((3, 9), "/old/python", on_path.get, answers.get)
    text = str(stop.value)
    assert "Python 3.11 or newer" in text
    assert "/old/python is 3.9" in text and "/usr/bin/python3 is 3.10.4" in text


def test_an_old_active_environment_is_refused_by_name(monkeypatch, tmp_path):
    env = fake_environment(tmp_path / "env")
    monkeypatch.setattr(course, "active_environment", lambda *_: env)
    monkeypatch.setattr(course, "ask", lambda _: ((3, 10, 1), {}))
    with pytest.raises(course.Stop, match=r"has Python 3\.10\.1; the course needs 3\.11"):
        course.environment()


def test_a_broken_environment_is_refused(monkeypatch, tmp_path):
    env = fake_environment(tmp_path / "env")
    monkeypatch.setattr(course, "active_environment", lambda *_: env)
    with pytest.raises(course.Stop, match="does not run"):
        course.environment()


# ---------------------------------------------------------------- which torch


@pytest.mark.parametrize(
    "system, machine, card, index, taken_from",
    [
        ("Linux", "x86_64", False, None, CPU),
        ("Linux", "x86_64", True, None, None),
        ("Linux", "aarch64", False, None, CPU),
        ("Windows", "AMD64", False, None, CPU),
        ("Windows", "AMD64", True, None, CPU.replace("cpu", "cu126")),
        ("Darwin", "arm64", False, None, None),
        ("Linux", "x86_64", False, "", None),
        ("Linux", "x86_64", True, "https://example.org/cpu", "https://example.org/cpu"),
        ("Darwin", "arm64", False, "https://example.org/x", "https://example.org/x"),
    ],
)
def test_torch_build(system, machine, card, index, taken_from):
    sentence, source, size = course.torch_plan(system, machine, card, index)
    assert source == taken_from
    assert "torch comes" in sentence
    assert source is None or source in sentence
    small = system == "Darwin" or (source or "").endswith("/cpu")
    assert (size <= 3.5) == (small and "/x" not in (source or ""))


def test_intel_mac_is_told_before_anything_is_downloaded():
    with pytest.raises(course.Stop, match="conda-forge"):
        course.torch_plan("Darwin", "x86_64", False, None)


@pytest.mark.parametrize(
    "version, stays",
    [("2.6.0", True), ("2.13.0+cpu", True), ("2.9.0.dev20250901+cu128", True), ("3.0", True),
     ("2.5.1", False), ("1.13.1", False), (None, False)],
)
def test_which_installed_torch_stays(version, stays):
    assert course.new_enough(version) is stays


@pytest.mark.parametrize(
    "path, status, output, card",
    [
        (None, 0, "GPU 0: X", False),
        ("/bin/nvidia-smi", 0, "GPU 0: X", True),
        ("/bin/nvidia-smi", 9, "driver not loaded", False),
        ("/bin/nvidia-smi", 0, "No devices found.", False),
    ],
)
def test_card(path, status, output, card):
    def run(*_, **__):
        return SimpleNamespace(returncode=status, stdout=output)

    assert course.has_card(lambda _: path, run) is card


def test_card_whose_driver_hangs():
    def run(command, **_):
        raise subprocess.TimeoutExpired(command, 30)

    assert course.has_card(lambda _: "/bin/nvidia-smi", run) is False


def test_constraints_never_move_an_installed_torch():
    text = "numpy==2.4.6\ntorch==2.13.0\ntorchvision==0.29\n"
    kept = course.constraint_lines(text, "2.9.0+cu128").splitlines()
    assert kept == ["numpy==2.4.6", "torchvision==0.29", "torch==2.9.0+cu128"]
    assert course.constraint_lines(text, None) == text


# ---------------------------------------------------------------- installing


@pytest.fixture
def installer(monkeypatch, tmp_path):
    """install() in a made-up environment; each pip call is recorded instead of made."""
    env = fake_environment(tmp_path / "env")
    requirements = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    state = SimpleNamespace(
        env=env, calls=[], settings=[], status=0, lines=[], version=(3, 12, 1),
        packages={n: "1.0" for n in course.requirement_names(requirements)} | {"pip": "24.2"},
    )
    del state.packages["torch"]

    def run_step(title, command, settings):
        state.calls.append([str(c) for c in command])
        state.settings.append(settings)
        if state.status == 0:
            state.packages["torch"] = "2.13.0+cpu"
        return state.status, state.lines

    monkeypatch.setattr(
        course, "environment", lambda: (env, env / "bin/python", state.version, state.packages)
    )
    monkeypatch.setattr(course, "run_step", run_step)
    monkeypatch.setattr(course, "has_card", lambda: False)
    monkeypatch.setattr(course.platform, "system", lambda: "Linux")
    monkeypatch.delenv("TORCH_INDEX", raising=False)
    monkeypatch.delenv("CONSTRAINTS", raising=False)
    return state


def test_torch_comes_first_and_alone(installer):
    course.install()
    torch, rest = installer.calls
    assert torch[-4:] == ["--no-deps", "--index-url", CPU, "torch>=2.6"]
    assert rest[-2:] == ["-r", "requirements.txt"] and "--index-url" not in rest
    assert installer.settings == [{"PIP_EXTRA_INDEX_URL": CPU}, {}], "no other index may interfere"


def test_installed_once_then_left_alone(installer, capsys):
    course.install()
    done = len(installer.calls)
    capsys.readouterr()
    course.install()
    assert len(installer.calls) == done
    assert "installed already" in capsys.readouterr().out


def test_installed_again_when_something_changed(installer, monkeypatch, tmp_path):
    course.install()
    done = len(installer.calls)
    installer.version = (3, 12, 2)
    course.install()
    assert len(installer.calls) == done + 1, "another Python"
    limits = tmp_path / "limits.txt"
    limits.write_text("numpy==2.4.6\ntorch==2.12.0\n")
    monkeypatch.setenv("CONSTRAINTS", str(limits))
    course.install()
    assert len(installer.calls) == done + 2, "other constraints"
    used = Path(installer.calls[-1][installer.calls[-1].index("-c") + 1]).read_text()
    assert used.splitlines() == ["numpy==2.4.6", "torch==2.13.0+cpu"]
    del installer.packages["nbval"]
    course.install()
    assert len(installer.calls) == done + 3, "a package was removed"
    monkeypatch.setattr(course, "ROOT", tmp_path)
    for name in ("requirements.txt", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    course.install()
    assert len(installer.calls) == done + 4, "another copy of the repository"


def test_installed_torch_is_announced_and_kept(installer, capsys):
    installer.packages["torch"] = "2.9.0+cu128"
    course.install()
    assert "torch 2.9.0+cu128 is here already and stays" in capsys.readouterr().out.lower()
    assert len(installer.calls) == 1 and "--index-url" not in installer.calls[0]


def test_empty_index_is_pips_own(installer, monkeypatch):
    monkeypatch.setenv("TORCH_INDEX", "")
    course.install()
    assert len(installer.calls) == 1 and "--index-url" not in installer.calls[0]


def test_size_is_said_before_installing(installer, capsys):
    installer.status, installer.lines = 1, ["nothing"]
    with pytest.raises(course.Stop):
        course.install()
    assert re.search(r"CPU build.*\n.* 3\.5 GB", capsys.readouterr().out)


@pytest.mark.parametrize(
    "line, hint",
    [
        ("ERROR: Could not install packages: [Errno 28] No space left", "Make room"),
        ("Failed to resolve: Temporary failure in name resolution", "HTTPS_PROXY"),
        ("ERROR: No matching distribution found for torch>=2.6", "between 3.11 and 3.13"),
        ("ERROR: something else", "delete .venv"),
    ],
)
def test_failed_install_shows_pips_words_and_what_to_try(installer, line, hint):
    installer.status, installer.lines = 1, [f"line {i}" for i in range(40)] + [line]
    with pytest.raises(course.Stop) as stop:
        course.install()
    assert line in str(stop.value) and hint in str(stop.value)
    assert "line 3\n" not in str(stop.value)
    assert not (installer.env / course.STAMP).exists()


def test_missing_constraints_file(installer, monkeypatch):
    monkeypatch.setenv("CONSTRAINTS", "no/such/file")
    with pytest.raises(course.Stop, match="no/such/file"):
        course.install()


def test_expected_failures_print_no_traceback(monkeypatch, capsys):
    def refuse():
        raise course.Stop("what happened, what to try")

    monkeypatch.setattr(course, "install", refuse)
    assert course.main(["book"]) == 1
    told = capsys.readouterr()
    assert "what happened, what to try" in told.err and "Traceback" not in told.err
    assert re.search(r"Took \d+ s", told.out)


# ---------------------------------------------------------------- running


def test_a_step_reports_status_and_output(capsys):
    code = "import sys; print('first'); print('second', file=sys.stderr); sys.exit(3)"
    status, lines = course.run_step("A step", [sys.executable, "-c", code])
    assert status == 3 and sorted(lines) == ["first", "second"]
    assert re.search(r"== A step\n   failed \(exit status 3\), \d+ s\n", capsys.readouterr().out)


def test_a_silent_step_shows_that_it_lives(capsys):
    code = "import time; time.sleep(1)"
    course.run_step("Slow", [sys.executable, "-c", code], every=0.1)
    assert "still at it after" in capsys.readouterr().out


def test_a_terminal_sees_one_line_with_the_share_that_is_done(monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    code = "print('Downloading x', flush=True); print('Progress 30 of 120', flush=True)"
    code += "; import time; time.sleep(0.6)"
    with contextlib.redirect_stdout(screen):
        status, lines = course.run_step("Fetch", [sys.executable, "-c", code])
    assert status == 0 and lines == ["Downloading x"]
    assert "\r" in screen.getvalue() and "Downloading x : 25 %" in screen.getvalue()


def test_children_see_no_stray_settings(monkeypatch):
    for name in ("PYTHONPATH", "PYTHONHOME", "MPLBACKEND"):
        monkeypatch.setenv(name, "somewhere")
    env = course.clean_env({"OMP_NUM_THREADS": "1"})
    assert not {"PYTHONPATH", "PYTHONHOME", "MPLBACKEND"} & set(env)
    assert env["OMP_NUM_THREADS"] == "1" and "PATH" in env


@pytest.mark.parametrize(
    "environ, tty, system, opened",
    [
        ({"DISPLAY": ":0"}, True, "Linux", True),
        ({}, True, "Darwin", True),
        ({}, True, "Linux", False),
        ({"DISPLAY": ":0"}, False, "Linux", False),
        ({"DISPLAY": ":0", "CI": "1"}, True, "Linux", False),
        ({"NO_OPEN": "1"}, True, "Windows", False),
    ],
)
def test_browser_opens_only_for_somebody(monkeypatch, tmp_path, environ, tty, system, opened):
    pages = []
    monkeypatch.setattr(course.webbrowser, "open", pages.append)
    course.open_page(tmp_path / "index.html", environ, tty, system)
    assert pages == ([(tmp_path / "index.html").as_uri()] if opened else [])


@pytest.mark.parametrize("status", [0, 1])
def test_test_command_passes_arguments_and_status(monkeypatch, tmp_path, status):
    seen = {}

    def pass_on(command, env):
        seen.update(command=command, env=env)
        return status

    monkeypatch.setattr(course, "install", lambda: (tmp_path, Path("python")))
    monkeypatch.setattr(course, "build_book", lambda *_: None)
    monkeypatch.setattr(course, "pass_on", pass_on)
    assert course.main(["test", "--", "-k", "gibbs"]) == status
    assert seen["command"][-2:] == ["-k", "gibbs"]
    assert seen["env"]["OMP_NUM_THREADS"] == "1" and seen["env"]["PYTHONHASHSEED"] == "0"
    named = {x for x in seen["command"] if x.endswith(".ipynb")}
    pages = (ROOT / "book").rglob("*.ipynb")
    pages = {p.relative_to(ROOT).as_posix() for p in pages if ".ipynb_checkpoints" not in p.parts}
    assert named == pages


@pytest.mark.parametrize("broken, words", [("notebooks.py", "sources do not agree"),
                                           ("jupyter_book", "does not build")])
def test_a_faulty_book_is_an_error(monkeypatch, tmp_path, broken, words):
    def run_step(title, command, *_):
        return (1, ["page.md:3: WARNING: bad"]) if broken in str(command) else (0, [])

    monkeypatch.setattr(course, "ROOT", tmp_path)
    monkeypatch.setattr(course, "run_step", run_step)
    with pytest.raises(course.Stop, match=words) as stop:
        course.build_book(tmp_path, tmp_path / "python")
    assert "page.md:3: WARNING: bad" in str(stop.value)


def test_clean_removes_what_was_built_and_keeps_environment_and_answers(monkeypatch, tmp_path):
    monkeypatch.setattr(course, "ROOT", tmp_path)
    answers = [tmp_path / "student/taste.ipynb", tmp_path / "nbgrader/source/taste/taste.ipynb"]
    for file in (tmp_path / "_build/html/x", tmp_path / ".venv/bin/x", tmp_path / "book/src/x", *answers):
        file.parent.mkdir(parents=True)
        file.touch()
    course.main(["clean"])
    assert sorted(p.name for p in tmp_path.iterdir()) == [".venv", "book", "nbgrader", "student"]
    course.main(["clean", "--all"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["book", "nbgrader", "student"]
    assert all(file.exists() for file in answers)


@pytest.fixture
def site(monkeypatch, tmp_path):
    """A made-up repository with one page; steps are recorded, and the last one makes the site."""
    steps = []

    def run_step(title, command, *_):
        steps.append(title)
        if "jupyter_book" in str(command):
            (tmp_path / "_build/html").mkdir(parents=True)
            (tmp_path / "_build/html/index.html").touch()
        return 0, []

    monkeypatch.setattr(course, "ROOT", tmp_path)
    monkeypatch.setattr(course, "run_step", run_step)
    monkeypatch.setattr(course, "ask", lambda _: ((3, 12, 1), {"sphinx": "7.4.7"}))
    for name in ("book/src/page.md", "book/page.ipynb", "tests/claims/page.py", "_toc.yml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("first")
    course.build_book(tmp_path, tmp_path / "python")
    assert len(steps) == 2
    steps.clear()
    return SimpleNamespace(root=tmp_path, steps=steps,
                           build=lambda: course.build_book(tmp_path, tmp_path / "python"))


def test_a_good_site_is_left_alone(site):
    (site.root / "_build/html/mark").touch()
    (site.root / "tests/test_other.py").write_text("a test is no page")
    assert site.build() == site.root / "_build/html/index.html"
    assert site.steps == [] and (site.root / "_build/html/mark").exists()


@pytest.mark.parametrize(
    "name", ["book/src/page.md", "book/page.ipynb", "book/new.md", "tests/claims/page.py", "_toc.yml"]
)
def test_a_site_is_built_again_when_something_it_shows_changes(site, name):
    (site.root / "_build/html/old-page.html").touch()
    (site.root / name).write_text("second")
    site.build()
    assert len(site.steps) == 2 and not (site.root / "_build/html/old-page.html").exists()


def test_a_site_is_built_again_with_other_packages_or_when_it_is_gone(site, monkeypatch):
    monkeypatch.setattr(course, "ask", lambda _: ((3, 12, 1), {"sphinx": "7.4.8"}))
    site.build()
    assert len(site.steps) == 2
    (site.root / "_build/html/index.html").unlink()
    site.build()
    assert len(site.steps) == 4


def test_a_site_whose_build_failed_is_not_called_built(site, monkeypatch):
    (site.root / "book/src/page.md").write_text("second")
    monkeypatch.setattr(course, "run_step", lambda title, *_: (int(title.startswith("Build")), ["bad"]))
    for _ in range(2):
        with pytest.raises(course.Stop, match="does not build"):
            site.build()


def test_faults_of_notebooks_keep_the_old_site(site, monkeypatch):
    (site.root / "book/page.ipynb").write_text("answered")
    monkeypatch.setattr(course, "run_step", lambda *_: (1, ["out of step"]))
    with pytest.raises(course.Stop, match="out of step"):
        site.build()
    assert (site.root / "_build/html/index.html").exists()


@pytest.mark.parametrize("name", ["student", "nbgrader"])
@pytest.mark.parametrize("status", [0, 1])
def test_an_edition_says_how_to_open_it(monkeypatch, capsys, tmp_path, name, status):
    calls = []
    monkeypatch.setattr(course, "install", lambda: (tmp_path, tmp_path / "bin/python"))
    monkeypatch.setattr(course, "pass_on", lambda command, env: calls.append(command) or status)
    assert course.main([name]) == status
    assert calls == [[str(tmp_path / "bin/python"), "tools/notebooks.py", name]]
    told = capsys.readouterr().out
    assert (f'"{tmp_path}/bin/python" -m ' in told) == (status == 0)
    assert ("jupyterlab" in told) == (name == "student" and status == 0)


def test_passing_on_keeps_output_and_status_and_fills_silences(capfd, monkeypatch, tmp_path):
    monkeypatch.setattr(course, "ROOT", tmp_path)
    code = "import sys, time; print('Gauß'); time.sleep(1); print('second', file=sys.stderr); sys.exit(3)"
    assert course.pass_on([sys.executable, "-c", code], course.clean_env(), every=0.1) == 3
    told = capfd.readouterr().out
    assert "Gauß\n" in told and told.endswith("second\n")
    assert re.search(r"\n   at work, \d+ s\n", told)


# ---------------------------------------------------------------- what the files promise


def listed(text):
    lines = (x.split("#")[0].strip() for x in text.splitlines())
    return [x for x in lines if x]


def test_requirements_are_the_package_and_its_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {*project["dependencies"], *sum(project["optional-dependencies"].values(), [])}
    lines = listed((ROOT / "requirements.txt").read_text(encoding="utf-8"))
    assert lines[-1] == "-e ."
    assert sorted(lines[:-1]) == sorted(wanted)


def test_every_requirement_says_why():
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "-e")):
            assert re.search(r"# \w.{5,}", line), line


def test_constraints_are_exact_and_cover_the_requirements():
    lines = listed((ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8"))
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", x) for x in lines)
    names = {x.split("==")[0].lower() for x in lines}
    required = course.requirement_names((ROOT / "requirements.txt").read_text(encoding="utf-8"))
    assert not set(required) - names


def test_floors_are_said_once_and_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">={course.dotted(course.FLOOR)}"
    assert f"torch>={course.dotted(course.TORCH_FLOOR)}" in project["dependencies"]
    assert f"Python {course.dotted(course.FLOOR)} or newer" in README


def test_version_is_one():
    from eotcourse import __version__

    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_readme_example_prints_what_it_says():
    (block,) = re.findall(r"```python\n(.*?)```", README, re.S)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "README.md", "exec"), {})
    said = re.findall(r"print\(.*\)\s+# (.*)", block)
    assert said and printed.getvalue().splitlines() == said
    shares = [float(x) / 100 for x in re.findall(r"([\d.]+) %", README.split("##")[0])]
    assert str(shares) == said[0], "the first sentence tells other numbers"


def test_readme_names_files_that_exist():
    for name in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / name).exists(), name
