"""The data for a plugin's handlers: requests, the exposed fields of calls, and page modules."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from anabranch._asking import ElicitResult

ROOTS = ("params", "handoff")


class Exposure:
    """The parts of a call's data that handlers see: paths such as ``handoff.cards``."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths: tuple[str, ...] = (paths,) if isinstance(paths, str) else tuple(paths)
        for path in self.paths:
            root, *parts = path.split(".")
            if root not in ROOTS or not all(parts):
                raise ValueError(
                    f"Cannot expose {path!r}. Write params, handoff, or a field of"
                    " one of the two, such as 'handoff.cards'."
                )

    def of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for path in self.paths:
            _copy(values, shown, path.split("."))
        return shown


def _copy(source: Mapping[str, Any], target: dict[str, Any], path: list[str]) -> None:
    first, *rest = path
    if first not in source:
        return
    value = source[first]
    if not rest:
        target[first] = value
    elif isinstance(value, Mapping):
        inner = target.setdefault(first, {})
        if inner is not value:  # otherwise the whole value is exposed already
            _copy(value, inner, rest)  # pyright: ignore[reportUnknownArgumentType]


M = TypeVar("M", bound=BaseModel)


class ElicitId(BaseModel):
    """The id of one question; a call that asks again uses another id.

    Attributes:
        tool_name: the tool that asks.
        key: the key of the declared elicitation.
        call_id: the id of the call that asks. A second, different answer starts a copy of the call,
            with a new id.
        seq: the number of earlier questions of the call on this path of the conversation.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    tool_name: str
    key: str
    call_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class PluginRequest(Generic[M]):
    """A question, as a plugin's handler receives it.

    Attributes:
        id: the id of the question.
        message: the question's text.
        model: the model that the answer must fit.
        schema: the JSON Schema of the model's form.
        params: the exposed arguments of the tool.
        handoff: the exposed part of the value that a ``HandoffTool``'s ``before`` returned.
        context: the value that the tool passed as ``context=``.
    """

    id: ElicitId
    message: str
    model: type[M]
    schema: Mapping[str, Any]
    params: Mapping[str, Any]
    handoff: Any = None
    context: Any = None

    @property
    def tool_name(self) -> str:
        """The name of the tool that asks the question."""
        return self.id.tool_name

    @property
    def key(self) -> str:
        """The key of the elicitation that the tool declares for the question."""
        return self.id.key

    @property
    def call_id(self) -> str:
        """The id of the call that asks the question."""
        return self.id.call_id

    @property
    def seq(self) -> int:
        """The number of questions that the call asked before this question."""
        return self.id.seq


ElicitHandler: TypeAlias = Callable[
    [PluginRequest[M]], Awaitable[ElicitResult[M]] | ElicitResult[M]
]
"""Shows a question in an application's own way, and returns the user's answer.

The plugin calls a function that is not ``async`` in a thread.
"""


@dataclass(frozen=True, slots=True)
class PageModule:
    """An ES module for the page; ``name`` changes with the source, as browsers cache it."""

    name: str
    source: bytes


def read_module(file: str | Path | Traversable) -> PageModule:
    try:
        source = (Path(file) if isinstance(file, str) else file).read_bytes()
    except OSError as error:
        raise ValueError(
            f"Cannot read the page module {str(file)!r}: {error.strerror}. Name a file of"
            " your package, such as Path(__file__).with_name('cards.mjs')."
        ) from error
    return PageModule(f"{hashlib.sha256(source).hexdigest()[:32]}.mjs", source)
