// Small services to the reader and repairs of the theme's markup.

// Until its own script runs, the theme's "auto" is neither light nor dark: two logos are shown,
// and a dark page flashes white.
if (document.documentElement.dataset.theme === "auto") {
  document.documentElement.dataset.theme =
    matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

document.addEventListener("DOMContentLoaded", () => {
  const each = (selector, change) => document.querySelectorAll(selector).forEach(change);

  each(".cell_output pre", (box) => {
    if (/\S {2,}\S/.test(box.textContent)) box.classList.add("columns");
    // A line does not break within 1e-12.
    box.innerHTML = box.innerHTML.replace(/\d[\d.]*e-\d+/g, '<span class="unbroken">$&</span>');
  });

  // What is wider than its column can be scrolled by keyboard; anything else is no stop.
  const kinds = { ".math-scroll": "equation", figure: "picture", pre: "output" };
  const watch = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    if (target.scrollWidth > target.clientWidth) {
      const kind = Object.keys(kinds).find((kind) => target.matches(kind));
      target.tabIndex = 0;
      target.setAttribute("role", "group");
      target.setAttribute("aria-label", `Wide ${kinds[kind] ?? "table"}, scrolls sideways`);
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) target.removeAttribute(name);
    }
  }));
  each(
    ".math-scroll, .pst-scrollable-table-container, .bd-article figure, .cell_output pre.columns",
    (box) => watch.observe(box),
  );

  // The logo stands in the side bar, which is no landmark.
  each(".bd-sidebar-primary", (bar) => {
    bar.setAttribute("role", "navigation");
    bar.setAttribute("aria-label", "Book");
  });

  // A citation is a list item in a list; its own role is deprecated.
  each(".citation-list > .citation", (item) => item.setAttribute("role", "listitem"));

  addEventListener("beforeprint", () => each("details", (box) => { box.open = true; }));
});
