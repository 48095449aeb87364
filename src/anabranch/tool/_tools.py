"""Tools: the class ``Tool``, the decorator ``@tool``, and ``HandoffTool``."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, cast, overload

from anabranch._asking import CAPABILITIES, Elicitation, wrong_kind
from anabranch._budget import Limits
from anabranch._engine import checked_patience, codec_of, current_call, pin
from anabranch.tool._context import BranchContext
from anabranch.tool._parameters import Parameters, hints_of
from anabranch.tool._values import ReturnValue

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnnotations:
    """The effects of a tool on its environment, as a hint for clients; ``None`` means unknown.

    Attributes:
        read_only: the tool changes nothing.
        destructive: the tool may destroy data, and does not only add to it.
        idempotent: a second call with the same arguments has no further effect.
        open_world: the tool reaches systems that its author does not control, such as the web.
    """

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class Tool(ABC, Generic[T]):
    """A tool that can ask the model and the user while it runs.

    Attributes:
        name: the name by which clients call the tool.
        description: the description for the model.
        parameters: the function's parameters, without the context.
        input_schema: the JSON Schema of the arguments.
        elicits: the declared questions.
        requires: the capabilities that the client must have.
        limits: the limits of every call.
        patience: seconds that a round with an open question waits for work outside of steps;
            ``None`` for the server's value.
        title: the name that clients show to users.
        annotations: hints about the tool's effects, for clients.
        extra: ``ignore`` or ``forbid``: the treatment of arguments without a parameter.
        returns: the return annotation; ``inspect.Signature.empty`` if there is no annotation.
        returned_by: the function with the return annotation.
        drawn: the JSON converters of parameters whose default is computed at each call, and
            recorded.
    """

    name: str
    description: str
    parameters: tuple[inspect.Parameter, ...]
    input_schema: dict[str, Any]
    elicits: tuple[Elicitation[Any], ...]
    requires: frozenset[str]
    limits: Limits
    patience: float | None = None
    title: str | None = None
    annotations: ToolAnnotations | None = None
    extra: Literal["ignore", "forbid"] = "ignore"
    returns: Any
    returned_by: Callable[..., Any]
    drawn: Mapping[str, Any]
    _parameters: Parameters
    _value: ReturnValue

    def _describe(
        self,
        name: str,
        description: str,
        function: Callable[..., Any],
        skip: Iterable[str],
        returned_by: Callable[..., Any],
    ) -> None:
        """Set the attributes; ``function`` has the tool's parameters, in addition to ``skip``."""
        self.name = name
        self.description = description
        self.returned_by = returned_by
        self.returns = hints_of(name, returned_by).get("return", inspect.Signature.empty)
        self._value = ReturnValue(self.returns)
        self._parameters = Parameters(name, function, skip, self.extra)
        self.parameters = self._parameters.declared
        self.input_schema = self._parameters.schema
        self.drawn = self._parameters.drawn

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments converted to the parameters' types, with defaults filled in.

        Raises:
            InvalidArgumentsError: if a field is wrong, missing or forbidden; the error names every
                such field.
        """
        return self._parameters.validate(arguments)

    def to_json(self, arguments: Mapping[str, Any]) -> str:
        """Return validated arguments as JSON, which :meth:`validate` accepts again."""
        return self._parameters.to_json(arguments)

    @abstractmethod
    async def run(self, ctx: BranchContext, arguments: Mapping[str, Any]) -> T:
        """Run the tool with validated ``arguments`` in the branch of ``ctx``."""

    def check_value(self, value: object) -> None:
        """Check that ``value`` fits the function's return annotation and can be stored as JSON.

        Raises:
            ToolError: if ``value`` does not fit or cannot be stored; the message names the fields
                but does not contain the value.
        """
        self._value.check(value)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


def _checked_requires(name: str, requires: Iterable[str]) -> frozenset[str]:
    wanted = frozenset([requires] if isinstance(requires, str) else requires)
    if unknown := wanted - CAPABILITIES:
        raise ValueError(
            f"Tool {name!r} requires {sorted(unknown)}; known capabilities are"
            f" {sorted(CAPABILITIES)}"
        )
    return wanted


def _checked_option(name: str, option: str, kind: type[T], given: T | None) -> T | None:
    if given is not None and not isinstance(given, kind):
        raise wrong_kind(f"Tool {name!r}: {option}=", f"{kind.__name__}(…)", given)
    return given


def _checked_elicits(name: str, elicits: Iterable[Elicitation[Any]]) -> tuple[Any, ...]:
    declared = tuple(elicits) if isinstance(elicits, Iterable) else (elicits,)  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
    for each in declared:
        if not isinstance(each, Elicitation):  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
            wanted = "a list of Elicitation(key, Model)"
            raise wrong_kind(f"Tool {name!r}: elicits=", wanted, each)
    keys = [elicitation.key for elicitation in declared]
    if repeated := {key for key in keys if keys.count(key) > 1}:
        raise ValueError(f"Tool {name!r} declares the elicitations {sorted(repeated)} twice")
    return declared


class FunctionTool(Tool[T], Generic[P, T]):
    """A tool made from an ``async`` function, as :func:`tool` returns it."""

    def __init__(  # noqa: PLR0913 - all that a definition says, by keyword
        self,
        fn: Callable[Concatenate[BranchContext, P], Awaitable[T]],
        *,
        name: str | None = None,
        description: str | None = None,
        elicits: Iterable[Elicitation[Any]] = (),
        requires: Iterable[str] = (),
        limits: Limits | None = None,
        patience: float | None = None,
        title: str | None = None,
        annotations: ToolAnnotations | None = None,
        extra: Literal["ignore", "forbid"] = "ignore",
    ) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise TypeError(_not_a_function(fn))
        if not hasattr(fn, "__name__"):
            raise wrong_kind("@tool", "an async function with a name", fn)
        first = next(iter(inspect.signature(fn).parameters.values()), None)
        if first is None or first.kind is first.KEYWORD_ONLY:
            raise TypeError(
                f"Tool {fn.__name__!r} must take a BranchContext as first parameter."
                f" Write `async def {fn.__name__}(ctx: BranchContext, …)`."
            )
        hints = hints_of(fn.__name__, fn)
        if hints.get(first.name, BranchContext) is not BranchContext:
            raise TypeError(
                f"Tool {fn.__name__!r} must take a BranchContext as first parameter,"
                f" not {first.name}: {first.annotation}. Write `async def {fn.__name__}(ctx: BranchContext, …)`."
            )
        self.fn = fn
        self.extra: Literal["ignore", "forbid"] = extra
        self._describe(
            name or fn.__name__,
            inspect.cleandoc(fn.__doc__ or "") if description is None else description,
            fn,
            [first.name],
            fn,
        )
        self.elicits: tuple[Elicitation[Any], ...] = _checked_elicits(self.name, elicits)
        self.requires: frozenset[str] = _checked_requires(self.name, requires)
        self.limits: Limits = _checked_option(self.name, "limits", Limits, limits) or Limits()
        self.patience: float | None = checked_patience(patience)
        self.title: str | None = title
        self.annotations: ToolAnnotations | None = _checked_option(
            self.name, "annotations", ToolAnnotations, annotations
        )
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn
        self.__name__: str = fn.__name__  # hosts read it of a function that they decorate

    def __call__(self, ctx: BranchContext, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Call the function directly, without a branch, for example from another tool."""
        return self.fn(ctx, *args, **kwargs)

    async def run(self, ctx: BranchContext, arguments: Mapping[str, Any]) -> T:
        """Run the function with ``ctx`` and ``arguments``."""
        fn = cast("Callable[..., Awaitable[T]]", self.fn)
        return await fn(ctx, **arguments)


@overload
def tool(fn: Callable[Concatenate[BranchContext, P], Awaitable[T]], /) -> FunctionTool[P, T]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    elicits: Iterable[Elicitation[Any]] = (),
    requires: Iterable[str] = (),
    limits: Limits | None = None,
    patience: float | None = None,
    title: str | None = None,
    annotations: ToolAnnotations | None = None,
    extra: Literal["ignore", "forbid"] = "ignore",
) -> Callable[[Callable[Concatenate[BranchContext, P], Awaitable[T]]], FunctionTool[P, T]]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> object:
    """Make a tool of an ``async`` function whose first parameter is the ``BranchContext``.

    Args:
        fn: the function.
        **options: ``name`` of the tool (default: the function's name). ``description`` for the
            model (default: the docstring). ``elicits``: the declared questions, which the tool may
            ask by key. ``requires``: the capabilities that the client must have (``sampling``,
            ``elicitation``, …). ``limits`` of every call. ``patience``: the seconds that a round
            with an open question waits for work outside of steps. ``title`` and ``annotations``,
            which clients show to users. ``extra``: unknown arguments are ignored, since hosts add
            some; ``"forbid"`` refuses them.

    Raises:
        TypeError: if ``fn`` is not such a function, or a parameter cannot be passed by name.
        ValueError: if a capability is unknown, an elicitation is declared twice, or ``patience`` is
            not positive and finite.
    """
    if fn is not None:
        return FunctionTool(fn)
    return partial(FunctionTool, **options)


class HandoffTool(Tool[Any]):
    """A tool class with three methods: ``before`` and ``after`` have effects, ``client`` asks.

    ``before(**parameters)`` and ``after(handoff, picked)`` run as steps on the server: once per
    call, with access to resources on ``self``, such as a database. In between, ``client(handoff,
    ctx)`` asks the user or the model; ``handoff`` is the value of ``before``, converted to JSON and
    back. ``before`` and ``after`` may have a parameter ``ctx``, for ``call_id`` and
    ``idempotency_key``, but cannot ask.

    Subclasses define the three methods. A subclass may set ``name`` (default: the class name in
    snake_case), ``description`` (default: the class's docstring), ``title``, ``annotations``,
    ``requires``, ``limits``, ``patience`` and ``extra``. An ``Elicitation`` in the class body is a
    declared question.

    Raises:
        TypeError: if a method is missing; the class definition raises the error.
    """

    requires: frozenset[str] = frozenset()
    limits: Limits = Limits()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        missing = [phase for phase in ("before", "client", "after") if not hasattr(cls, phase)]
        if missing:
            raise TypeError(f"HandoffTool {cls.__name__} lacks {', '.join(missing)}")

    def __new__(cls, *_args: Any, **_options: Any) -> Self:  # noqa: ANN401 - the subclass has its own
        """Read the phases; not in ``__init__``, since subclasses define that without calling ours."""
        made = super().__new__(cls)
        before: Any = made._phase("before")
        after: Any = made._phase("after")
        name = cls.__dict__.get("name") or _snake_case(cls.__name__)
        made._describe(
            name,
            cls.__dict__.get("description") or inspect.cleandoc(cls.__doc__ or ""),
            before,
            ["ctx"],
            after,
        )
        made.elicits = _checked_elicits(name, _declared(cls))
        made.requires = _checked_requires(name, cls.requires)
        checked_patience(cls.patience)
        _checked_option(name, "limits", Limits, cls.limits)
        _checked_option(name, "annotations", ToolAnnotations, cls.annotations)
        return made

    def _phase(self, name: str) -> Callable[..., Any]:
        return getattr(self, name)  # type: ignore[no-any-return]

    async def run(self, ctx: BranchContext, arguments: Mapping[str, Any]) -> object:
        """Run ``before``, ``client`` and ``after``."""
        client = self._phase("client")
        handoff = await self._step(ctx, "before", (), arguments)
        picked = await client(handoff, ctx)
        picked = codec_of(client).decode("client", codec_of(client).encode("client", picked))
        return await self._step(ctx, "after", (handoff, picked), {})

    def _step(
        self, ctx: BranchContext, phase: str, values: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        function = self._phase(phase)
        if "ctx" in inspect.signature(function).parameters:
            named = {**named, "ctx": ctx}
        call = current_call()
        scope = call.scheduler.scope()
        step_id, pinned = call.cursor.new_id(scope, phase), pin(function, values)
        bound = partial(function, **named)
        return call.effects.step(scope, step_id, pinned, bound, values, phase)


def _declared(cls: type) -> list[Elicitation[Any]]:
    found: list[Elicitation[Any]] = []
    for attribute in dir(cls):
        value = inspect.getattr_static(cls, attribute, None)
        if isinstance(value, Elicitation) and value not in found:
            found.append(value)  # pyright: ignore[reportUnknownArgumentType] - of any model
    return found


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _not_a_function(fn: object) -> str:
    name = getattr(fn, "__name__", type(fn).__name__)
    if isinstance(fn, str):
        return f"@tool({fn!r}) gives no name. Write `@tool(name={fn!r})`."
    if inspect.isasyncgenfunction(fn):
        return f"Tool {name!r} yields. Return one value, and report progress by ctx.notify."
    return f"A tool is an async function; {name!r} is not. Write `async def`."
