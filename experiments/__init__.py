"""Runs that are too long for a page; each writes a small table, which says how it was made."""
