"""The benchmarks by name, in a module that a new process can import, unlike ``__main__``."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bench import (
    answers,
    branches,
    branching,
    chat_rounds,
    conversing,
    engines,
    folding,
    growth,
    imports,
    kills,
    memory,
    page,
    pauses,
    replay,
    rounds,
    sagas,
    sealing,
    sleepers,
    state,
    streaming,
    throughput,
    tree,
    wizard,
)
from bench.measure import Row

BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    module.NAME: module.measure
    for module in (
        wizard,
        throughput,
        sagas,
        engines,
        sleepers,
        growth,
        sealing,
        state,
        replay,
        rounds,
        branches,
        branching,
        folding,
        tree,
        memory,
        streaming,
        answers,
        chat_rounds,
        conversing,
        kills,
        page,
        pauses,
        imports,
    )
}


def run(name: str) -> list[Row]:
    """Run one benchmark, in a separate process, so that no benchmark meets another's leftovers."""
    # A call of eight rounds logs a warning, whose printing would be measured as well.
    logging.getLogger("anabranch").setLevel(logging.ERROR)
    return BENCHMARKS[name]()
