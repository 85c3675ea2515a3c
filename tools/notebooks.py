"""Text sources <-> executed notebooks.

    python tools/notebooks.py build [page ...]   book/src/X.md -> book/X.ipynb, executed
    python tools/notebooks.py check              every notebook is in step with its source and sound
    python tools/notebooks.py student [page ...]    exercises to answer, in student/
    python tools/notebooks.py nbgrader [page ...]   assignments to hand out, in nbgrader/source/

A page is written once, in MyST, with its exercises, their solutions, tests and answer keys.  From it
come the notebook that the book shows (edition "page"), the answer keys that
`eotcourse.course.check` reads, and the editions "student" and "nbgrader", in plain Markdown and not
executed.  Two builds of the same source give the same bytes; a student's or nbgrader's notebook
that somebody has changed is never written again.
"""

import argparse
import ast
import base64
import builtins
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import struct
import sys
import time

import plain

ROOT = pathlib.Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
SRC = BOOK / "src"
CHECKS = ROOT / "eotcourse" / "course" / "checks"

# One thread and no hash seed make a stored output repeatable; kernels inherit both.
KERNEL_ENV = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "pygments_lexer": "ipython3",
    },
}
MAX_LINES, MAX_WIDTH = 15, 72

SOLUTION_MARK = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[ \t]*\n?", re.M)
SOLUTION_BLOCK = re.compile(
    r"^(?P<indent>[ \t]*)### BEGIN SOLUTION[ \t]*\n.*?^[ \t]*### END SOLUTION[ \t]*\n?", re.M | re.S
)
ANSWER_HERE = "write your answer here"
YOUR_COPY = (
    "*This notebook is yours: run its cells from the top, write answers where a cell says so, and run"
    " the check below each. Once you have changed it, `make student` leaves it alone."
    " The solutions are folded away on the page of the same title in the book.*"
)
HIDDEN_TESTS = re.compile(
    r"^[ \t]*### BEGIN HIDDEN TESTS\n.*?^[ \t]*### END HIDDEN TESTS[ \t]*\n?", re.M | re.S
)
# Notes to the tests, on numbers in the prose and parts of statements; no reader's business.
NOTE = re.compile(r"^% (?:number|printed|given|parts): .*(?:\n|\Z)", re.M)


def pages():
    return sorted(p.relative_to(SRC).with_suffix("").as_posix() for p in SRC.rglob("*.md"))


def source(page):
    return SRC / f"{page}.md"


def target(page):
    return BOOK / f"{page}.ipynb"


def checks_module(page):
    return CHECKS / f"{page.rpartition('/')[2].replace('-', '_')}.py"


def read(page):
    import jupytext

    return jupytext.read(source(page))


def tags(cell):
    return cell.metadata.get("tags", [])


def is_solution(cell):
    return cell.metadata.get("nbgrader", {}).get("solution", False)


def exercise_of(cell):
    """The exercise a graded cell belongs to: its grade_id without the suffix of its test cell."""
    return cell.metadata.get("nbgrader", {}).get("grade_id", "").removesuffix("-check")


def box(meta):
    """The box under the title: what you will be able to do, what you need, how long it takes."""
    lines = ["```{admonition} On this page", ":class: tip page-box", "", "**You will be able to**", ""]
    lines += [f"- {outcome}" for outcome in meta["outcomes"]]
    minutes = f"{meta['read']} minutes to read, {meta['run']} to run"
    lines += ["", f"**You need** {', '.join(meta['needs'])}.", "", f"**Time** {minutes}.", "```"]
    return "\n".join(lines)


def notebook(cells, page, metadata):
    import nbformat

    out = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    for i, cell in enumerate(out.cells):
        cell["id"] = f"{page.rpartition('/')[2][:20]}-{i:03d}"
    return out


def shown_cells(nb, page):
    """Copies of all cells but the answer keys, with the box under the title."""
    import nbformat

    cells = [nbformat.from_dict(cell) for cell in nb.cells if "exercise-check" not in tags(cell)]
    for cell in cells:
        if cell.cell_type == "markdown":
            cell.source = NOTE.sub("", cell.source).rstrip("\n")
    title, newline, rest = cells[0].source.partition("\n")
    if not title.startswith("# "):
        raise SystemExit(f"{source(page)}: the first cell must start with the title")
    cells[0].source = f"{title}\n\n{box(nb.metadata['eotcourse'])}\n{newline}{rest}".rstrip("\n")
    return cells


def edition_page(nb, page):
    """What the book shows: solutions folded, no markers, no hidden tests, no answer keys."""
    cells = shown_cells(nb, page)
    for cell in cells:
        if cell.cell_type == "code":
            cell.source = SOLUTION_MARK.sub("", HIDDEN_TESTS.sub("", cell.source)).strip("\n")
        if is_solution(cell):
            cell.metadata["tags"] = [*tags(cell), "hide-input"]
            cell.metadata["mystnb"] = {
                "code_prompt_show": "Show the solution",
                "code_prompt_hide": "Hide the solution",
            }
    return notebook(cells, page, METADATA)


@functools.cache
def all_sources(folder):
    return plain.Book({p: source(p).read_text(encoding="utf-8") for p in pages()})


def plain_cells(nb, page, links):
    """Cells that any editor shows as they are meant: plain Markdown, captions as text."""
    import nbformat

    book = all_sources(SRC)
    cells = []
    for cell in shown_cells(nb, page):
        if cell.cell_type == "code":
            figure = cell.metadata.pop("mystnb", {}).get("figure")
            cells.append(cell)
            if figure:
                cell.metadata["jupyter"] = {"source_hidden": True}
                words = f"**{book.items[figure['name']].name}.** {figure['caption']}"
                cells.append(nbformat.v4.new_markdown_cell(book.markdown(words, page, links)))
        elif text := book.markdown(cell.source, page, links):
            cell.source = text
            cells.append(cell)
    return cells


def digest(cells):
    """Changes when somebody edits, adds, moves or deletes a cell; running one changes nothing."""
    return hashlib.sha256(json.dumps([[c.cell_type, c.source] for c in cells]).encode()).hexdigest()


def stub(solution, check):
    """An answer cell without its answer: same names, nothing that raises when it is run."""
    block = re.search(SOLUTION_BLOCK, solution)
    around = solution.replace(block[0], "")
    # A placeholder that the page writes by hand is written again below.
    around = re.sub(r"^\w+ = \.\.\.$", "", around, flags=re.M)
    mark = f"{block['indent']}# {ANSWER_HERE}\n"
    if around.strip():
        return solution.replace(block[0], f"{mark}{block['indent']}...\n").strip("\n")
    wanted = _names(solution, ast.Store) & _names(check, ast.Load)
    return mark + "\n".join(f"{name} = ..." for name in sorted(wanted))


def edition_student(nb, page):
    """What a learner works in: answer cells to fill, checks that run, no solution anywhere."""
    checks = {
        exercise_of(c): HIDDEN_TESTS.sub("", c.source).strip("\n")
        for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade")
    }
    cells = plain_cells(nb, page, links=True)
    for cell in cells:
        if not (label := exercise_of(cell)):
            continue
        if is_solution(cell):
            cell.source = stub(cell.source, checks[label])
        else:
            cell.source = checks[label]
            # An exercise without an answer must not stop "run all cells".
            cell.metadata["tags"] = [*tags(cell), "raises-exception"]
        del cell.metadata["nbgrader"]
    cells[0].source += f"\n\n{YOUR_COPY}"
    return notebook(cells, page, {**METADATA, "eotcourse": {"digest": digest(cells)}})


def edition_nbgrader(nb, page):
    """An assignment: nbgrader's markers, metadata and hidden tests kept, no solution in words."""
    cells = plain_cells(nb, page, links=False)
    for cell in cells:
        # An assignment's folder travels alone.
        cell.source = cell.source.replace(f'"{up(page)}data/', '"data/')
    return notebook(cells, page, {**METADATA, "eotcourse": {"digest": digest(cells)}})


def up(page):
    """The way from a page's folder to the folder of all pages."""
    return "../" * page.count("/")


EDITIONS = {"page": edition_page, "student": edition_student, "nbgrader": edition_nbgrader}


def copy_of(edition, page):
    """Where the notebook of an edition outside the book is written."""
    if edition == "student":
        return ROOT / "student" / f"{page}.ipynb"
    slug = page.rpartition("/")[2]
    return ROOT / "nbgrader" / "source" / slug / f"{slug}.ipynb"


def write_edition(edition, page):
    """Write one page's notebook, unless somebody has changed it; say what was done."""
    import nbformat

    path, nb = copy_of(edition, page), read(page)
    new = EDITIONS[edition](nb, page)
    word = "written"
    if path.exists():
        try:
            old = nbformat.read(path, 4)
            written = old.metadata.get("eotcourse", {}).get("digest")
            theirs = written != digest(old.cells)
        except (ValueError, nbformat.ValidationError):
            written, theirs = None, True
        if theirs and written == new.metadata["eotcourse"]["digest"]:
            return "kept: you changed it"
        if theirs:
            return "kept: you changed it. The page has a newer one: rename yours, run this again"
        if written == new.metadata["eotcourse"]["digest"]:
            return "there already"
        word = "written anew: the page has changed and your copy had not"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.validate(new)
    nbformat.write(new, path)
    if f'"{up(page)}data/' in "".join(c.source for c in nb.cells):
        home = ROOT / "student" if edition == "student" else path.parent
        shutil.copytree(BOOK / "data", home / "data", dirs_exist_ok=True)
    return word


def answer_keys(nb, page):
    """The text of the generated module with the page's answer keys, or None without exercises."""
    keys = [c.source.strip("\n") for c in nb.cells if "exercise-check" in tags(c)]
    if not keys:
        return None
    head = f'"""Answer keys of the page {page}, generated from its source: edit them there."""\n\n'
    head += "import math  # noqa: F401\n\nimport numpy as np  # noqa: F401\nimport torch  # noqa: F401\n\n"
    return head + "from eotcourse.course.exercises import exercise\n\n" + "\n\n".join(keys) + "\n"


def _names(code, context):
    tree = ast.parse(code)
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}
    if context is ast.Store:
        found |= {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        arguments = [n for n in ast.walk(tree) if isinstance(n, ast.arg)]
        found |= {a.arg for a in arguments}
    return found


def leaks(nb):
    """Names that a solution defines and a cell outside its exercise uses."""
    owner, faults = {}, []
    for cell in nb.cells:
        if cell.cell_type != "code" or "exercise-check" in tags(cell):
            continue
        stored = _names(cell.source, ast.Store)
        used = _names(cell.source, ast.Load) - stored - set(dir(builtins))
        mine = exercise_of(cell)
        for name in sorted(used):
            if owner.get(name) and owner[name] != mine:
                faults.append(f"{name!r} is defined by the solution of {owner[name]} and used elsewhere")
        for name in stored:
            owner[name] = mine if is_solution(cell) else None
    return faults


def png_digest(png):
    """The data fingerprint's digest that `publish` wrote into a picture, or None."""
    at = 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        if kind == b"tEXt" and body.startswith(b"Description\0"):
            return body.partition(b"\0")[2].decode()
        at += 12 + length
    return None


def figures(cell):
    """What is kept in a cell's metadata about the pictures it drew."""
    found = []
    for output in cell.get("outputs", []):
        if "image/png" in output.get("data", {}):
            png = base64.b64decode(output["data"]["image/png"])
            text = output["data"].get("text/plain", "")
            found.append({"png": hashlib.sha256(png).hexdigest(), "data": hashlib.sha256(text.encode()).hexdigest()})
    return found


def faults(nb):
    """Everything about an executed notebook that nbval would let pass."""
    found = []
    code = [c for c in nb.cells if c.cell_type == "code" and c.source.strip()]
    if [c.execution_count for c in code] != list(range(1, len(code) + 1)):
        found.append("not executed from top to bottom")
    for c in code:
        where = f"cell {c.get('id')}"
        lines = c.source.splitlines()
        if len(lines) > MAX_LINES:
            found.append(f"{where}: {len(lines)} lines, more than {MAX_LINES}")
        if max(map(len, lines)) > MAX_WIDTH:
            found.append(f"{where}: a line of more than {MAX_WIDTH} characters")
        if c.source.rstrip().endswith(";"):
            found.append(f"{where}: ends with ';', which a re-run ignores")
        for o in c.outputs:
            if o.output_type == "error":
                found.append(f"{where}: stored error {o.get('ename')}")
            if o.get("name") == "stderr":
                found.append(f"{where}: writes to stderr")
            data = o.get("data", {})
            if {"image/png", "image/svg+xml", "image/jpeg"} & set(data):
                alt = c.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
                if len(alt) < 40:
                    found.append(f"{where}: picture without alternative text")
                digest = png_digest(base64.b64decode(data.get("image/png", "")))
                if digest != hashlib.sha256(data.get("text/plain", "").encode()).hexdigest():
                    found.append(f"{where}: the picture is not the one that its data fingerprint describes")
        if c.metadata.get("eotcourse", {}).get("figures", []) != figures(c):
            found.append(f"{where}: the picture is not the one that was built")
    return found


def _comparable(nb):
    cells = []
    for c in nb.cells:
        meta = {k: v for k, v in c.metadata.items() if k != "eotcourse"}
        cells.append((c.cell_type, c.id, c.source, meta))
    return cells


def build(page):
    """Execute one page and write its notebook and its answer keys."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    start, nb = time.monotonic(), read(page)
    keys = answer_keys(nb, page)
    if keys:
        checks_module(page).write_text(keys, encoding="utf-8")
    if leaking := leaks(nb):
        raise SystemExit(f"{page}: " + "; ".join(leaking))
    out = EDITIONS["page"](nb, page)
    target(page).parent.mkdir(parents=True, exist_ok=True)
    os.environ.pop("MPLBACKEND", None)
    os.environ.update(KERNEL_ENV)
    client = NotebookClient(
        out,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        # Where the kernel happens to flush must not split the stored text in two.
        coalesce_streams=True,
        # ipykernel warns on the terminal about local TCP; the warning is no reader's business.
        extra_arguments=["--IPKernelApp.log_level=40"],
        resources={"metadata": {"path": str(target(page).parent)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise SystemExit(f"{page}: {error}") from None
    out.metadata = nbformat.from_dict(METADATA)
    for cell in out.cells:
        if cell.cell_type == "code" and (drawn := figures(cell)):
            cell.metadata["eotcourse"] = {"figures": drawn}
    if found := faults(out):
        raise SystemExit(f"{page}:\n  " + "\n  ".join(found))
    nbformat.validate(out)
    nbformat.write(out, target(page))
    print(f"{page}: {len(out.cells)} cells, {time.monotonic() - start:.1f} s", flush=True)


# A build leaves the notebook the younger of the two, and then they agree.
SOURCE_CHANGED = "the notebook is out of step with its source, which was changed after it"
NOTEBOOK_CHANGED = "the notebook is out of step with its source: the notebook itself was changed"


def out_of_step(page):
    younger = target(page).stat().st_mtime > source(page).stat().st_mtime
    return NOTEBOOK_CHANGED if younger else SOURCE_CHANGED


def advice(found):
    """What to do about the faults that `check` found; the commands work as they stand."""
    changed = sorted({f.partition(":")[0] for f in found if f.endswith(NOTEBOOK_CHANGED)})
    if changed:
        yield "Did you answer exercises there? Keep them: copy what you changed to student/ first, as in"
        yield f"    book/{changed[0]}.ipynb -> student/{changed[0]}-mine.ipynb"
        yield "(`make student` makes notebooks to work in.) Building writes over it:"
    broken = sorted({f.partition(":")[0] for f in found} & set(pages()))
    yield "Rebuild with"
    yield f'    "{sys.executable}" tools/notebooks.py build {" ".join(broken)}'


def check():
    """Every way in which sources, notebooks and answer keys are out of step, as sentences."""
    import nbformat

    found = []
    for page in pages():
        nb = read(page)
        found += [f"{page}: {leak}" for leak in leaks(nb)]
        if not target(page).exists():
            found.append(f"{page}: not built")
            continue
        built = nbformat.read(target(page), 4)
        if _comparable(built) != _comparable(EDITIONS["page"](nb, page)):
            found.append(f"{page}: {out_of_step(page)}")
        found += [f"{page}: {fault}" for fault in faults(built)]
        keys, module = answer_keys(nb, page), checks_module(page)
        if keys and (not module.exists() or module.read_text(encoding="utf-8") != keys):
            found.append(f"{page}: the answer keys are out of step with the source")
    kept = {target(p) for p in pages()}
    built = (p for p in BOOK.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    found += [f"{p.relative_to(ROOT)}: no source, delete it" for p in sorted(built) if p not in kept]
    modules = {checks_module(p) for p in pages() if answer_keys(read(p), p)}
    stray = set(CHECKS.glob("*.py")) - modules - {CHECKS / "__init__.py"}
    found += [f"{p.relative_to(ROOT)}: no exercises in any source, delete it" for p in sorted(stray)]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("build", "student", "nbgrader"):
        commands.add_parser(name).add_argument("pages", nargs="*")
    commands.add_parser("check")
    args = parser.parse_args()
    if args.command == "check":
        if found := check():
            raise SystemExit("\n".join([*found, *advice(found)]))
        print(f"{len(pages())} notebooks are in step with their sources")
        return
    wanted = args.pages or pages()
    if unknown := sorted(set(wanted) - set(pages())):
        raise SystemExit(f"no such page: {', '.join(unknown)}; there are {', '.join(pages())}")
    faulty = []
    for i, page in enumerate(wanted, 1):
        if args.command == "build":
            print(f"[{i}/{len(wanted)}] {page} ...", flush=True)
            build(page)
        else:
            try:
                said = write_edition(args.command, page)
            except plain.NoPlainForm as fault:
                said = "not written"
                faulty.append(str(fault))
            print(f"[{i}/{len(wanted)}] {copy_of(args.command, page).relative_to(ROOT)}: {said}", flush=True)
    if faulty:
        raise SystemExit("Pages with faults were left out:\n" + "\n".join(faulty))


if __name__ == "__main__":
    try:
        main()
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"{error} in {sys.executable}. Use the course's own Python, which `make book` sets up:\n"
            f"    {ROOT / '.venv' / ('Scripts' if os.name == 'nt' else 'bin') / 'python'} tools/notebooks.py ..."
        ) from None
