"""Waiting: the clock, concurrent operations, work that no cancellation stops, and throttled warnings."""

from anabranch._aio.clock import Clock, Ids, SystemClock, SystemIds, Timer, pause, run_until
from anabranch._aio.combine import all_of, cancel_and_wait, first_of, none_of, replay_race
from anabranch._aio.shielding import run_shielded, wait_shielded
from anabranch._aio.stopping import STOPPING, server_stops
from anabranch._aio.throttled_warning import ThrottledWarning

__all__ = [
    "STOPPING",
    "Clock",
    "Ids",
    "SystemClock",
    "SystemIds",
    "ThrottledWarning",
    "Timer",
    "all_of",
    "cancel_and_wait",
    "first_of",
    "none_of",
    "pause",
    "replay_race",
    "run_shielded",
    "run_until",
    "server_stops",
    "wait_shielded",
]
