"""Instant feedback on the exercises: right, a known mistake by its name, or not yet."""

import functools
import importlib

import numpy as np

__all__ = ["NotYet", "check", "exercise"]

_EXERCISES = {}


class NotYet(AssertionError):
    """The answer to an exercise is not right; the message says what is likely wrong."""

    def _render_traceback_(self):
        # In a notebook the reader needs the sentence, not the stack.
        return [str(self)]


def exercise(label, *, right, wrong, probe=None, tol=1e-9):
    """Register the answer key of one exercise.

    Parameters
    ----------
    label : str
        The exercise's label, ``ex-<page>-<number>``.
    right : object
        The right answer: number, array, string, tuple of these, or a function when ``probe`` is given.
    wrong : dict
        ``name: (answer, message)`` for the mistakes that are likely; the message must not give the
        answer away.
    probe : callable, optional
        What of an answer is compared: ``probe(answer)`` is a number, array or tuple.
    tol : float
        Largest absolute difference that counts as equal.
    """
    if label in _EXERCISES:
        raise ValueError(f"{label} is registered twice")
    _EXERCISES[label] = (right, wrong, probe or (lambda answer: answer), tol)


def _load(label):
    if not isinstance(label, str):
        raise TypeError(
            f"the first argument of check is the exercise's label in quotes, then comes your answer,"
            f' as in check("ex-gibbs-1", answer); the label given is of type {type(label).__name__}'
        )
    if label not in _EXERCISES:
        page = label.removeprefix("ex-").rpartition("-")[0].replace("-", "_")
        try:
            importlib.import_module(f"eotcourse.course.checks.{page}")
        except ModuleNotFoundError:
            pass
    if label not in _EXERCISES:
        raise KeyError(f"there is no exercise {label!r}")
    return _EXERCISES[label]


def _same(a, b, tol):
    if isinstance(b, str):
        return isinstance(a, str) and a.strip().casefold() == b.strip().casefold()
    x, y = _numbers(a), _numbers(b)
    if y is None:  # parts of different shapes
        return (
            isinstance(a, (tuple, list))
            and len(a) == len(b)
            and all(_same(x, y, tol) for x, y in zip(a, b))
        )
    if x is not None and x.size == y.size == 1:  # a number may come as an array of one entry
        x = x.reshape(y.shape)
    return x is not None and x.shape == y.shape and np.allclose(x, y, rtol=0, atol=tol, equal_nan=True)


def _numbers(x):
    try:
        if hasattr(x, "detach"):
            # NumPy has no bfloat16; every other floating type becomes float64 below anyway.
            x = x.detach().cpu()
            x = (x.double() if x.is_floating_point() else x).numpy()
        return np.asarray(x, dtype=float)
    except (TypeError, ValueError, RuntimeError):
        return None


def _parts(x):
    """An answer and, where it is a tuple or list, everything in it."""
    yield x
    if isinstance(x, (tuple, list)):
        for part in x:
            yield from _parts(part)


def _gives_none(probe, answer):
    """Whether an answer is None, has None in it, or is a function that returns None when tried."""
    returned = []
    if callable(answer):
        function = answer

        @functools.wraps(function)
        def answer(*args, **kwargs):
            returned.append(function(*args, **kwargs))
            return returned[-1]

    try:
        returned.append(probe(answer))
    except Exception:
        # What it did return until then is the likely cause.
        pass
    return any(part is None for part in _parts(returned))


def _misunderstanding(probe, answer, right):
    """What is wrong with the kind of an answer rather than with its value, or None."""
    if answer is ...:
        return "There is no answer yet: replace the three dots above."
    if answer is None:
        return "Your answer is None; did you forget `return`?"
    if _gives_none(probe, answer) and not _gives_none(probe, right):
        return "Your answer returned None; did you forget `return`?"
    return None


def check(label, answer):
    """Check an answer to an exercise of the book.

    Prints ``<label>: correct`` for a right answer.  Raises :class:`NotYet` otherwise, with the name
    of the mistake when it is a known one; the right answer is never printed.

    Parameters
    ----------
    label : str
        The exercise's label, printed above it in the book, such as ``"ex-gibbs-1"``.
    answer : object
        What the exercise asks for: a number, array, string or function.

    Raises
    ------
    NotYet
        The answer is not right.
    KeyError
        There is no such exercise.
    TypeError
        The label is not a string.
    """
    right, wrong, probe, tol = _load(label)
    expected = probe(right)
    try:
        given = probe(answer)
    except Exception as error:
        reason = _misunderstanding(probe, answer, right)
        reason = reason or f"Trying your answer raised {type(error).__name__}: {error}"
        raise NotYet(f"{label}: not yet. {reason}") from error
    if _same(given, expected, tol):
        print(f"{label}: correct")
        return
    for mistake, message in wrong.values():
        if _same(given, probe(mistake), tol):
            raise NotYet(f"{label}: not yet. {message}")
    a, b = _numbers(given), _numbers(expected)
    if misunderstanding := _misunderstanding(probe, answer, right):
        reason = misunderstanding
    elif any("sparse" in str(getattr(part, "layout", "")) for part in _parts(given)):
        reason = "A sparse tensor cannot be compared here: give its to_dense()."
    elif isinstance(expected, str):
        reason = f"{given!r} is not the right choice."
    elif a is None:
        reason = f"An answer of type {type(given).__name__} cannot be compared here."
    elif b is not None and a.shape != b.shape:
        reason = f"The shape is {a.shape}, expected {b.shape}."
    elif b is not None and np.allclose(a, b, rtol=1e-2, atol=0):
        reason = f"Close, but not to {tol:g}: compute it, or give more digits."
    else:
        reason = "The values differ; try the first hint."
    raise NotYet(f"{label}: not yet. {reason}")
