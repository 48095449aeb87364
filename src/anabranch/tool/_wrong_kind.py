"""Words the error for a value of the wrong kind, in one sentence that names the given value."""

from __future__ import annotations

import inspect
import reprlib

_SHOWN = (str, int, float, bool, list, tuple, set, dict, type(None))


def wrong_kind(where: str, wanted: str, given: object) -> TypeError:
    """Return the error for a wrong kind of value: ``where`` takes ``wanted``, got ``given``.

    A class that is often given by mistake names the remedy in its attribute ``__instead__``.
    """
    remedy = getattr(type(given), "__instead__", "")
    return TypeError(f"{where} takes {wanted}; it was given {_in_words(given)}.{remedy}")


def _in_words(given: object) -> str:
    if inspect.isclass(given):
        return f"the class {given.__qualname__}"
    if inspect.isroutine(given):
        return f"the function {given.__name__!r}"
    if isinstance(given, str):
        return f"the text {reprlib.repr(given)}"
    kind: type[object] = type(given)
    if kind in _SHOWN:
        return (
            reprlib.repr(given) if given is None else f"the {kind.__name__} {reprlib.repr(given)}"
        )
    return f"an object of type {kind.__qualname__}"
