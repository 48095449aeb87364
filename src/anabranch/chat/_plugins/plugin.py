"""A plugin: a tool together with the code that shows its questions in an application."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import anyio.to_thread
from pydantic import BaseModel, ValidationError

from anabranch._asking import Accepted, Elicitation, ElicitResult, describe
from anabranch._engine import is_async
from anabranch.agents import AgentTool, CalledTool
from anabranch.chat._plugins.plugin_request import (
    ElicitHandler,
    Exposure,
    PageModule,
    PluginRequest,
    read_module,
)
from anabranch.messages import ElicitReply
from anabranch.tool import HandoffTool, Tool, require_tool, wrong_kind

T = TypeVar("T")
V = TypeVar("V")
M = TypeVar("M", bound=BaseModel)

Handled: TypeAlias = tuple[Elicitation[Any] | str, ElicitHandler[Any]]
"""An elicitation, or its key, and its handler."""
Shown: TypeAlias = tuple[Elicitation[Any] | str, str | Path | Traversable]
"""An elicitation, or its key, and the file of the module that shows it in the page."""

PARAMETERS = ("params",)


@dataclass(frozen=True, slots=True)
class PluginServer:
    """The part of a plugin for the process that runs the tool.

    Attributes:
        tools: the tools for an agent.
        exposure: the call's data that may leave the server.
        modules: the modules that show questions in the page, by key; a form shows the others.
    """

    tools: tuple[AgentTool, ...]
    exposure: Exposure
    modules: Mapping[str, PageModule]


class PluginClient:
    """The client side of a plugin, which answers the tool's questions by handlers.

    Attributes:
        tool_name: the name of the tool whose questions the handlers answer.
        elicits: the elicitations that have a handler, by key.
    """

    def __init__(self, tool: Tool[Any], handlers: Mapping[str, ElicitHandler[Any]]) -> None:
        self.tool_name: str = tool.name
        self.elicits: Mapping[str, Elicitation[Any]] = {
            each.key: each for each in tool.elicits if each.key in handlers
        }
        self._handlers = handlers

    async def answer(self, request: PluginRequest[Any]) -> ElicitReply:
        """Return the handler's answer to ``request``, checked against the request's model.

        Raises:
            TypeError: if the handler returned a value that is not an answer to this question.
            Exception: if the handler raises it.
        """
        result: ElicitResult[Any] = await _handled(self._handlers[request.key], request)
        where = f"The handler of {request.key!r} of plugin {self.tool_name!r}"
        match result:
            case Accepted(content=content):
                return ElicitReply(action="accept", content=_checked(request.model, content, where))
            case _ if getattr(result, "action", None) in {"decline", "cancel"}:
                return ElicitReply(action=result.action)
            case _:
                raise TypeError(
                    f"{where} returned {type(result).__name__}. Return Accepted(content),"
                    " Declined() or Cancelled()."
                )


def _checked(model: type[BaseModel], content: object, where: str) -> dict[str, Any]:
    try:
        answer = content if isinstance(content, model) else model.model_validate(content)
        plain = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        model.model_validate(plain)
    except ValidationError as problem:
        raise TypeError(
            f"{where} accepted with {type(content).__name__}, which is not a {model.__name__}:"
            f" {describe(problem)}."
        ) from problem
    return plain


async def _handled(handler: ElicitHandler[Any], request: PluginRequest[Any]) -> Any:  # noqa: ANN401 - any value of an author's function
    if is_async(handler):
        result: Any = handler(request)
    else:  # the tool may withdraw the question meanwhile
        result = await anyio.to_thread.run_sync(handler, request, abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result


class Plugin(Generic[T]):
    """A tool, and for each of its questions a Python handler or an ES module that shows it.

    Args:
        tool: the tool; it must declare its elicitations.
        on_elicit: the handlers, by elicitation or elicitation key: a mapping, or a list of pairs.
        expose: the call's data that handlers receive, as dotted paths below ``params`` and
            ``handoff``; by default, the parameters.
        concurrent_elicits: whether a call may ask several questions at a time. By default, the
            second raises ``ConcurrentElicitError``.
        elicits_in_branches: whether sub-branches may ask. By default, a question in a sub-branch
            raises ``ElicitInBranchError``.
        on_page: ES modules that show questions in the web page: pairs of an elicitation, or its
            key, and a file.

    Attributes:
        server: the server side, which an agent runs as its tool.
        client: the client side, which shows the questions.
        mcp: the tool without handlers, for an MCP server whose client asks the user.

    Raises:
        TypeError: if a handler is not a function, or its key is neither an elicitation nor a text.
        ValueError: if the tool declares no elicitations; if a key has neither handler nor module,
            has two of a kind, or is unknown; if an elicitation belongs to another tool; if a module
            cannot be read; or if ``expose`` names data that the tool does not have.
    """

    __instead__: ClassVar[str] = (
        " Give an agent plugin.server.tools, a ChatClient plugin.client, and an MCP server plugin.mcp."
    )

    def __init__(
        self,
        tool: Tool[T],
        on_elicit: Mapping[Elicitation[Any] | str, ElicitHandler[Any]] | list[Handled],
        *,
        expose: Iterable[str] = PARAMETERS,
        on_page: Iterable[Shown] = (),
        concurrent_elicits: bool = False,
        elicits_in_branches: bool = False,
    ) -> None:
        require_tool("Plugin()", tool)
        handled = on_elicit if isinstance(on_elicit, list) else list(on_elicit.items())
        exposure = Exposure(expose)
        roots = {path.partition(".")[0] for path in exposure.paths}
        if "handoff" in roots and not isinstance(tool, HandoffTool):
            raise ValueError(
                f"Tool {tool.name!r} is not a HandoffTool and has no handoff to expose."
            )
        _require_parameters(tool, exposure)
        handlers, files = _by_key(tool, handled, list(on_page))
        modules = {key: read_module(file) for key, file in files.items()}
        called = CalledTool(
            tool, concurrent_elicits=concurrent_elicits, elicits_in_branches=elicits_in_branches
        )
        self.server: PluginServer = PluginServer((called,), exposure, modules)
        self.client: PluginClient = PluginClient(tool, handlers)
        self.mcp: Tool[T] = tool

    def __repr__(self) -> str:
        return f"<plugin {self.mcp.name}>"


def _require_parameters(tool: Tool[Any], exposure: Exposure) -> None:
    """Check that each path below ``params`` begins with a parameter of ``tool``."""
    known: dict[str, Any] = tool.input_schema.get("properties", {})
    for path in exposure.paths:
        root, _, inner = path.partition(".")
        if root == "params" and inner and inner.partition(".")[0] not in known:
            raise ValueError(
                f"Cannot expose {path!r}: tool {tool.name!r} has the parameters"
                f" {', '.join(known) or 'none'}. Write one of them after 'params.'."
            )


class PluginBuilder(Generic[T]):
    """Collects the handlers for a tool's questions, and builds a plugin from the handlers."""

    def __init__(
        self,
        tool: Tool[T],
        expose: Iterable[str] = PARAMETERS,
        *,
        concurrent_elicits: bool = False,
        elicits_in_branches: bool = False,
    ) -> None:
        self._tool = tool
        self._expose = expose
        self._concurrent = concurrent_elicits
        self._in_branches = elicits_in_branches
        self._handled: list[Handled] = []
        self._shown: list[Shown] = []

    def on_elicit(
        self, handlers: Mapping[Elicitation[Any] | str, ElicitHandler[Any]] | list[Handled]
    ) -> PluginBuilder[T]:
        """Add handlers, by elicitation or elicitation key: a mapping, or a list of pairs."""
        self._handled += handlers if isinstance(handlers, list) else handlers.items()
        return self

    def on(self, elicitation: Elicitation[M], handler: ElicitHandler[M]) -> PluginBuilder[T]:
        """Add the handler of one elicitation; type checkers compare it with the model."""
        self._handled.append((elicitation, handler))
        return self

    def on_page(
        self, elicitation: Elicitation[Any] | str, file: str | Path | Traversable
    ) -> PluginBuilder[T]:
        """Let the ES module in ``file`` show an elicitation in the web page."""
        self._shown.append((elicitation, file))
        return self

    def build(self) -> Plugin[T]:
        """Return the plugin, after checking that each elicitation has one handler or module.

        Raises:
            ValueError: as for :class:`Plugin`.
        """
        return Plugin(
            self._tool,
            self._handled,
            expose=self._expose,
            on_page=self._shown,
            concurrent_elicits=self._concurrent,
            elicits_in_branches=self._in_branches,
        )


def make_plugin(
    tool: Tool[T],
    *,
    expose: Iterable[str] = PARAMETERS,
    concurrent_elicits: bool = False,
    elicits_in_branches: bool = False,
) -> PluginBuilder[T]:
    """Return a builder of a plugin: ``make_plugin(tool).on_elicit({KEY: handler}).build()``.

    Args:
        tool: the tool; it must declare its elicitations.
        expose: the call's data for handlers; see :class:`Plugin`.
        concurrent_elicits: whether a call may ask several questions at a time.
        elicits_in_branches: whether sub-branches of the tool may ask.
    """
    require_tool("make_plugin()", tool)
    return PluginBuilder(
        tool, expose, concurrent_elicits=concurrent_elicits, elicits_in_branches=elicits_in_branches
    )


def _by_key(
    tool: Tool[Any], handled: Iterable[Handled], shown: Iterable[Shown]
) -> tuple[dict[str, ElicitHandler[Any]], dict[str, str | Path | Traversable]]:
    declared = {each.key: each for each in tool.elicits}
    if not declared:
        raise ValueError(
            f"Tool {tool.name!r} declares no elicitations, so there is nothing for a plugin to show."
            " Declare them: @tool(elicits=[…]), or in the class body of a HandoffTool."
        )
    handlers, many = _unique(tool, handled)
    files, much = _unique(tool, shown)
    problems = {
        "lacks handlers for": declared.keys() - handlers.keys() - files.keys(),
        "has handlers for unknown keys": handlers.keys() - declared.keys(),
        "has modules for unknown keys": files.keys() - declared.keys(),
        "has two handlers for": many,
        "has two modules for": much,
    }
    found = [f"{what} {', '.join(sorted(keys))}" for what, keys in problems.items() if keys]
    if found:
        raise ValueError(
            f"The plugin for tool {tool.name!r} {'; '.join(found)}. Give one handler, or one module"
            f" for the page, for each of: {', '.join(sorted(declared))}."
        )
    for key, handler in handlers.items():
        if not callable(handler):
            raise wrong_kind(f"The question {key!r}", "a function of the request", handler)
    return handlers, files


def _unique(
    tool: Tool[Any], given: Iterable[tuple[Elicitation[Any] | str, V]]
) -> tuple[dict[str, V], set[str]]:
    """Return the values by the key of their elicitation, and the keys given twice."""
    declared = {each.key: each for each in tool.elicits}
    found: dict[str, V] = {}
    twice: set[str] = set()
    for of, value in given:
        if not isinstance(of, str | Elicitation):  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
            wanted = "handlers and modules by elicitation, or by its key"
            raise wrong_kind(f"The plugin for tool {tool.name!r}", wanted, of)
        key = of if isinstance(of, str) else of.key
        if isinstance(of, Elicitation) and declared.get(key, of) is not of:
            raise ValueError(
                f"The tool {tool.name!r} declares a different elicitation under the key {key!r}."
                " Pass the elicitation that the tool declares."
            )
        if key in found:
            twice.add(key)
        found[key] = value
    return found, twice
