"""The benchmarks by name. Apart from ``__main__``, which a new process cannot import."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bench import (
    answers,
    branches,
    branching,
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
        conversing,
        kills,
        page,
        pauses,
        imports,
    )
}


def run(name: str) -> list[Row]:
    """Measure ``name``; called in a process of its own, so that none finds another's leavings."""
    # A call of eight rounds is told off for them, once; printing that is not what is measured.
    logging.getLogger("anabranch").setLevel(logging.ERROR)
    return BENCHMARKS[name]()
