// Small services to the reader and repairs of the theme's markup.

// Until its own script runs, the theme's "auto" is neither light nor dark: two logos are shown,
// and a dark page flashes white.
if (document.documentElement.dataset.theme === "auto") {
  document.documentElement.dataset.theme =
    matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

document.addEventListener("DOMContentLoaded", () => {
  const each = (selector, change) => document.querySelectorAll(selector).forEach(change);

  // What is wider than its column can be scrolled by keyboard; anything else is no stop.
  const watch = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    if (target.scrollWidth > target.clientWidth) {
      const kind = target.matches(".math-scroll") ? "equation" : "table";
      target.tabIndex = 0;
      target.setAttribute("role", "group");
      target.setAttribute("aria-label", `Wide ${kind}, scrolls sideways`);
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) target.removeAttribute(name);
    }
  }));
  each(".math-scroll, .pst-scrollable-table-container", (box) => watch.observe(box));

  // The logo stands in the side bar, which is no landmark.
  each(".bd-sidebar-primary", (bar) => {
    bar.setAttribute("role", "navigation");
    bar.setAttribute("aria-label", "Book");
  });

  // A citation is a list item in a list; its own role is deprecated.
  each(".citation-list > .citation", (item) => item.setAttribute("role", "listitem"));

  addEventListener("beforeprint", () => each("details", (box) => { box.open = true; }));
});
