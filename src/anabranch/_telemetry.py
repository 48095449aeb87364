"""Traces and metrics of calls and turns, by the OpenTelemetry API; without its SDK they cost little.

Spans and metrics show no data of a call: no argument, value, answer or prompt, and only the type of
an error. A span cannot outlive its process, so the span of a call that runs by rounds ends with the
first round. Later rounds name it as their parent, in any process, by ``Journal.trace``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from anabranch._engine import Journal

_tracer = trace.get_tracer("anabranch")


class Instruments:
    def __init__(self, meter: metrics.Meter) -> None:
        self.rounds = meter.create_histogram(
            "anabranch.round.duration",
            unit="s",
            description="Rounds, and calls that run live, by how they ended.",
        )
        self.tokens = meter.create_counter(
            "anabranch.tokens", unit="{token}", description="Tokens that calls have used."
        )
        self.undo_failures = meter.create_counter(
            "anabranch.undo.failures", unit="{undo}", description="Failed attempts to run an undo."
        )
        self.open_calls = meter.create_gauge(
            "anabranch.calls.open", unit="{call}", description="Open calls in the store."
        )
        self.oldest_call = meter.create_gauge(
            "anabranch.calls.oldest", unit="s", description="Age of the oldest open call."
        )
        self.oldest_question = meter.create_gauge(
            "anabranch.questions.oldest",
            unit="s",
            description="Age of the oldest question that waits for a user.",
        )
        self.turn_tokens = meter.create_counter(
            "anabranch.turn.tokens", unit="{token}", description="Tokens that turns have used."
        )
        self.backlog = {
            state: meter.create_gauge(
                f"anabranch.backlog.{state}", unit="{run}", description=f"Runs that are {state}."
            )
            for state in ("waiting", "running")
        }


_instruments = Instruments(metrics.get_meter("anabranch"))

_TRACE_CONTEXT = TraceContextTextMapPropagator()
_NOTHING: AbstractContextManager[None] = nullcontext()
_ASKS = {"sample", "elicit", "url"}

_in_logs: ContextVar[str] = ContextVar("call", default="")
"""The call that runs in this context, for log records."""

CALL, STEP, TOOL = "anabranch.call.id", "anabranch.step.id", "gen_ai.tool.name"


def observe(kind: str, step_id: str) -> AbstractContextManager[object]:
    """Return a context manager for one operation: it opens a span if the round has a span."""
    if kind != "undo" and not trace.get_current_span().is_recording():
        return _NOTHING
    return _operation(kind, step_id)


@contextmanager
def _operation(kind: str, step_id: str) -> Generator[None]:
    name, attributes = _named(kind, step_id)
    span = _tracer.start_span(name, attributes=attributes)
    with _current(span):
        try:
            yield
        except asyncio.CancelledError:
            if kind in _ASKS:  # the round that gets the answer reports the ask
                raise
            span.set_attribute("anabranch.cut_off", value=True)
            span.end()
            raise
        except Exception as error:
            if kind == "undo":
                _instruments.undo_failures.add(1)
            _fail(span, error)
            span.end()
            raise
    span.end()


class ObservedRound:
    """The report of a round; ``outcome`` says how the round ended, unless the round raised."""

    def __init__(self, call: trace.SpanContext) -> None:
        self.outcome: str = "returned"
        self._call = call

    def asks(self, journal: Journal) -> None:
        """Note that the round ends with open questions, before the journal is written."""
        self.outcome = "asked"
        if self._call.is_valid:
            journal.trace = f"{_written(self._call)} {time.time_ns()}"


@contextmanager
def observe_call(
    tool: str, journal: Journal, answered: Collection[str] | None = None
) -> Generator[ObservedRound]:
    """Observe a round that gets answers to the questions ``answered``, or a call that runs live."""
    begun, spent = time.perf_counter(), journal.spent().get("", 0)
    attributes = {TOOL: tool, CALL: journal.line}
    with call_in_logs(journal.line), ExitStack() as spans:
        if journal.trace:
            call = _carried(journal, answered or ())
        else:
            request = trace.get_current_span().get_span_context()
            opened = spans.enter_context(_span("anabranch.call", attributes)).get_span_context()
            # Without an SDK this is the request's context: there is no trace, and nothing to carry.
            call = trace.INVALID_SPAN_CONTEXT if opened == request else opened
        if answered is not None:
            attributes["anabranch.round"] = str(journal.rounds + 1)
            spans.enter_context(_span("anabranch.round", attributes, call))
        seen = ObservedRound(call)
        try:
            yield seen
        except BaseException as error:
            seen.outcome = "failed" if isinstance(error, Exception) else "cut off"
            raise
        finally:
            outcome = {TOOL: tool, "anabranch.outcome": seen.outcome}
            trace.get_current_span().set_attributes(outcome)
            _instruments.rounds.record(time.perf_counter() - begun, outcome)
            if (used := journal.spent().get("", 0) - spent) > 0:
                _instruments.tokens.add(used, {TOOL: tool})


def _carried(journal: Journal, answered: Collection[str]) -> trace.SpanContext:
    """Return the call's span that an earlier round has stored; report the answered asks."""
    traceparent, _, asked_at = journal.trace.partition(" ")
    context = _read(traceparent)
    for step_id in answered:
        name, attributes = _named(journal.pending[step_id][0], step_id)
        _tracer.start_span(name, context, attributes=attributes, start_time=int(asked_at)).end()
    return trace.get_current_span(context).get_span_context()


def _named(kind: str, step_id: str) -> tuple[str, Attributes]:
    if kind in _ASKS:
        return "anabranch.ask", {STEP: step_id, "anabranch.ask.kind": kind}
    return f"anabranch.{kind}", {STEP: step_id}


@contextmanager
def _span(
    name: str, attributes: Attributes, parent: trace.SpanContext | None = None
) -> Generator[trace.Span]:
    """Open a span below ``parent``; if that is not the current span, link the current one."""
    context, links = None, []
    around = trace.get_current_span().get_span_context()
    if parent is not None and parent.is_valid and parent != around:
        context = trace.set_span_in_context(trace.NonRecordingSpan(parent))
        links = [trace.Link(around)] if around.is_valid else []
    span = _tracer.start_span(name, context, attributes=attributes, links=links)
    with _current(span), _ending(span):
        yield span


@contextmanager
def _ending(span: trace.Span) -> Generator[None]:
    try:
        yield
    except Exception as error:
        _fail(span, error)
        raise
    finally:
        span.end()


def _current(span: trace.Span) -> AbstractContextManager[trace.Span]:
    """Make ``span`` the current span, without recording exceptions, whose texts may hold secrets."""
    return trace.use_span(span, record_exception=False, set_status_on_exception=False)


def _fail(span: trace.Span, error: Exception) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(trace.StatusCode.ERROR)


class ObservedTurn:
    """The report of a turn; ``outcome`` says how the turn ended, unless the turn raised."""

    outcome = "returned"


@contextmanager
def observe_turn(thread: str) -> Generator[ObservedTurn]:
    with _span("anabranch.turn", {"anabranch.thread.id": thread}) as span:
        seen = ObservedTurn()
        try:
            yield seen
        except BaseException as error:
            seen.outcome = "failed" if isinstance(error, Exception) else "cut off"
            raise
        finally:
            span.set_attribute("anabranch.outcome", seen.outcome)


@contextmanager
def observe_wake(call: str, turn: str, tool: str, woken_by: str) -> Generator[None]:
    """Observe the work of a wake: a separate trace, linked to ``woken_by``."""
    attributes = {TOOL: tool, "anabranch.wake.call": call, "anabranch.wake.turn": turn}
    waker = trace.get_current_span(_read(woken_by)).get_span_context()
    links = [trace.Link(waker)] if waker.is_valid else []
    # The surrounding span is unrelated: it may be the one that started the worker.
    span = _tracer.start_span("anabranch.wake", Context(), attributes=attributes, links=links)
    with _current(span), _ending(span):
        yield


def trace_here() -> str:
    here = trace.get_current_span().get_span_context()
    return _written(here) if here.is_valid else ""


def _written(span: trace.SpanContext) -> str:
    carrier: dict[str, str] = {}
    context = trace.set_span_in_context(trace.NonRecordingSpan(span))
    _TRACE_CONTEXT.inject(carrier, context)
    return carrier["traceparent"]


def _read(traceparent: str) -> Context:
    return _TRACE_CONTEXT.extract({"traceparent": traceparent}, Context())


def report_turn_tokens(sent: int, received: int) -> None:
    for kind, tokens in (("input", sent), ("output", received)):
        _instruments.turn_tokens.add(tokens, {"gen_ai.token.type": kind})


def report_backlog(waiting: int, running: int) -> None:
    _instruments.backlog["waiting"].set(waiting)
    _instruments.backlog["running"].set(running)


def report_open_calls(number: int, oldest: float, asked: float) -> None:
    _instruments.open_calls.set(number)
    _instruments.oldest_call.set(oldest)
    _instruments.oldest_question.set(asked)


@contextmanager
def call_in_logs(line: str) -> Generator[None]:
    """Add the id of the call to log records within the block, from any code."""
    before = _in_logs.set(line)
    try:
        yield
    finally:
        _in_logs.reset(before)


def log_fields() -> dict[str, str]:
    found = {"call": _in_logs.get()}
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        found["trace_id"] = trace.format_trace_id(context.trace_id)
        found["span_id"] = trace.format_span_id(context.span_id)
    return {name: value for name, value in found.items() if value}
