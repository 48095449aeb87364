"""Waiting: the clock, periodic jobs, concurrent operations, work that no cancellation stops."""

from anabranch._aio.clock import (
    Clock,
    Ids,
    SystemClock,
    SystemIds,
    ThrottledWarning,
    Timer,
    pause,
    run_every,
    run_job,
    run_once,
    run_until,
)
from anabranch._aio.tasks import (
    STOPPING,
    all_of,
    all_or_first_error,
    cancel_and_wait,
    first_of,
    none_of,
    replay_race,
    run_shielded,
    server_stops,
    wait_shielded,
)
