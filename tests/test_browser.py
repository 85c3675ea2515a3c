"""Every page, opened from disk in a real browser: wide and narrow, light and dark.

Needs a Chromium on the PATH and the PyPI packages `playwright` and `axe-playwright-python`
(the latter only carries axe-core); without them the tests are skipped and say so.
"""

import importlib.util
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build/html"
SHOTS = ROOT / "_build/shots"
CHROMIUM = next(
    filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None
)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.browser

for missing, needs in [
    (not SITE.exists(), "the book is not built"),
    (CHROMIUM is None, "no Chromium on the PATH"),
    (importlib.util.find_spec("playwright") is None, "playwright is not installed"),
    (
        importlib.util.find_spec("axe_playwright_python") is None,
        "axe-playwright-python is not installed",
    ),
]:
    if missing:
        pytest.skip(f"browser tests: {needs}", allow_module_level=True)

AXE = Path(importlib.util.find_spec("axe_playwright_python").origin).with_name("axe.min.js")
PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if not path.relative_to(SITE).parts[0].startswith("_")
)

WATCH_SHIFTS = """
window.layoutShift = 0;
new PerformanceObserver(list => {
  for (const entry of list.getEntries()) window.layoutShift += entry.value;
}).observe({type: "layout-shift", buffered: true});
"""

OPEN_EVERYTHING = """() => {
  document.querySelectorAll(".bd-article details").forEach(box => { box.open = true; });
  document.querySelectorAll(".bd-article button.toggle-button").forEach(button => {
    if (button.getAttribute("data-button") !== "open" || button.matches(".toggle-button-hidden"))
      button.click();
  });
}"""

# What is wrong with the page as it stands, in words; an empty list when nothing is.
COMPLAINTS = """() => {
  const complaints = [];
  const rgba = text => text.match(/[\\d.]+/g).map(Number);
  const luminance = colour => {
    const [r, g, b] = rgba(colour).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = element => {
    for (; element; element = element.parentElement) {
      const colour = rgba(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.5) return getComputedStyle(element).backgroundColor;
    }
    return "rgb(255, 255, 255)";
  };
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) complaints.push(`the page is ${width} px wide`);
  for (const svg of document.querySelectorAll(".math svg")) {
    const [a, b] = [luminance(getComputedStyle(svg).color), luminance(paper(svg))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5)
      complaints.push(`formula with contrast ${contrast.toFixed(2)}: ${svg.parentElement.textContent}`);
  }
  for (const box of document.querySelectorAll(".math-scroll")) {
    const scrolls = box.scrollWidth > box.clientWidth;
    if (scrolls !== (box.tabIndex === 0))
      complaints.push(`formula: scrolls ${scrolls}, tabIndex ${box.tabIndex}: ${box.textContent}`);
  }
  for (const image of document.querySelectorAll(".bd-article img")) {
    const style = getComputedStyle(image);
    if (style.filter !== "none") complaints.push(`picture with filter ${style.filter}`);
    if (image.closest(".cell_output") && style.backgroundColor !== "rgb(255, 255, 255)")
      complaints.push(`picture on ${style.backgroundColor}`);
    if (!image.naturalWidth) complaints.push(`picture not shown: ${image.src}`);
    if (image.clientWidth > 690) complaints.push(`picture ${image.clientWidth} px wide`);
  }
  return complaints;
}"""

# Axe measures contrast piece by piece. It has no rule for the inside of a formula, whose colour is
# measured above, and one piece of code of each colour is enough.
THIN_OUT = """() => {
  document.querySelectorAll(".math svg, .mathml, .math-glyphs").forEach(inside => inside.remove());
  const seen = new Set();
  document.querySelectorAll(".highlight pre span[class]").forEach(token =>
    seen.has(token.className) ? token.replaceWith(token.textContent) : seen.add(token.className));
}"""

RUN_AXE = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"], preload: false});
  return found.violations.flatMap(rule => rule.nodes.map(node =>
    `${rule.id}: ${node.html.slice(0, 160)} ${node.any.map(c => c.message).join(" ")}`));
}"""


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def new_page(browser):
    """Opens pages and keeps what they log and ask for in `page.trouble`."""
    contexts = []

    def open_page(address, width, theme):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme
        )
        contexts.append(context)
        page = context.new_page()
        page.trouble = []
        page.on("pageerror", lambda error: page.trouble.append(f"script error: {error}"))
        page.on(
            "console",
            lambda line: line.type == "error" and page.trouble.append(f"console: {line.text}"),
        )
        page.on(
            "request",
            lambda request: request.url.startswith(("file:", "data:", "blob:"))
            or page.trouble.append(f"request: {request.url}"),
        )
        page.add_init_script(WATCH_SHIFTS)
        page.goto(address, wait_until="load")
        return page

    yield open_page
    for context in contexts:
        context.close()


def set_theme(page, theme):
    page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    page.wait_for_timeout(300)  # colours change gradually


@pytest.mark.parametrize("width, themes", [(1280, ["light", "dark"]), (390, ["dark", "light"])])
@pytest.mark.parametrize("path", PAGES)
def test_page(new_page, path, width, themes):
    page = new_page((SITE / path).as_uri(), width, themes[0])
    page.wait_for_timeout(500)
    shift = page.evaluate("window.layoutShift")
    assert shift <= 0.02, f"the page moves while it loads: {shift}"
    page.evaluate(OPEN_EVERYTHING)
    complaints = []
    SHOTS.mkdir(exist_ok=True)
    for theme in themes:
        set_theme(page, theme)
        shot = SHOTS / f"{path.removesuffix('.html').replace('/', '-')}-{width}-{theme}.png"
        page.screenshot(path=shot, full_page=True, timeout=120_000)  # the ledger is long
        complaints += page.evaluate(COMPLAINTS)
    page.evaluate(THIN_OUT)
    page.add_script_tag(path=AXE)
    for theme in themes:
        set_theme(page, theme)
        complaints += [f"{theme}: {words}" for words in page.evaluate(RUN_AXE)]
    complaints += page.trouble
    assert not complaints, "\n".join(complaints)


def test_search_finds_softmax(new_page):
    page = new_page((SITE / "search.html").as_uri() + "?q=softmax", 1280, "light")
    page.wait_for_selector("#search-results li a", timeout=10_000)


def test_complaints_are_possible(new_page, tmp_path):
    """A page with one of each mistake is refused for each of them."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        """<!doctype html><html lang="en"><head><title>Bad</title>
        <script src="http://127.0.0.1:9/missing.js"></script>
        <script>throw new Error("planted")</script></head>
        <body style="background: rgb(20, 20, 20)"><main class="bd-article">
        <div class="math" style="color: rgb(40, 40, 40)"><div class="math-scroll"
          style="width: 50px; overflow: auto"><svg width="2000" height="9"></svg></div></div>
        <div style="width: 2000px">wide</div>
        <img src="missing.png" style="filter: invert(1)" alt=""></main></body>"""
    )
    page = new_page(bad.as_uri(), 390, "light")
    words = " ".join(page.trouble + page.evaluate(COMPLAINTS))
    for part in [
        "request: http://127.0.0.1:9/",
        "script error: planted",
        "console:",
        "px wide",
        "contrast 1.",
        "scrolls true, tabIndex -1",
        "filter invert",
        "not shown",
    ]:
        assert part in words, f"{part!r} is not in {words}"
    page.add_script_tag(path=AXE)
    assert page.evaluate("async () => (await axe.run()).violations.length") > 0
