"""The author's view of a branch: everything a tool's body may do.

An operation gets its step id when the author *calls* the method, and runs when the author awaits
it. So an author may make operations first and await them together, in any order.
"""

from __future__ import annotations

import inspect
import math
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, get_args, overload

from pydantic import BaseModel, JsonValue

from anabranch._aio import all_of, none_of
from anabranch._asking import (
    Accepted,
    Cancelled,
    Conversation,
    Declined,
    Elicitation,
    ElicitJob,
    ElicitResult,
    Host,
    Role,
    Runnable,
    SampleJob,
    SampleResult,
    Talk,
    UrlJob,
    as_spec,
    check_options,
    checked_tools,
    find_question,
    find_tool,
    first_arguments,
    given_messages,
    needs_of,
    refuse_as_argument,
    refuse_attribute,
    request_of,
    require_awaitable,
    require_operations,
    require_runnable,
    require_seconds,
    require_text,
    run_elicit,
    run_elicit_url,
    run_sample,
    wanted_form,
)
from anabranch._budget import UNLIMITED, Limits
from anabranch._engine import Branch, Call, Notice, Scope, codec_of, current_idempotency_key, pin
from anabranch._text import MARKS, checked_name
from anabranch.messages import (
    Block,
    IncludedContext,
    LogLevel,
    Message,
    MessageLike,
    SampleOptions,
    ToolChoiceMode,
    ToolSpec,
    to_messages,
    user,
)

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")
M = TypeVar("M", bound=BaseModel)
Ts = TypeVarTuple("Ts")

Op = Coroutine[Any, Any, T]
"""An operation: await it, pass it to ``gather`` or ``race``, or run it in a task."""

_LEVELS: tuple[str, ...] = get_args(LogLevel)


class BranchContext:
    """The first parameter of a tool or branch function: asks, opens branches, and runs steps.

    Made by the library, which passes it to the tool's body and to each branch function.

    Attributes:
        parent_messages: the messages of the enclosing conversation when the branch opened.
        parent_system_prompt: the system prompt of the enclosing conversation.
        system_prompt: the default system prompt of this branch's samples.
        tools: the tools bound to this branch, by name; see :meth:`call_tool`.
    """

    def __init__(  # noqa: PLR0913 - all that a branch begins with, by keyword
        self, call: Call[Any], branch: Branch, host: Host, *,
        elicits: Iterable[Elicitation[Any]] = (), messages: tuple[Message, ...] = (),
        parent_messages: tuple[Message, ...] = (), parent_system_prompt: str | None = None,
        system_prompt: str | None = None, tools: Iterable[Runnable[Any]] = (),
    ) -> None:  # fmt: skip
        self._call = call
        self._scope: Callable[[], Scope] = call.scheduler.scope
        self._branch = branch
        self._host = host
        self._elicits = {elicitation.key: elicitation for elicitation in elicits}
        self._conversation = Conversation(messages)
        self.parent_messages = parent_messages
        self.parent_system_prompt = parent_system_prompt
        self.system_prompt = system_prompt
        self.tools: dict[str, Runnable[Any]] = {tool.name: tool for tool in tools}
        self._is_conversing = False

    if not TYPE_CHECKING:  # otherwise a type checker would accept every name

        def __getattr__(self, name: str) -> object:
            refuse_attribute(name)

        @classmethod
        def __get_pydantic_core_schema__(cls, *_: object) -> object:
            refuse_as_argument()

    # -- the place of the branch ---------------------------------------------------------------

    @property
    def depth(self) -> int:
        """The depth of this branch: 0 for the tool itself, 1 for its branches, and so on."""
        return self._branch.depth

    @property
    def path(self) -> str:
        """The branch's name within the call, e.g. ``book_flight/analyze#1``."""
        return self._branch.path

    @property
    def call_id(self) -> str:
        """The id of the call: the same in all its rounds, different in every other call."""
        return self._call.journal.call_id

    @property
    def idempotency_key(self) -> str:
        """The idempotency key of the next step; inside a step's function, the key of that step.

        Pass the key to a service that accepts idempotency keys: if the process dies between an
        effect and its record, the effect is tried again with the same key.
        """
        running = current_idempotency_key.get()
        if running is not None:
            return running
        scope = self._scope()
        return self._call.effects.key_of(scope, scope.steps + 1)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of this branch's conversation so far."""
        return self._conversation.messages(self._scope())

    @property
    def random(self) -> random.Random:
        """A random generator that returns the same values in every replay."""
        return self._call.operations.random(self._scope())

    def _asking(self, operation: Op[T], step_id: str, *needs: str) -> Op[T]:
        """Register ``operation``, which asks a question, with the error if the host cannot ask it."""
        journal = self._call.journal
        was_asked = step_id in journal.entries or step_id in journal.pending
        refusal = None if was_asked else self._host.refusal(*needs)
        return self._call.scheduler.made(operation, refusal)

    # -- asking the model ----------------------------------------------------------------------

    @overload
    def sample(
        self, prompt: str | Iterable[Block] | None = None, *, schema: type[T],
        messages: Iterable[MessageLike] | None = None, system_prompt: str | None = None,
        max_tokens: int | None = None, model_preferences: Mapping[str, Any] | None = None,
        temperature: float | None = None, stop_sequences: Iterable[str] | None = None,
        include_context: IncludedContext | None = None, metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Op[SampleResult[T]]: ...  # fmt: skip
    @overload
    def sample(
        self, prompt: str | Iterable[Block] | None = None, *,
        messages: Iterable[MessageLike] | None = None, system_prompt: str | None = None,
        max_tokens: int | None = None, tools: Iterable[Runnable[Any] | ToolSpec] | None = None,
        tool_choice: ToolChoiceMode | None = None, model_preferences: Mapping[str, Any] | None = None,
        temperature: float | None = None, stop_sequences: Iterable[str] | None = None,
        include_context: IncludedContext | None = None, metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Op[SampleResult[None]]: ...  # fmt: skip

    def sample(  # noqa: PLR0913 - the options of a model request, all by keyword
        self, prompt: str | Iterable[Block] | None = None, *, schema: type[Any] | None = None,
        messages: Iterable[MessageLike] | None = None, system_prompt: str | None = None,
        max_tokens: int | None = None, tools: Iterable[Runnable[Any] | ToolSpec] | None = None,
        tool_choice: ToolChoiceMode | None = None, model_preferences: Mapping[str, Any] | None = None,
        temperature: float | None = None, stop_sequences: Iterable[str] | None = None,
        include_context: IncludedContext | None = None, metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Op[SampleResult[Any]]:  # fmt: skip
        """Ask the model, and return its reply.

        The ``prompt`` is a text, or blocks, such as images and documents. The model receives the
        conversation so far and the prompt; on success, prompt and reply join the conversation. With
        ``messages``, the model receives these alone, and the conversation stays unchanged. With
        ``schema``, a model or a type such as ``list[str]``, the reply is parsed. With
        ``tool_choice="required"``, the reply must call a tool. Arguments of a tool must be a JSON
        object. If a reply does not fit, the model is asked again with the reason, at most twice.
        The other parameters go to the model; ``include_context`` goes only to a client that has
        declared ``sampling.context``.

        Raises:
            ValueError: if neither or both of ``prompt`` and ``messages`` are given, ``schema``
                comes with ``tools``, ``tool_choice`` comes without ``tools``, a parameter cannot be
                sent, or ``key`` was used before or contains one of ``/~#<>``.
            TypeError: if values of ``schema`` cannot be stored as JSON.
            CapabilityError, BranchTokenError, SampleValidationError, StepFailed: on ``await``, if
                no model can be asked, the token budget is too small, no reply fits, or the model
                answered with an error.
        """
        bound = None if tools is None else tuple(map(as_spec, tools))
        check_options(messages, prompt, max_tokens, schema, bound, tool_choice)
        form = None if schema is None else wanted_form(schema)
        scope = self._scope()
        if prompt is not None:
            sent = (*self._conversation.messages(scope), user(prompt))
        else:
            sent = to_messages(messages or ())
        request = request_of(
            messages=sent, max_tokens=max_tokens, tools=bound or None, tool_choice=tool_choice,
            system_prompt=self.system_prompt if system_prompt is None else system_prompt,
            model_preferences=model_preferences, temperature=temperature,
            stop_sequences=stop_sequences, include_context=include_context, metadata=metadata,
        )  # fmt: skip
        place = 0 if prompt is None else self._conversation.take_place(scope)
        step_id = self._call.cursor.new_id(scope, "sample", _checked_key(key))
        needs = needs_of(request)
        job = SampleJob(
            self._call, self._host, scope, step_id, request, needs, form, place,
            answers_calls=self._is_conversing,
        )  # fmt: skip
        return self._asking(run_sample(job, self._conversation), step_id, *needs)

    def append(
        self, said: str | MessageLike | Iterable[MessageLike], role: Role | None = None
    ) -> None:
        """Add messages, or one text and its role, to this conversation; the model is not asked.

        For example, add the result of a tool, or the ``exchange`` of a sample in another branch. A
        text is the user's unless ``role`` is ``"assistant"``. Each tool use must be followed by its
        result, as providers require.

        Raises:
            ValueError: if ``said`` is not a message.
        """
        messages = given_messages(said, role)
        self._adding()(messages)

    def converse(
        self, prompt: str | Iterable[Block], *, tools: Iterable[Runnable[Any]] | None = None,
        max_rounds: int = 10, **options: Unpack[SampleOptions],
    ) -> Op[SampleResult[None]]:  # fmt: skip
        """Ask the model and run the tools that it calls, until it replies without a tool call.

        The model is asked at most ``max_rounds`` times, with ``options`` as in ``sample``. The
        model may call ``tools``, by default the tools that are bound to this branch. The calls of
        one reply run concurrently, each as by ``call_tool``. The model reads an unknown tool,
        invalid arguments and a tool's error as the call's result; any other exception is raised.
        The result is the last reply. On success, all messages join the conversation, and form the
        ``exchange`` of the result.

        Raises:
            ValueError: if ``max_rounds`` is not positive, or two tools have the same name.
            TypeError: if a tool is not a tool of this library.
            ConverseRoundsError: if the model still calls tools after ``max_rounds``; on ``await``.
            ValueError, CapabilityError, BranchTokenError, StepFailed: as ``sample``; on ``await``.
        """
        if max_rounds < 1:
            raise ValueError(f"max_rounds must be positive, got {max_rounds}")
        bound = checked_tools(self.tools.values() if tools is None else tools)
        view = partial(self._with_messages, tools=bound)
        begun = (*self.messages, user(prompt))
        talk = Talk(self.path, view, bound, begun, max_rounds, options)
        return self._call.scheduler.made(talk.run(self._adding()))

    def _adding(self) -> Callable[[tuple[Message, ...]], None]:
        """Return a function that adds messages to the conversation after its present messages."""
        scope = self._scope()
        return partial(self._conversation.append, scope, self._conversation.take_place(scope))

    def _with_messages(
        self, messages: tuple[Message, ...], tools: Iterable[Runnable[Any]]
    ) -> BranchContext:
        """Return a view of this branch whose conversation is ``messages``, for ``converse``."""
        view = BranchContext(
            self._call, self._branch, self._host, elicits=self._elicits.values(), messages=messages,
            parent_messages=self.parent_messages, parent_system_prompt=self.parent_system_prompt,
            system_prompt=self.system_prompt, tools=tools,
        )  # fmt: skip
        view._is_conversing = True
        return view

    # -- asking the user -----------------------------------------------------------------------

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
        self, question: Elicitation[Any] | type[BaseModel] | str, message: str, *,
        context: JsonValue = None, key: str | None = None,
    ) -> Op[ElicitResult[Any]]:  # fmt: skip
        """Ask the user a question, and return the answer: accepted, declined or cancelled.

        ``question`` is a declared elicitation, its key, or a flat pydantic model, whose fields make
        the form. ``context`` is JSON for a client that draws the form itself. After an invalid
        answer, the user is asked again with the reason, at most three times.

        Raises:
            ValueError: if the tool does not declare the key ``question``, or ``key`` was used
                before or contains one of ``/~#<>``.
            TypeError: if a form cannot show the model.
            CapabilityError, ElicitValidationError, StepFailed: on ``await``, if the client shows no
                forms, no answer was valid, or the client answered with an error.
        """
        name, model = find_question(question, self._elicits)
        require_text("ctx.elicit", "message", message)
        call, scope = self._call, self._scope()
        step_id = call.cursor.new_id(scope, name or "elicit", _checked_key(key))
        job = ElicitJob(call, self._host, scope, step_id, model, message, name, context)
        return self._asking(run_elicit(job), step_id, "elicitation")

    def elicit_url(
        self, message: str, url: str, *, key: str | None = None
    ) -> Op[Accepted[None] | Declined | Cancelled]:
        """Ask the user to open ``url``; ``Accepted`` means that the user agreed to open it.

        Raises:
            CapabilityError, StepFailed: on ``await``, if the client opens no URLs, or answered with
                an error.
        """
        scope = self._scope()
        step_id = self._call.cursor.new_id(scope, "url", _checked_key(key))
        job = UrlJob(self._call, self._host, scope, step_id, message, url)
        return self._asking(run_elicit_url(job), step_id, "elicitation.url")

    # -- several at once --------------------------------------------------------------------------

    def branch(  # noqa: PLR0913 - the options of a branch, all by keyword
        self, fn: Callable[[BranchContext, *Ts], Awaitable[T]], *args: *Ts,
        name: str | None = None, inherit_messages: bool = True, inherit_system_prompt: bool = True,
        messages: Iterable[MessageLike] = (), system_prompt: str | None = None,
        tools: Iterable[Runnable[Any]] = (), max_depth: int | None = None,
        max_tokens: int | None = None, timeout: float | None = None,
    ) -> Op[T]:  # fmt: skip
        """Run ``fn(branch_ctx, *args)`` in a separate conversation and return its value.

        Messages of the branch never reach this conversation. ``messages`` follow the inherited
        messages, and ``system_prompt`` replaces the inherited prompt. Limits narrow the limits of
        the enclosing branches.

        Raises:
            ValueError: if a limit is negative, or ``name`` contains one of ``/~#<>``.
            BranchDepthError, BranchTokenError, BranchTimeoutError: on ``await``.
            Exception: if ``fn`` raises, on ``await``.
        """
        scope = self._scope()
        inherited = self._conversation.messages(scope)
        seeds = (inherited if inherit_messages else ()) + to_messages(messages)
        outer = self.system_prompt
        if system_prompt is None and inherit_system_prompt:
            system_prompt = outer
        bound = tuple(tools) or self.tools.values()
        path = self._call.cursor.new_path(scope, _name_for(fn, name, "branch"))
        if max_depth is max_tokens is timeout is None:
            limits = UNLIMITED
        else:
            limits = Limits(max_depth=max_depth, max_tokens=max_tokens, timeout=timeout)

        # No closure: thousands may be open at a time, and each of its cells is an object.
        body = partial(self._in_branch, fn, args, seeds, inherited, outer, system_prompt, bound)
        asked = pin(fn, args)
        return self._call.scheduler.made(
            self._call.branches.run(path, limits, body, codec_of(fn), asked=asked)
        )

    def _in_branch(
        self, fn: Callable[..., Awaitable[T]], args: tuple[Any, ...], messages: tuple[Message, ...],
        inherited: tuple[Message, ...], outer: str | None, system_prompt: str | None,
        tools: Iterable[Runnable[Any]], branch: Branch,
    ) -> Awaitable[T]:  # fmt: skip
        ctx = BranchContext(
            self._call, branch, self._host, elicits=self._elicits.values(), messages=messages,
            parent_messages=inherited, parent_system_prompt=outer, system_prompt=system_prompt,
            tools=tools,
        )  # fmt: skip
        made = fn(ctx, *args)
        require_awaitable(made)
        return made

    @overload
    def call_tool(self, tool: Runnable[T], /, **arguments: object) -> Op[T]: ...
    @overload
    def call_tool(self, tool: str, /, **arguments: object) -> Op[Any]: ...

    def call_tool(self, tool: Runnable[Any] | str, /, **arguments: object) -> Op[Any]:
        """Run another tool in a sub-branch, with an empty conversation, and return its value.

        ``tool`` may be the name of a tool bound to this branch (``branch(tools=[…])``). The tool's
        limits apply inside the limits of this branch; its ``max_depth`` counts from the tool.

        Raises:
            ToolError: if no tool of that name is bound to this branch.
            InvalidArgumentsError: if the arguments do not fit the tool's parameters; nothing has
                run.
            Exception: if the tool raises, on ``await``.
        """
        chosen = find_tool(tool, self.tools) if isinstance(tool, str) else tool
        require_runnable(chosen)
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
        values = first_arguments(self._call, scope.branch, path, chosen, values)
        codec, asked = codec_of(chosen.returned_by), pin(chosen.run, [values])
        run = self._call.branches.run(path, chosen.limits, body, codec, asked=asked, is_tool=True)
        return self._call.scheduler.made(run)

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
        """Run operations, such as samples and branches, concurrently; return their values in order.

        Every operation finishes, even if another fails; then the first error in order is raised. If
        the client cannot answer the question of an operation, its ``CapabilityError`` is raised,
        and no operation starts.
        """
        require_operations("ctx.gather", operations)
        refusal = self._call.scheduler.refusal_of(operations)
        run = all_of(operations) if refusal is None else none_of(operations, refusal)
        return self._call.scheduler.made(run, refusal)

    @overload
    def race(self, op1: Awaitable[T1], op2: Awaitable[T2], /) -> Op[T1 | T2]: ...
    @overload
    def race(
        self, op1: Awaitable[T1], op2: Awaitable[T2], op3: Awaitable[T3], /
    ) -> Op[T1 | T2 | T3]: ...
    @overload
    def race(self, *operations: Awaitable[T]) -> Op[T]: ...

    def race(self, *operations: Awaitable[Any]) -> Op[Any]:
        """Run operations concurrently; return the value, or raise the error, of the first to end.

        The other operations are cancelled. The winner is recorded, so a replay does not race again.

        Raises:
            ValueError: if there is no operation.
        """
        if not operations:
            raise ValueError("race() needs at least one operation")
        require_operations("ctx.race", operations)
        scope = self._scope()
        step_id = self._call.cursor.new_id(scope, "race")
        return self._call.scheduler.made(self._call.operations.race(scope, step_id, operations))

    # -- effects, notices -------------------------------------------------------------------------------

    @overload
    def step(
        self, fn: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts,
        name: str | None = None, undo: Callable[[T], Any] | None = None,
    ) -> Op[T]: ...  # fmt: skip
    @overload
    def step(
        self, fn: Callable[[*Ts], T], *args: *Ts,
        name: str | None = None, undo: Callable[[T], Any] | None = None,
    ) -> Op[T]: ...  # fmt: skip

    def step(
        self, fn: Callable[[*Ts], Any], *args: *Ts,
        name: str | None = None, undo: Callable[[Any], Any] | None = None,
    ) -> Op[Any]:  # fmt: skip
        """Run ``fn(*args)`` once per call, record its value, and return the record in replays.

        A plain function runs in a thread, an ``async`` function on the event loop. If the call
        fails or is cancelled later, ``undo(value)`` runs; steps are undone in reverse order.

        Raises:
            StepFailed: if ``fn`` raised; an ``AnabranchError`` from ``fn`` is raised unchanged.
            SerializationError: if the value cannot be recorded; the call fails.
        """
        if not callable(fn):
            if inspect.iscoroutine(fn):
                fn.close()
            raise TypeError(
                f"ctx.step takes a function and its arguments, got {type(fn).__name__}."
                " Write ctx.step(reserve, seat), not ctx.step(reserve(seat))."
            )
        scope = self._scope()
        step_id = self._call.cursor.new_id(scope, _name_for(fn, name, "step"))
        scope.steps += 1
        asked = pin(fn, args)
        return self._call.scheduler.made(
            self._call.effects.step(scope, step_id, asked, fn, args, scope.steps, undo)
        )

    def log(self, level: LogLevel, message: str) -> Op[None]:
        """Send a log message to the client; a replay does not send it again.

        Raises:
            ValueError: if ``level`` is not a log level of the protocol.
        """
        if level not in _LEVELS:
            raise ValueError(f"{level!r} is no log level; use one of {', '.join(_LEVELS)}")
        return self._notice(Notice(message, level=level))

    def notify(
        self, message: str, progress: float | None = None, total: float | None = None
    ) -> Op[None]:
        """Report progress to the client, once; by default, ``progress`` counts the reports."""
        return self._notice(Notice(message, progress=progress, total=total))

    def _notice(self, notice: Notice) -> Op[None]:
        return self._call.scheduler.made(self._call.operations.notify(self._scope(), notice))

    def patched(self, name: str) -> Op[bool]:
        """Return whether this call runs the new code of the change ``name``, or the old code.

        Use ``if await ctx.patched("refund-limit"):`` to change code that open calls may have run. A
        call that had passed the ``if`` before the change was deployed runs the code under ``else``.
        Any other call runs the code under ``if``. The answer is recorded, and is the same
        everywhere in the call.

        Raises:
            ValueError: if ``name`` is empty, or contains one of ``/~#<>``.
        """
        return self._call.scheduler.made(
            self._call.markers.is_new_way(self._scope(), checked_name(name))
        )

    # -- time and chance -----------------------------------------------------------------------

    def sleep(self, seconds: float) -> Op[None]:
        """Sleep for ``seconds``; a replay does not start the wait again.

        Raises:
            ValueError: if ``seconds`` is not a finite number.
        """
        require_seconds("ctx.sleep", seconds)
        if not math.isfinite(seconds):
            raise ValueError(f"sleep() takes a finite number of seconds, got {seconds!r}")
        return self._sleep(self._call.operations.now(self._scope()) + seconds)

    def sleep_until(self, when: datetime) -> Op[None]:
        """Sleep until ``when``, or return immediately if that is past; a sleep may last weeks.

        In a ``race`` with a question, the sleep limits the time for the answer.

        Raises:
            ValueError: if ``when`` has no time zone.
        """
        if when.utcoffset() is None:
            raise ValueError(
                f"sleep_until() takes a time with its zone, got {when.isoformat()}:"
                " write datetime(…, tzinfo=UTC), or begin with ctx.now()"
            )
        return self._sleep(when.timestamp())

    def _sleep(self, until: float) -> Op[None]:
        scope = self._scope()
        step_id = self._call.cursor.new_id(scope, "sleep")
        return self._call.scheduler.made(self._call.operations.sleep(scope, step_id, until))

    def now(self) -> datetime:
        """Return the present time (UTC); a replay returns the time of the first run."""
        return datetime.fromtimestamp(self._call.operations.now(self._scope()), UTC)

    def uuid(self) -> uuid.UUID:
        """Return a new random UUID; a replay returns the same UUID."""
        return self._call.operations.unique(self._scope(), "uuid")


def _checked_key(key: str | None) -> str | None:
    return None if key is None else checked_name(key, "key")


def _name_for(fn: Callable[..., Any], given: str | None, default: str) -> str:
    """Return the name of a branch or a step: the given name, or else the function's."""
    if given is not None:
        return checked_name(given)
    own: object = getattr(fn, "__name__", None)
    if not isinstance(own, str):
        return default
    return own if own.isidentifier() or (own and not MARKS & set(own)) else default


def caller_of(ctx: BranchContext) -> str:
    """Return the principal of the caller, as the edge identifies it; empty without authentication."""
    return ctx._host.principal  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
