"""The author's view of a branch: everything a tool's body may do.

Identity is taken when a method is *called*, in the order of the program; the work is done when its
result is awaited. So operations may be made first and awaited together, in any order.

Each task that the author starts, and each sub-branch, has its own view of a conversation: what its
parent had when it started, and what it said itself.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar, TypeVarTuple, get_args, overload

from pydantic import BaseModel, JsonValue

from anabranch._asking.conversation import Conversation
from anabranch._asking.eliciting import ElicitJob, find_question, run_elicit, run_elicit_url
from anabranch._asking.host import Host, Runnable
from anabranch._asking.sampling import (
    SampleJob,
    SampleResult,
    as_history,
    as_spec,
    check_options,
    run_sample,
)
from anabranch._engine import (
    Branch,
    Call,
    Effect,
    Notice,
    Scope,
    all_of,
    codec_of,
    current_idempotency_key,
    step_fingerprint,
)
from anabranch._step_names import MARKS, checked_name
from anabranch.elicitation import Accepted, Cancelled, Declined, Elicitation, ElicitResult
from anabranch.errors import ToolError
from anabranch.limits import UNLIMITED, Limits
from anabranch.messages import (
    LogLevel,
    Message,
    MessageLike,
    ToolChoiceMode,
    ToolSpec,
    to_messages,
    user,
)

__all__ = ["BranchContext", "Op", "Runnable"]

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")
V = TypeVar("V")
M = TypeVar("M", bound=BaseModel)
Ts = TypeVarTuple("Ts")

_STEPS = "#step"
"""The counter of a scope's steps; no step or branch can have such a name."""

_LEVELS: tuple[str, ...] = get_args(LogLevel)

Op = Coroutine[Any, Any, T]
"""What the methods return: await it, pass it to ``gather`` or ``race``, or start a task of it."""


class _Start(NamedTuple):
    """With what a sub-branch begins: all in one, since thousands may be open at a time."""

    fn: Callable[..., Awaitable[Any]]
    args: tuple[Any, ...]
    messages: tuple[Message, ...]
    parent_messages: tuple[Message, ...]
    parent_system_prompt: str | None
    system_prompt: str | None
    tools: tuple[Runnable[Any], ...]


class BranchContext:
    """One branch of a call, as its author sees it.

    Made by the library; passed to the tool's body and to each branch function.

    Attributes:
        parent_messages: the conversation that this branch left, as it was then.
        parent_system_prompt: the system prompt there.
        system_prompt: the one used here unless a sample brings its own.
        tools: the tools bound to this branch, by name; see :meth:`call_tool`.
    """

    def __init__(  # noqa: PLR0913 - all that a branch begins with, by keyword
        self,
        call: Call[Any],
        branch: Branch,
        host: Host,
        *,
        elicits: Iterable[Elicitation[Any]] = (),
        messages: tuple[Message, ...] = (),
        parent_messages: tuple[Message, ...] = (),
        parent_system_prompt: str | None = None,
        system_prompt: str | None = None,
        tools: Iterable[Runnable[Any]] = (),
    ) -> None:
        self._call = call
        self._branch = branch
        self._host = host
        self._elicits = {elicitation.key: elicitation for elicitation in elicits}
        self._conversation = Conversation(messages)
        self.parent_messages = parent_messages
        self.parent_system_prompt = parent_system_prompt
        self.system_prompt = system_prompt
        self.tools: dict[str, Runnable[Any]] = {tool.name: tool for tool in tools}

    # -- where we are --------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """0 for the tool itself, one more for each enclosing branch."""
        return self._branch.depth

    @property
    def path(self) -> str:
        """The branch's name within the call, e.g. ``book_flight/analyze#1``."""
        return self._branch.path

    @property
    def call_id(self) -> str:
        """The call's name: the same in all its rounds, different in every other call."""
        return self._call.journal.call_id

    @property
    def idempotency_key(self) -> str:
        """A name for the next step made here; inside a step's function, for that step.

        Hand it to a service that accepts one: if the process dies between an effect and its
        record, the effect is tried again under the same name.
        """
        running = current_idempotency_key.get()
        if running is not None:
            return running
        scope = self._scope()
        return self._call.effects.key_of(scope, scope.counted(_STEPS) + 1)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far, as the next prompt will continue it."""
        return self._conversation.messages(self._scope())

    @property
    def random(self) -> random.Random:
        """Randomness that is the same in every replay."""
        return self._call.operations.random(self._scope())

    def _scope(self) -> Scope:
        return self._call.scheduler.scope()

    def _made(self, operation: Op[T]) -> Op[T]:
        return self._call.scheduler.made(operation)

    # -- asking the model ----------------------------------------------------------------------

    @overload
    def sample(
        self, prompt: str | None = None, *, schema: type[M],
        messages: Iterable[MessageLike] | None = None, system_prompt: str | None = None,
        max_tokens: int | None = None, model_preferences: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Op[SampleResult[M]]: ...  # fmt: skip
    @overload
    def sample(
        self, prompt: str | None = None, *,
        messages: Iterable[MessageLike] | None = None, system_prompt: str | None = None,
        max_tokens: int | None = None, tools: Iterable[Runnable[Any] | ToolSpec] | None = None,
        tool_choice: ToolChoiceMode | None = None, model_preferences: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Op[SampleResult[None]]: ...  # fmt: skip

    def sample(  # noqa: PLR0913 - the options of a model request, all by keyword
        self,
        prompt: str | None = None,
        *,
        messages: Iterable[MessageLike] | None = None,
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        schema: type[BaseModel] | None = None,
        tools: Iterable[Runnable[Any] | ToolSpec] | None = None,
        tool_choice: ToolChoiceMode | None = None,
        model_preferences: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Op[SampleResult[Any]]:
        """Ask the model.

        With a ``prompt`` the conversation so far goes along, and prompt and reply are appended
        to it on success. With ``messages`` exactly those are sent and the conversation stays as
        it is. With ``schema`` the reply is parsed, with ``tool_choice="required"`` a tool call is
        insisted on; an unfitting reply is retried twice with the reason fed back.

        Raises:
            ValueError: neither or both of ``prompt`` and ``messages``; ``schema`` together with
                ``tools``; ``tool_choice`` without; a ``key`` that was used before, or
                has one of ``/~#<>`` in it.
            CapabilityError, BranchTokenError, SampleValidationError, StepFailed: on ``await``.
        """
        bound = None if tools is None else tuple(map(as_spec, tools))
        check_options(messages, prompt, max_tokens, schema, bound, tool_choice)
        scope = self._scope()
        if prompt is not None:
            place = self._conversation.take_place(scope)
            sent = (*self._conversation.messages(scope), user(prompt))
        else:
            place, sent = 0, to_messages(messages or ())
            if not sent:
                raise ValueError("sample(messages=…) needs at least one message")
        job = SampleJob(
            call=self._call,
            host=self._host,
            scope=scope,
            step_id=self._call.cursor.new_id(scope, "sample", _checked_key(key)),
            messages=sent,
            max_tokens=max_tokens,
            system_prompt=system_prompt if system_prompt is not None else self.system_prompt,
            schema=schema,
            tools=bound or (),
            tool_choice=tool_choice,
            model_preferences=dict(model_preferences) if model_preferences else None,
        )
        return self._made(self._sample(job, place))

    async def _sample(self, job: SampleJob, place: int) -> SampleResult[Any]:
        result = await run_sample(job)
        if place:
            self._conversation.append(job.scope, place, as_history(result, job.messages[-1]))
        return result

    # -- asking the person ---------------------------------------------------------------------

    @overload
    def elicit(
        self, question: Elicitation[M] | type[M], message: str, *,
        context: JsonValue = None, key: str | None = None,
    ) -> Op[ElicitResult[M]]: ...  # fmt: skip
    @overload
    def elicit(
        self, question: str, message: str, *, context: JsonValue = None, key: str | None = None
    ) -> Op[ElicitResult[Any]]: ...

    def elicit(
        self,
        question: Elicitation[Any] | type[BaseModel] | str,
        message: str,
        *,
        context: JsonValue = None,
        key: str | None = None,
    ) -> Op[ElicitResult[Any]]:
        """Ask the person: a declared elicitation, its key, or any flat model.

        ``context`` is data for whoever draws the form. An answer that does not fit is asked for
        again, with the reason, three times at the most.

        Raises:
            ValueError: ``question`` is a key that the tool does not declare; or ``key`` was used
                before, or has one of ``/~#<>`` in it.
            TypeError: a form cannot show the model.
            CapabilityError, ElicitValidationError, StepFailed: on ``await``.
        """
        name, model = find_question(question, self._elicits)
        call, scope = self._call, self._scope()
        step_id = call.cursor.new_id(scope, name or "elicit", _checked_key(key))
        job = ElicitJob(call, self._host, scope, step_id, model, message, name, context)
        return self._made(run_elicit(job))

    def elicit_url(
        self, message: str, url: str, *, key: str | None = None
    ) -> Op[Accepted[None] | Declined | Cancelled]:
        """Send the person to ``url``; ``Accepted`` means consent, not that they are done there.

        Raises:
            CapabilityError, StepFailed: on ``await``.
        """
        scope = self._scope()
        step_id = self._call.cursor.new_id(scope, "url", _checked_key(key))
        return self._made(run_elicit_url(self._call, self._host, scope, step_id, message, url))

    # -- sub-branches --------------------------------------------------------------------------

    def branch(  # noqa: PLR0913 - the options of a branch, all by keyword
        self,
        fn: Callable[[BranchContext, *Ts], Awaitable[T]],
        *args: *Ts,
        name: str | None = None,
        inherit_messages: bool = True,
        inherit_system_prompt: bool = True,
        messages: Iterable[MessageLike] = (),
        system_prompt: str | None = None,
        tools: Iterable[Runnable[Any]] = (),
        max_depth: int | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,
    ) -> Op[T]:
        """Run ``fn(branch_ctx, *args)`` in a conversation of its own and return its value.

        What is said inside never reaches this conversation. ``messages`` are appended to what is
        inherited, ``system_prompt`` replaces it; limits narrow those that enclose this branch.

        Raises:
            ValueError: a negative limit, or a ``name`` with one of ``/~#<>`` in it.
            BranchDepthError, BranchTokenError, BranchTimeoutError: on ``await``.
            Exception: whatever ``fn`` raises, on ``await``.
        """
        scope = self._scope()
        inherited = self._conversation.messages(scope)
        seeds = (inherited if inherit_messages else ()) + to_messages(messages)
        outer = self.system_prompt if inherit_system_prompt else None
        system = outer if system_prompt is None else system_prompt
        start = _Start(fn, args, seeds, inherited, self.system_prompt, system, tuple(tools))
        path = self._call.cursor.new_path(scope, _name_for(fn, name, "branch"))
        if max_depth is max_tokens is timeout is None:
            limits = UNLIMITED
        else:
            limits = Limits(max_depth=max_depth, max_tokens=max_tokens, timeout=timeout)
        body = partial(self._in_branch, start)
        return self._made(self._call.branches.run(path, limits, body, codec_of(fn)))

    def _in_branch(self, start: _Start, branch: Branch) -> Awaitable[Any]:
        ctx = BranchContext(
            self._call,
            branch,
            self._host,
            elicits=self._elicits.values(),
            messages=start.messages,
            parent_messages=start.parent_messages,
            parent_system_prompt=start.parent_system_prompt,
            system_prompt=start.system_prompt,
            tools=start.tools or self.tools.values(),
        )
        return start.fn(ctx, *start.args)

    @overload
    def call_tool(self, tool: Runnable[T], /, **arguments: object) -> Op[T]: ...
    @overload
    def call_tool(self, tool: str, /, **arguments: object) -> Op[Any]: ...

    def call_tool(self, tool: Runnable[Any] | str, /, **arguments: object) -> Op[Any]:
        """Run another tool in a sub-branch, with a fresh conversation, and return its value.

        ``tool`` may be the name of one bound to this branch (``branch(tools=[…])``). Its own
        limits hold inside the limits of this branch; its ``max_depth`` counts from itself.

        Raises:
            ToolError: no tool of that name is bound here.
            InvalidArgumentsError: the arguments do not fit; nothing has run.
            Exception: whatever the tool raises, on ``await``.
        """
        chosen = self._bound(tool) if isinstance(tool, str) else tool
        values = chosen.validate(arguments)
        scope = self._scope()

        async def body(branch: Branch) -> object:
            self._host.require(*sorted(chosen.requires))
            ctx = BranchContext(
                self._call,
                branch,
                self._host,
                elicits=chosen.elicits,
                parent_messages=self._conversation.messages(scope),
                parent_system_prompt=self.system_prompt,
            )
            return await chosen.run(ctx, values)

        path = self._call.cursor.new_path(scope, checked_name(chosen.name.replace("/", ".")))
        return self._made(self._enter(path, chosen, body))

    async def _enter(
        self, path: str, tool: Runnable[T], body: Callable[[Branch], Awaitable[T]]
    ) -> T:
        limits = tool.limits
        if limits.max_depth is not None:
            limits = replace(limits, max_depth=self._scope().branch.depth + 1 + limits.max_depth)
        return await self._call.branches.run(path, limits, body, codec_of(tool.returned_by))

    def _bound(self, name: str) -> Runnable[Any]:
        if name not in self.tools:
            known = ", ".join(sorted(self.tools)) or "none"
            raise ToolError(f"No tool {name!r} is bound to this branch (bound: {known}).")
        return self.tools[name]

    # -- at once -------------------------------------------------------------------------------

    @overload
    def gather(self, op1: Awaitable[T1], /) -> Op[tuple[T1]]: ...
    @overload
    def gather(self, op1: Awaitable[T1], op2: Awaitable[T2], /) -> Op[tuple[T1, T2]]: ...
    @overload
    def gather(
        self, op1: Awaitable[T1], op2: Awaitable[T2], op3: Awaitable[T3], /
    ) -> Op[tuple[T1, T2, T3]]: ...
    @overload
    def gather(
        self, op1: Awaitable[T1], op2: Awaitable[T2], op3: Awaitable[T3], op4: Awaitable[T4], /
    ) -> Op[tuple[T1, T2, T3, T4]]: ...
    @overload
    def gather(
        self, op1: Awaitable[T1], op2: Awaitable[T2], op3: Awaitable[T3], op4: Awaitable[T4],
        op5: Awaitable[T5], /,
    ) -> Op[tuple[T1, T2, T3, T4, T5]]: ...  # fmt: skip
    @overload
    def gather(
        self, op1: Awaitable[T1], op2: Awaitable[T2], op3: Awaitable[T3], op4: Awaitable[T4],
        op5: Awaitable[T5], op6: Awaitable[T6], /,
    ) -> Op[tuple[T1, T2, T3, T4, T5, T6]]: ...  # fmt: skip
    @overload
    def gather(self, *operations: Awaitable[T]) -> Op[tuple[T, ...]]: ...

    def gather(self, *operations: Awaitable[Any]) -> Op[tuple[Any, ...]]:
        """Run all at once and return their values in order.

        All of them end, also when one fails; then the first error in order is raised.
        """
        return self._made(all_of(operations))

    @overload
    def race(self, op1: Awaitable[T1], op2: Awaitable[T2], /) -> Op[T1 | T2]: ...
    @overload
    def race(
        self, op1: Awaitable[T1], op2: Awaitable[T2], op3: Awaitable[T3], /
    ) -> Op[T1 | T2 | T3]: ...
    @overload
    def race(self, *operations: Awaitable[T]) -> Op[T]: ...

    def race(self, *operations: Awaitable[Any]) -> Op[Any]:
        """Run all at once; return the value (or raise the error) of the one that ends first.

        The others are cancelled. The winner is recorded: a replay does not race again.

        Raises:
            ValueError: nothing was given to race.
        """
        if not operations:
            raise ValueError("race() needs at least one operation")
        call, scope = self._call, self._scope()
        step_id = call.cursor.new_id(scope, "race")
        return self._made(call.operations.race(scope, step_id, operations))

    # -- effects -------------------------------------------------------------------------------

    @overload
    def step(
        self, fn: Callable[[*Ts], Coroutine[Any, Any, V]], *args: *Ts, name: str | None = None,
        undo: Callable[[V], Any] | None = None,
    ) -> Op[V]: ...  # fmt: skip
    @overload
    def step(
        self, fn: Callable[[*Ts], V], *args: *Ts, name: str | None = None,
        undo: Callable[[V], Any] | None = None,
    ) -> Op[V]: ...  # fmt: skip

    def step(
        self,
        fn: Callable[[*Ts], Any],
        *args: *Ts,
        name: str | None = None,
        undo: Callable[[Any], Any] | None = None,
    ) -> Op[Any]:
        """Run ``fn(*args)`` once per call, record its value, and return that in every replay.

        A plain function runs in a thread, an ``async`` one on the loop. If the call fails or is
        cancelled later, ``undo(value)`` is run, in reverse order of the steps.

        Raises:
            StepFailed: ``fn`` raised; an ``AnabranchError`` that it raised comes as it is.
            SerializationError: the value cannot be recorded; the call fails.
        """
        call = self._call
        scope = call.scheduler.scope()
        step_id = call.cursor.new_id(scope, _name_for(fn, name, "step"))
        effect = Effect(fn, args, scope.count(_STEPS), undo)
        asked = step_fingerprint(fn, args)
        return call.scheduler.made(call.effects.step(scope, step_id, asked, effect))

    # -- notices -------------------------------------------------------------------------------

    def log(self, level: LogLevel, message: str) -> Op[None]:
        """Send a log line to the client, once.

        Raises:
            ValueError: ``level`` is not one of the protocol's.
        """
        if level not in _LEVELS:
            raise ValueError(f"{level!r} is no log level; use one of {', '.join(_LEVELS)}")
        return self._notice(Notice(message, level=level))

    def notify(
        self, message: str, progress: float | None = None, total: float | None = None
    ) -> Op[None]:
        """Report to the client how far the call is, once; without ``progress``, as a count."""
        return self._notice(Notice(message, progress=progress, total=total))

    def _notice(self, notice: Notice) -> Op[None]:
        return self._made(self._call.operations.notify(self._scope(), notice))

    # -- time and chance -----------------------------------------------------------------------

    def now(self) -> datetime:
        """Return the time of the first run at this place (UTC), also in every replay."""
        return datetime.fromtimestamp(self._call.operations.now(self._scope()), UTC)

    def uuid(self) -> uuid.UUID:
        """Return a UUID of this place of this call, the same in every replay."""
        return self._call.operations.unique(self._scope(), "uuid")


def _checked_key(key: str | None) -> str | None:
    return None if key is None else checked_name(key, "key")


def _name_for(fn: Callable[..., Any], given: str | None, default: str) -> str:
    """Return the name of a branch or a step: as given, or the function's own if it has one."""
    if given is not None:
        return checked_name(given)
    own: object = getattr(fn, "__name__", None)
    if not isinstance(own, str):
        return default
    return own if own.isidentifier() or (own and not MARKS & set(own)) else default
