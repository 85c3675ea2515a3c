"""Answer keys of the exercises, one module a page, generated from the page sources."""
