"""The root of all errors, which the journal records as JSON and raises again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_REQUIRED = object()
_rebuilders: dict[str, Callable[..., AnabranchError]] = {}


class AnabranchError(Exception):
    """The base class of all errors of this library; ``facts`` are the message's values, as JSON."""

    def __init_subclass__(cls, *, recordable: bool = True) -> None:
        super().__init_subclass__()
        # An author's subclass cannot be rebuilt by its name, nor can one without named facts.
        named = cls.__dict__.keys() & {"__init__", "__annotations__"}
        if recordable and named and cls.__module__ == "anabranch.errors":
            _rebuilders[cls.__name__] = cls

    def __init__(self, message: str, /, **facts: object) -> None:
        super().__init__(message)
        self.facts: dict[str, Any] = facts

    def __post_init__(self) -> None:
        """Take the fields of a dataclass as facts, except those with their default value."""
        cls, fields = type(self), vars(self).items()
        facts = {name: fact for name, fact in fields if fact != getattr(cls, name, _REQUIRED)}
        AnabranchError.__init__(self, str(self), **facts)

    def __reduce__(self) -> tuple[Any, ...]:
        # An author's subclass may have any constructor, so only its state is used.
        return (_blank, (type(self), self.args), self.__dict__)


def _blank(cls: type[AnabranchError], args: tuple[Any, ...]) -> AnabranchError:
    return cls.__new__(cls, *args)


def error_to_json(error: BaseException) -> dict[str, Any] | None:
    """Return the JSON for :func:`error_from_json`; ``None`` if the error cannot be rebuilt."""
    name = type(error).__name__
    if isinstance(error, AnabranchError) and _rebuilders.get(name) is type(error):
        return {"type": name, **error.facts}
    return None


def error_from_json(data: Mapping[str, Any]) -> AnabranchError:
    """Return the error from which :func:`error_to_json` made ``data``, or raise ``KeyError``."""
    facts = dict(data)
    return _rebuilders[facts.pop("type")](**facts)
