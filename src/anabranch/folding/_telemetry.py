"""Metrics and traces of branches, by the API of OpenTelemetry; without its SDK they cost nothing.

A branch is one span, from its creation to its end. No attribute names a session or a branch in a metric:
their number grows without bound.
"""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry import metrics, trace

from anabranch.folding._ledger import BranchEvent

_NANOSECONDS = 1_000_000_000


def _telemetry() -> Callable[[BranchEvent], None]:
    meter, tracer = metrics.get_meter("anabranch.folding"), trace.get_tracer("anabranch.folding")
    events = meter.create_counter(
        "anabranch.folding.branches", unit="{branch}", description="What has happened to branches."
    )
    tokens = meter.create_histogram(
        "anabranch.folding.tokens", unit="{token}", description="Tokens that a branch has used."
    )
    memories = meter.create_counter(
        "anabranch.folding.memories", unit="{memory}", description="Memories that branches got."
    )
    duration = meter.create_histogram(
        "anabranch.folding.duration", unit="s", description="Time from creation to end."
    )

    def record_event(event: BranchEvent) -> None:
        branch = event.branch
        events.add(1, {"event": event.kind, "depth": branch.depth})
        if event.kind == "created":
            memories.add(len(branch.injected_memories))
        if branch.completed_at is None:
            return
        tokens.record(branch.budget_used, {"status": branch.status})
        duration.record(branch.completed_at - branch.created_at, {"status": branch.status})
        span = tracer.start_span(
            "anabranch.folding.branch",
            start_time=int(branch.created_at * _NANOSECONDS),
            attributes={
                "anabranch.branch.id": branch.id,
                "anabranch.branch.depth": branch.depth,
                "anabranch.branch.status": branch.status,
                "anabranch.branch.budget": branch.budget_total,
                "anabranch.branch.tokens": branch.budget_used,
                "anabranch.branch.error": branch.error or "",
            },
        )
        span.end(end_time=int(branch.completed_at * _NANOSECONDS))

    return record_event


record: Callable[[BranchEvent], None] = _telemetry()
"""Record an event where the application has set OpenTelemetry up."""
