"""The capabilities and the server's model that an edge offers to a tool."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from anabranch._asking.elicitation import Elicitation
from anabranch._budget import Limits
from anabranch._engine import Answer, Branch, Call, Codec
from anabranch._text import read_json
from anabranch.errors import CapabilityError, StepFailed, ToolError, error_to_json
from anabranch.messages import SampleReply, SampleRequest

T_co = TypeVar("T_co", covariant=True)
logger: logging.Logger = logging.getLogger("anabranch.asking")


class Sampler(Protocol):
    """Answers samples on the server, without the client: a provider's or a scripted model."""

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Answer ``request``; the tool's ``ctx.sample`` raises any error as ``StepFailed``."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The kinds of questions that a client, or another :class:`Answerer`, can answer.

    A tool's ``requires=`` uses the names that :meth:`names` returns. ``sampling_tools``: samples
    may offer tools. ``sampling_context``: samples may include the context of MCP servers.
    ``sampling_documents``: samples may have documents, which MCP cannot carry.
    ``concurrent_elicits``: a call may have several open questions. ``elicits_in_branches``:
    branches may ask, not only the tool itself.
    """

    sampling: bool = True
    sampling_tools: bool = True
    sampling_context: bool = False
    sampling_documents: bool = True
    elicitation: bool = True
    elicitation_url: bool = True
    concurrent_elicits: bool = True
    elicits_in_branches: bool = True

    def names(self) -> frozenset[str]:
        """Return the names of the available capabilities, such as ``sampling.tools``."""
        return frozenset(name for name in _NAMES if self.has(name))

    def has(self, name: str) -> bool:
        """Return whether questions that need the capability ``name`` can be answered."""
        field = "sampling_documents" if name == DOCUMENTS else _NAMES.get(name)
        return field is not None and getattr(self, field)


_NAMES = {
    "sampling": "sampling",
    "sampling.tools": "sampling_tools",
    "sampling.context": "sampling_context",
    "elicitation": "elicitation",
    "elicitation.url": "elicitation_url",
}
CAPABILITIES = frozenset(_NAMES)
DOCUMENTS = "sampling.documents"
"""Names a request with documents, or with URLs of files; no client can declare it."""
_SAMPLING = {"sampling", "sampling.tools", DOCUMENTS}
_EVERYTHING = Capabilities()


@dataclass(frozen=True, slots=True)
class Host:
    """The capabilities that an edge offers to a tool, and the model of the server, if any.

    ``prefer_client``: the server's model, with its ``own`` capabilities, answers only if the client
    cannot sample or refuses. ``unreachable``: the connection carries no questions.
    """

    capabilities: Capabilities = _EVERYTHING
    sampler: Sampler | None = None
    own: Capabilities = _EVERYTHING
    unreachable: bool = False
    prefer_client: bool = False
    principal: str = ""

    def asks_own_model(self, *names: str) -> bool:
        if self.sampler is None:
            return False
        return not (self.prefer_client and all(map(self.capabilities.has, names)))

    def require(self, *names: str) -> None:
        if (refusal := self.refusal(*names)) is not None:
            raise refusal

    def refusal(self, *names: str) -> CapabilityError | None:
        for name in names:
            if self.capabilities.has(name):
                continue
            if self.sampler is None or name not in _SAMPLING or not self.own.has(name):
                return CapabilityError(name, unreachable=self.unreachable)
        return None

    async def respond(self, request: SampleRequest) -> Answer:
        if self.sampler is None:
            raise CapabilityError("sampling")
        try:
            reply = await self.sampler.sample(request)
        except Exception as error:  # noqa: BLE001 - a provider must not decide how a call ends
            logger.warning("the sampler failed with %s: %s", type(error).__name__, error)
            failed = StepFailed("sample", type(error).__name__, str(error))
            return Answer(error=error_to_json(error) or error_to_json(failed))
        return Answer(reply.model_dump(mode="json", exclude_none=True))


class Runnable(Protocol[T_co]):
    """The interface that ``call_tool`` needs of a tool; every ``Tool`` implements it.

    ``returned_by`` is the function whose return annotation determines how the value is recorded.
    ``drawn`` has the JSON converters of parameters whose default is computed at each call. The
    library records these defaults.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    limits: Limits
    requires: frozenset[str]
    elicits: tuple[Elicitation[Any], ...]
    returned_by: Callable[..., Any]
    drawn: Mapping[str, Any]

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments converted to the parameters' types.

        Raises ``InvalidArgumentsError`` if an argument does not fit.
        """
        ...

    def to_json(self, arguments: Mapping[str, Any]) -> str:
        """Return validated arguments as JSON, which ``validate`` accepts again."""
        ...

    async def run(
        self,
        ctx: Any,  # noqa: ANN401 - a BranchContext, which lies above this module
        arguments: Mapping[str, Any],
    ) -> T_co:
        """Run the tool with validated ``arguments`` in the branch of ``ctx``."""
        ...


def first_arguments(
    call: Call[Any], branch: Branch, path: str, tool: Runnable[Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return validated ``values`` with the defaults that the first round made at ``path``."""

    def again(name: str) -> object:
        return tool.validate(read_json(tool.to_json(values)))[name]

    def first(name: str, codec: Codec) -> object:
        place = f"{path}~{name}"
        return call.operations.first(branch, place, codec, values[name], partial(again, name))

    return {**values, **{name: first(name, codec) for name, codec in tool.drawn.items()}}


def find_tool(name: str, bound: Mapping[str, Runnable[Any]]) -> Runnable[Any]:
    if name not in bound:
        known = ", ".join(sorted(bound)) or "none"
        raise ToolError(f"No tool {name!r} is bound to this branch (bound: {known}).")
    return bound[name]
