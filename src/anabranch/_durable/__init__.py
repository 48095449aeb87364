"""Calls that outlive a process: the store records each round once; an equal request gets its reply.

The package knows no edge: an edge such as ``mcp/`` passes in how questions become a reply, and the
errors of its protocol. Databases are in ``stores/``.
"""

from typing import TYPE_CHECKING

from anabranch._lazy import lazy_names

if TYPE_CHECKING:
    from anabranch._durable.engine import (
        Advance,
        Backlog,
        Engine,
        Processes,
        UnknownProcesses,
        Wake,
    )
    from anabranch._durable.entries import (
        PAGE,
        Notes,
        dump_answers,
        dump_entry,
        enter,
        entered,
        load_answers,
        load_entry,
        load_notes,
        merge,
        waiting_round,
    )
    from anabranch._durable.expiry import INTERVAL, Reaper
    from anabranch._durable.job import RETAIN, Durability, Job
    from anabranch._durable.lease import Lease, RenewedLease
    from anabranch._durable.recorded.finding import (
        AmbiguousCallError,
        NoSuchCallError,
        Unfinished,
        find_call,
        listed,
        undo_again,
        unfinished,
    )
    from anabranch._durable.recorded.reading import outline, read_call
    from anabranch._durable.recorded.steps import (
        Holder,
        Listed,
        RecordedCall,
        RecordedRound,
        RecordedStep,
    )
    from anabranch._durable.rehearsal import (
        Drift,
        Rehearsed,
        Replayed,
        rehearse,
        replay_call,
        without_tool,
    )
    from anabranch._durable.run_events import (
        EventBatch,
        EventId,
        MissedEventsError,
        NewEvents,
        QueuedTurn,
        RunEvents,
        TakenTurn,
    )
    from anabranch._durable.sealing import (
        ASKS,
        HANDLES,
        ROUNDS,
        SAGAS,
        Claims,
        SagaClaims,
        Sealer,
        has_expired,
    )
    from anabranch._durable.service import CallService
    from anabranch._durable.states import (
        MAX_STATE,
        digest,
        is_compensated,
        latest_journal,
        latest_number,
        store_errors_mapped,
    )
    from anabranch._durable.store import (
        AnswerRecord,
        CallRecord,
        CallStore,
        LeaseRecord,
        OpenedRound,
        RoundRecord,
    )
    from anabranch._durable.transitions import (
        ENDS_LEASE,
        ENDS_ROUND,
        NAMED,
        OPEN,
        TAKES_ANSWERS,
        TRANSITIONS,
        TURN_TRANSITIONS,
        UNDONE,
        CallEvent,
        CallState,
        TurnEvent,
        TurnRecord,
        TurnState,
        begun,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            ".engine": "Advance Backlog Engine Processes UnknownProcesses Wake",
            ".entries": "Notes PAGE dump_answers dump_entry enter entered load_answers load_entry load_notes merge waiting_round",
            ".expiry": "INTERVAL Reaper",
            ".job": "Durability Job RETAIN",
            ".lease": "Lease RenewedLease",
            ".recorded.finding": "AmbiguousCallError NoSuchCallError Unfinished find_call listed undo_again unfinished",
            ".recorded.reading": "outline read_call",
            ".recorded.steps": "Holder Listed RecordedCall RecordedRound RecordedStep",
            ".rehearsal": "Drift Rehearsed Replayed rehearse replay_call without_tool",
            ".run_events": "EventBatch EventId MissedEventsError NewEvents QueuedTurn RunEvents TakenTurn",
            ".sealing": "ASKS Claims HANDLES ROUNDS SAGAS SagaClaims Sealer has_expired",
            ".service": "CallService",
            ".states": "MAX_STATE digest is_compensated latest_journal latest_number store_errors_mapped",
            ".store": "AnswerRecord CallRecord CallStore LeaseRecord OpenedRound RoundRecord",
            ".transitions": (
                "CallEvent CallState ENDS_LEASE ENDS_ROUND NAMED OPEN TAKES_ANSWERS TRANSITIONS "
                "TURN_TRANSITIONS TurnEvent TurnRecord TurnState UNDONE begun"
            ),
        },
    )
