"""Install the course, build its book, run its tests: what ``make book`` and its like call.

    python tools/course.py book            build the book and say how to open it
    python tools/course.py test            run every test
    python tools/course.py test -- -k gibbs   what follows -- goes to pytest
    python tools/course.py student         notebooks to work in, in student/; says how to open them
    python tools/course.py nbgrader        assignments for nbgrader, in nbgrader/source/
    python tools/course.py clean           remove what was built (--all: .venv too), no one's work

Needs nothing but Python itself. An active virtual or conda environment is used as it is and its
torch is kept; otherwise ``.venv`` is made beside this folder. Environment variables:

    TORCH_INDEX   package index to take torch from; empty means pip's own index
    CONSTRAINTS   a pip constraints file, for exact versions
    NO_OPEN       anything: do not open the finished book in a browser
"""
from __future__ import annotations  # this file must also start on a Python that is too old

import argparse
import codecs
import hashlib
import json
import os
import platform
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
import webbrowser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLOOR = (3, 11)
TORCH_FLOOR = (2, 6)
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
STAMP = "eotcourse-installed.txt"
PROBE = (
    "import json, sys; from importlib.metadata import distributions as d; "
    "print(json.dumps([sys.version_info[:3], {x.name.lower(): x.version for x in d() if x.name}]))"
)


class Stop(Exception):
    """An expected failure: the message says what happened and what to try."""


# ---------------------------------------------------------------- which Python


def ask(python):
    """``((major, minor, micro), {package: version})`` of an interpreter; None if it can't run."""
    try:
        done = subprocess.run(
            [str(python), "-c", PROBE], capture_output=True, text=True, timeout=60, env=clean_env()
        )
        version, packages = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return tuple(version), packages


def clean_env(extra=None):
    """The environment of every child: no stray module paths, no backend that would change plots."""
    stray = ("PYTHONPATH", "PYTHONHOME", "MPLBACKEND")
    env = {k: v for k, v in os.environ.items() if k not in stray}
    return {**env, "PYTHONUTF8": "1", **(extra or {})}


def python_in(folder):
    """The interpreter of an environment folder, on any system."""
    names = ("bin/python", "Scripts/python.exe", "python.exe")
    return next((folder / n for n in names if (folder / n).exists()), None)


def active_environment(environ, prefix, base_prefix):
    """Folder of the environment the user has switched on, or None.

    A conda *base* environment is switched on for everyone who has conda; nobody asked to install
    into it, so it does not count.
    """
    if prefix != base_prefix:
        return Path(prefix)
    candidates = [environ.get("VIRTUAL_ENV")]
    if environ.get("CONDA_DEFAULT_ENV") != "base":
        candidates.append(environ.get("CONDA_PREFIX"))
    return next((Path(c) for c in candidates if c and python_in(Path(c))), None)


def base_python(running, executable, which=shutil.which, ask=ask):
    """An interpreter new enough to make ``.venv`` with: this one, else one on the PATH."""
    if running >= FLOOR:
        return executable
    seen = [f"{executable} is {dotted(running)}"]
    for name in ("python3.14", "python3.13", "python3.12", "python3.11", "python3", "python"):
        path = which(name)
        told = ask(path) if path else None
        if told and told[0] >= FLOOR:
            return path
        if told:
            seen.append(f"{path} is {dotted(told[0])}")
    raise Stop(
        f"The course needs Python {dotted(FLOOR)} or newer, and none was found.\n"
        f"Found: {'; '.join(dict.fromkeys(seen))}.\n"
        "Get one from https://www.python.org/downloads/ (or your package manager), then run\n"
        "    python3.12 tools/course.py book          (with the name of the new Python)"
    )


def dotted(version):
    return ".".join(map(str, version))


# ---------------------------------------------------------------- which torch


def has_card(which=shutil.which, run=subprocess.run):
    """True if an NVIDIA driver is there and lists at least one card."""
    tool = which("nvidia-smi")
    if not tool:
        return False
    try:
        done = run([tool, "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and "GPU" in done.stdout


def new_enough(torch):
    """Whether this version of torch (None: not installed) may stay."""
    return torch is not None and tuple(map(int, re.findall(r"\d+", torch)[:2])) >= TORCH_FLOOR


def torch_plan(system, machine, card, index):
    """Which torch comes where none is, and how.

    Args:
        system, machine: as ``platform.system()`` and ``platform.machine()`` give them.
        card: whether an NVIDIA card is usable.
        index: the variable TORCH_INDEX; None if unset, "" for pip's own index.

    Returns:
        ``(sentence, index, gigabytes)``: what to tell the reader, the index to take torch from
        (None: no separate step), and roughly what the whole environment will weigh.
    """
    if system == "Darwin" and machine == "x86_64" and not index:
        raise Stop(
            f"torch {dotted(TORCH_FLOOR)} or newer has no pip build for Intel Macs.\n"
            "On an Apple-silicon Mac this Python is the Intel one: install the arm64 Python.\n"
            "On an Intel Mac take torch from conda-forge (conda install -c conda-forge pytorch)\n"
            "and run this again inside that conda environment."
        )
    if index:
        size = 3.5 if index.rstrip("/").endswith("/cpu") else 6.5
        return f"torch comes from {index}", index, size
    if index == "":
        # On Linux that index has CUDA builds, elsewhere small ones.
        return "torch comes from pip's own index", None, 6.5 if system == "Linux" else 2.0
    if system == "Darwin":
        return "torch comes in its macOS build (processor and Apple GPU)", None, 1.6
    if not card:
        sentence = f"no NVIDIA card found: torch comes in its CPU build, from {CPU_INDEX}"
        return sentence, CPU_INDEX, 3.5
    if system == "Windows":
        # On Windows pip's own index has CPU builds only.
        cuda = CPU_INDEX.replace("cpu", "cu126")
        return f"NVIDIA card found: torch comes in its CUDA build, from {cuda}", cuda, 6.5
    return "NVIDIA card found: torch comes in its CUDA build", None, 6.5


def constraint_lines(text, torch):
    """Constraints for pip that leave an installed torch alone."""
    if torch is None:
        return text
    others = [x for x in text.splitlines() if not re.match(r"torch\s*[=<>!~]", x.strip())]
    return "\n".join([*others, f"torch=={torch}", ""])


# ---------------------------------------------------------------- running things


def last_lines(lines, n=15):
    return "\n".join("    " + line for line in [x for x in lines if x.strip()][-n:])


def run_step(title, command, extra_env=None, every=20.0):
    """Run a command, showing that it lives; return its exit status and its output lines.

    On a terminal one line is rewritten with the seconds and the newest output; elsewhere the step
    and, every ``every`` seconds, a sign of life are printed as lines.
    """
    tty = sys.stdout.isatty()
    start = time.monotonic()
    print(f"== {title}", flush=True)
    child = subprocess.Popen(
        [str(c) for c in command], cwd=ROOT, env=clean_env(extra_env), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace",
    )
    inbox, lines, told = queue.Queue(), [], start

    def read():
        for line in child.stdout:
            inbox.put(re.sub(r"\x1b\[[0-9;]*m", "", line.rstrip()))
        inbox.put(None)

    threading.Thread(target=read, daemon=True).start()
    newest, done = "", False
    try:
        while not done:
            try:
                line = inbox.get(timeout=0.25)
                done = line is None
                progress = re.match(r"Progress (\d+) of (\d+)$", line or "")
                if progress and int(progress[2]):
                    share = 100 * int(progress[1]) // int(progress[2])
                    newest = f"{newest.split(' : ')[0]} : {share} %"
                elif line and line.strip():
                    lines.append(line)
                    # pip names what it removes one by one, what it installs all at once.
                    if not re.search(r"ninstall|Found existing|^WARNING", line.strip()):
                        newest = line.strip()
            except queue.Empty:
                pass
            now = time.monotonic()
            if tty and not done:
                width = shutil.get_terminal_size().columns
                live = f"   {now - start:4.0f} s  {newest}"[: width - 1]
                print("\r" + live.ljust(width - 1), end="", flush=True)
            elif not tty and now - told > every:
                told = now
                print(f"   still at it after {now - start:.0f} s: {newest[:100]}", flush=True)
        status = child.wait()
    except BaseException:
        child.terminate()
        raise
    if tty:
        print("\r" + " " * (shutil.get_terminal_size().columns - 1), end="\r")
    word = "done" if status == 0 else f"failed (exit status {status})"
    print(f"   {word}, {time.monotonic() - start:.0f} s", flush=True)
    return status, lines


def pass_on(command, env, every=20.0):
    """Run a command that prints its own progress, and fill its silences; return its exit status.

    On a terminal the seconds stand behind what it printed last, from two seconds of silence on;
    elsewhere a line is printed every ``every`` seconds of silence.
    """
    tty = sys.stdout.isatty()
    start = last = time.monotonic()
    child = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    inbox, decoder = queue.Queue(), codecs.getincrementaldecoder("utf-8")("replace")

    def read():
        while chunk := child.stdout.read1(4096):
            inbox.put(chunk)
        inbox.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        while True:
            try:
                chunk = inbox.get(timeout=min(1.0, every))
            except queue.Empty:
                now = time.monotonic()
                if tty and now - last > 2:
                    # Save the cursor, write, restore: the next dot goes where it belongs.
                    print(f"\x1b7  at work, {now - start:.0f} s\x1b[K\x1b8", end="", flush=True)
                elif not tty and now - last > every:
                    last = now
                    print(f"\n   at work, {now - start:.0f} s", flush=True)
                continue
            if chunk is None:
                return child.wait()
            last = time.monotonic()
            text = decoder.decode(chunk)
            print(f"\x1b[K{text}" if tty else text, end="", flush=True)
    except BaseException:
        child.terminate()
        raise


# ---------------------------------------------------------------- the environment


def make_environment(folder):
    """Create ``.venv``; leave nothing half-made behind."""
    python = base_python(sys.version_info[:2], sys.executable)
    try:
        title = f"Making the environment {folder.name}"
        status, lines = run_step(title, [python, "-m", "venv", folder])
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if status:
        shutil.rmtree(folder, ignore_errors=True)
        raise Stop(
            f"{python} could not make an environment. It said:\n{last_lines(lines)}\n"
            "On Debian and Ubuntu: sudo apt install python3-venv, then run this again."
        )


def environment():
    """Folder, interpreter, version and packages of the environment to use; made if need be."""
    folder = active_environment(os.environ, sys.prefix, sys.base_prefix)
    kind = "the active environment" if folder else "the environment"
    if folder is None:
        folder = ROOT / ".venv"
        if not folder.exists():
            make_environment(folder)
    python = python_in(folder)
    told = ask(python) if python else None
    if told is None:
        raise Stop(f"{kind} {folder} does not run. Leave it or delete it, then try again.")
    version, packages = told
    if version < FLOOR:
        raise Stop(
            f"{kind} {folder} has Python {dotted(version)}; "
            f"the course needs {dotted(FLOOR)} or newer.\n"
            "Leave it (deactivate) and run this again: .venv is then made with a newer Python.\n"
            "If it is .venv itself, delete it first."
        )
    print(f"Using {kind} {folder} with Python {dotted(version)}", flush=True)
    return folder, python, version, packages


def requirement_names(text):
    """Names of the packages that requirements.txt lists for every system."""
    lines = (x.split("#")[0].strip() for x in text.splitlines())
    kept = [x for x in lines if x and not x.startswith("-") and ";" not in x]
    return [re.match(r"[A-Za-z0-9._-]+", x)[0].lower() for x in kept]


def fingerprint(version, *texts):
    """Changes when the Python, or any text that decides what is installed, changes."""
    parts = [str(ROOT), dotted(version), *texts]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def advice(lines):
    """What to try, read off pip's last words."""
    text = "\n".join(lines)
    if re.search(r"no space left|errno 28", text, re.I):
        return "The disk is full. Make room and run this again."
    if re.search(r"name resolution|connection|timed out|retries|getaddrinfo|proxy", text, re.I):
        return (
            "The package index did not answer. Check the network (behind a proxy: HTTPS_PROXY).\n"
            "If only the index of torch is out of reach: set TORCH_INDEX to another index,\n"
            "or to nothing for pip's own (it may bring a larger build), and run this again."
        )
    if re.search(r"no matching distribution found for torch|from versions.*torch", text, re.I):
        return (
            "No torch for this Python on this system there. Try a Python between 3.11 and 3.13,\n"
            "or set TORCH_INDEX to an index that has one."
        )
    return "Run this again; if it fails in the same way, delete .venv and start afresh."


def install():
    """Bring the environment up to date; return its interpreter and folder."""
    folder, python, version, packages = environment()
    requirements = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    extra = os.environ.get("CONSTRAINTS")
    try:
        constraints = Path(extra).read_text(encoding="utf-8") if extra else ""
    except OSError:
        raise Stop(f"CONSTRAINTS names {extra}, which cannot be read.") from None
    index = os.environ.get("TORCH_INDEX")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    # The copy too: from another one, `eotcourse` must be linked anew.
    mark = fingerprint(version, requirements, project, constraints, str(index), str(ROOT))
    stamp = folder / STAMP
    here = {*packages, *(p.replace("_", "-") for p in packages)}
    missing = [n for n in requirement_names(requirements) if n not in here]
    if not missing and stamp.exists() and stamp.read_text() == mark:
        print("Everything is installed already", flush=True)
        return folder, python

    torch = packages.get("torch") if new_enough(packages.get("torch")) else None
    if torch:
        sentence, index, size = f"torch {torch} is here already and stays", None, 2.0
    else:
        plan = (platform.system(), platform.machine(), has_card(), index)
        sentence, index, size = torch_plan(*plan)
    print(f"{sentence[0].upper()}{sentence[1:]}.", flush=True)
    print(f"Up to about {size:g} GB of disk in all; the first time takes minutes.", flush=True)
    free = shutil.disk_usage(folder).free / 1e9
    if free < size:
        print(f"Beware: only {free:.1f} GB are free there.", flush=True)

    if "pip" not in packages:
        status, lines = run_step("Adding pip", [python, "-m", "ensurepip"])
        if status:
            raise Stop(f"{folder} has no pip and none could be added:\n{last_lines(lines)}")
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    # Most installed modules are never imported: compiling all of them takes longer than the rest.
    pip.append("--no-compile")
    if tuple(map(int, re.findall(r"\d+", packages.get("pip", "0.0"))[:2])) >= (24, 1):
        pip += ["--progress-bar", "raw"]
    limits = folder / "eotcourse-constraints.txt"
    limits.write_text(constraint_lines(constraints, torch), encoding="utf-8")
    pip += ["-c", limits]
    steps = [("Installing what the book and its tests need", [*pip, "-r", "requirements.txt"], {})]
    if index:
        # Only the wheel itself: what torch needs is on pip's own index, at the versions asked for.
        wanted = next(x for x in requirements.splitlines() if x.startswith("torch"))
        wanted = wanted.split("#")[0].strip()
        torch_step = [*pip, "--no-deps", "--index-url", index, wanted]
        # An index added in pip's settings could offer another build than the one announced.
        steps.insert(0, ("Installing torch", torch_step, {"PIP_EXTRA_INDEX_URL": index}))
    for title, command, settings in steps:
        status, lines = run_step(title, command, settings)
        if status:
            raise Stop(
                f"pip could not finish. Its last lines:\n{last_lines(lines)}\n{advice(lines)}"
            )
    stamp.write_text(mark)
    return folder, python


# ---------------------------------------------------------------- book, test, clean


def site_fingerprint(python):
    """Changes when anything changes that the site is made from or that its making is checked by."""
    files = [ROOT / n for n in ("_config.yml", "_toc.yml")]
    for part in ("book", "tests/claims", "tools", "eotcourse/course/checks"):
        files += sorted((ROOT / part).rglob("*"))
    parts = [json.dumps(ask(python))]
    for file in files:
        if file.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(file.parts):
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            parts.append(f"{file.relative_to(ROOT).as_posix()} {digest}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def build_book(folder, python):
    """Check that notebooks follow their sources, then build every page; return the front page."""
    site = ROOT / "_build" / "html"
    stamp = ROOT / "_build" / "built-from.txt"
    mark = site_fingerprint(python)
    if (site / "index.html").exists() and stamp.exists() and stamp.read_text() == mark:
        print("The book is built already", flush=True)
        return site / "index.html"
    check = [python, "tools/notebooks.py", "check"]
    status, lines = run_step("Comparing the notebooks with their sources", check)
    if status:
        raise Stop("Notebooks and sources do not agree:\n" + last_lines(lines, 40))
    # A page left from an earlier build must not be read or tested as if it were this one's, and
    # Sphinx repeats no warning about a page it does not read again.
    stamp.unlink(missing_ok=True)
    for old in (site, ROOT / "_build" / ".doctrees"):
        shutil.rmtree(old, ignore_errors=True)
    call = "from jupyter_book.cli.main import main; main()"
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    command = [python, "-c", call, "build", ".", "-W", "--keep-going", "-n"]
    status, lines = run_step("Building the book", command, {"PATH": path})
    if status:
        # The words of an error stand on the line after it.
        fault = re.compile(r"WARNING|ERROR|error:")
        faults = [x for before, x in zip(["", *lines], lines)
                  if fault.search(x) or before.endswith("error:")]
        raise Stop(f"The book does not build. What was wrong:\n{last_lines(faults or lines, 40)}")
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(mark)
    return site / "index.html"


def open_page(page, environ, tty, system):
    """Open the page, where somebody is sitting in front of a screen."""
    screen = system in ("Windows", "Darwin") or {"DISPLAY", "WAYLAND_DISPLAY"} & set(environ)
    if tty and screen and not {"CI", "NO_OPEN"} & set(environ):
        webbrowser.open(page.as_uri())


def book():
    page = build_book(*install())
    print(f"The book is built. Open it in a browser, no server needed:\n    {page}", flush=True)
    open_page(page, os.environ, sys.stdout.isatty(), platform.system())
    return 0


HOW_TO_OPEN = {
    "student": (
        "Your notebooks are in {folder}. Open them in JupyterLab:\n"
        "    \"{python}\" -m jupyterlab \"{folder}\"\n"
        "or in any editor for notebooks, with that Python as their kernel.\n"
        "What you change there is yours: no command here writes over it or deletes it."
    ),
    "nbgrader": (
        "The assignments are in {folder}, with hidden tests and solutions: hand out only what\n"
        "nbgrader releases from them, for instance\n"
        "    \"{python}\" -m pip install nbgrader\n"
        "    cd nbgrader\n"
        "    \"{python}\" -m nbgrader generate_assignment gibbs"
    ),
}


def edition(name):
    """Write the notebooks that people work in, and say how to open them."""
    _, python = install()
    print(f"== Writing the notebooks of the edition {name}", flush=True)
    status = pass_on([str(python), "tools/notebooks.py", name], clean_env())
    if status == 0:
        folder = ROOT / name / ("source" if name == "nbgrader" else "")
        print(HOW_TO_OPEN[name].format(folder=folder, python=python), flush=True)
    return status


def test(arguments):
    folder, python = install()
    build_book(folder, python)
    notebooks = [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "book").rglob("*.ipynb"))
                 if ".ipynb_checkpoints" not in p.parts]
    command = [
        str(python), "-m", "pytest", "-q", "-n", "2", "--dist", "loadscope",
        "--no-loadscope-reorder",  # long files first, the many even notebooks last
        "--nbval", "--nbval-current-env", "--nbval-sanitize-with=tests/nbval.cfg",
        "--nbval-cell-timeout=120",
        f"--color={'yes' if sys.stdout.isatty() else 'no'}",
        "tests", *notebooks, *arguments,
    ]
    print(f"== Running the tests and re-running {len(notebooks)} notebooks", flush=True)
    print("   First they are collected; then a dot is a test that passed", flush=True)
    width = str(shutil.get_terminal_size().columns)
    quiet = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "COLUMNS": width}
    status = pass_on(command, clean_env(quiet))
    print("All tests passed" if status == 0 else f"Tests failed (pytest exit status {status})")
    return status


def clean(everything):
    gone = [ROOT / n for n in ("_build", "build", "dist", ".pytest_cache", ".hypothesis")]
    for part in ("eotcourse", "tests", "tools", "book"):
        gone += (ROOT / part).rglob("__pycache__")
    if everything:
        gone.append(ROOT / ".venv")
    for folder in filter(Path.exists, gone):
        shutil.rmtree(folder)
        print(f"removed {folder.relative_to(ROOT)}")
    return 0


def main(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["book", "test", "student", "nbgrader", "clean"])
    parser.add_argument("--all", action="store_true", help="clean: remove .venv too")
    cut = argv.index("--") if "--" in argv else len(argv)
    options, theirs = parser.parse_args(argv[:cut]), argv[cut + 1 :]
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    start = time.monotonic()
    try:
        if options.what == "clean":
            return clean(options.all)
        if options.what in HOW_TO_OPEN:
            status = edition(options.what)
        else:
            status = book() if options.what == "book" else test(theirs)
    except Stop as stop:
        print(f"\n{stop}", file=sys.stderr, flush=True)
        status = 1
    except KeyboardInterrupt:
        print("\nInterrupted. Running it again continues where it can.", file=sys.stderr)
        status = 130
    print(f"Took {time.monotonic() - start:.0f} s in all", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
