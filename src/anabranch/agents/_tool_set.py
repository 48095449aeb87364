"""The tools of an agent by name: its own tools, and the tools that its sources offer now."""

from __future__ import annotations

import logging
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol, cast, runtime_checkable

from anabranch.agents._agent_tools import AgentTool, UsableTool
from anabranch.agents._called_tool import CalledTool
from anabranch.errors import ToolError
from anabranch.messages import ToolSpec
from anabranch.tool import Tool, code_version, require_tools

logger: logging.Logger = logging.getLogger("anabranch.agents")


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools that can change while an agent runs, such as a running server."""

    def offered_tools(self, taken: Collection[str], /) -> Sequence[AgentTool]:
        """Return the tools that the source offers now, under names that are not in ``taken``.

        A name never passes from one tool to another.
        """
        ...


@runtime_checkable
class TendedSource(ToolSource, Protocol):
    """A source of tools that needs a regular job, such as closing branches whose time is over."""

    async def tend(self) -> NoReturn:
        """Do the job until cancelled; several processes may do so."""
        ...


class ToolSet(Mapping[str, UsableTool]):
    def __init__(self, given: Iterable[Tool[Any] | AgentTool | ToolSource]) -> None:
        self._own: dict[str, UsableTool] = {}
        self._sources: list[ToolSource] = []
        for each in require_tools("Agent()", given, ToolSource, UsableTool):
            if isinstance(each, ToolSource):
                self._sources.append(each)
            else:
                self._own[each.name] = (
                    CalledTool(each) if isinstance(each, Tool) else cast("UsableTool", each)
                )

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools for a request to the model.

        Raises:
            ToolError: if a source of tools was never opened, so that its tools would be missing.
        """
        for source in self._sources:
            if not getattr(source, "was_opened", True):
                raise ToolError(
                    f"{type(source).__name__} is not connected to its servers. Write the turns of the"
                    f" agent inside `async with {type(source).__name__}(…) as remote:`."
                )
        return tuple(tool.spec for tool in self._now().values())

    def with_source(self, source: ToolSource) -> ToolSet:
        return ToolSet([*self._own.values(), *self._sources, source])

    def warn_of_too_many(self, model: object) -> None:
        if excess := self.excess(model):
            logger.warning(excess)

    def excess(self, model: object) -> str | None:
        most = most_tools(model)
        if most is None or len(self) <= most:
            return None
        return (
            f"The model takes at most {most} tools, got {len(self)}. Choose some: --tools and"
            " --without, or RemoteTools(…, only=[…], without=[…])."
        )

    def tended(self) -> Iterator[Coroutine[Any, Any, NoReturn]]:
        for source in self._sources:
            if isinstance(source, TendedSource):
                yield source.tend()

    def version(self, given: str | None) -> str:
        """Return ``given``, or a digest of the agent's own tools: those of sources come and go."""
        called = (each.tool for each in self._own.values() if isinstance(each, CalledTool))
        return code_version(called, given)

    def __getitem__(self, name: str) -> UsableTool:
        return self._own[name] if name in self._own else self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    def _now(self) -> dict[str, UsableTool]:
        found = dict(self._own)
        for source in self._sources:
            offered = source.offered_tools(found.keys())
            found |= {tool.name: cast("UsableTool", tool) for tool in offered}
        return found


def most_tools(model: object) -> int | None:
    most: object = getattr(model, "most_tools", None)
    return most if isinstance(most, int) else None
