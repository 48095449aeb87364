"""What the drivers of all frameworks share: one run of an agent in a process, from a script to a report.

A driver imports its framework once, and runs each script in a process of its own, a fork, since the import
takes seconds. What a script has imported beside that is imported here before the next one. Each line of stdin is a script, and each line on the descriptor ``REPORTS`` its report:

    {"calls": [{"name": …, "arguments": {…}}, …],       what the scripted model calls at first, at once
     "snapshot": …,                                     of the process before; null at the beginning
     "answers": {call: {question: answer}},
     "folder": where tools write, "conversation": its name, "store": URL or null, "sampler": bool, "now": seconds or null, "principal": …, "version": of the code}

    {"asked": {call: {"questions": …, "until": …, "problem": …}}, "snapshot": …,
     "results": {call: text} once the agent has ended, "notices": [message, …]}

    {"raised": text, "snapshot": as it is then}         where the agent, or an answer, raises

The model calls every tool of ``calls`` in its first reply, each under the id of its place, and ends when
it has read their results. Asked for anything else, it says what a sample is to be answered with.
"""

import ast
import asyncio
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, TypeAlias

from anabranch._aio import SystemClock
from anabranch.rounds import Rounds
from anabranch.testing import ManualClock, MockModel

REPORTS = int(os.environ["REPORTS"])
"""The descriptor of the reports: frameworks write to stdout."""

KEY = "a key that all processes of a test share, and no one else"
SAMPLED = "Take one."


def call_ids(script: dict[str, Any]) -> list[str]:
    return [f"call-{place}" for place in range(len(script["calls"]))]


def rounds_of(script: dict[str, Any]) -> Rounds:
    now, sampler = script["now"], MockModel(lambda _: SAMPLED) if script["sampler"] else None
    clock = SystemClock() if now is None else ManualClock(now)
    return Rounds(
        keys=[KEY],
        store=script["store"],
        ttl=10**6,
        sampler=sampler,
        clock=clock,
        code_version=script["version"],
    )


def raised(error: Exception, snapshot: object) -> dict[str, Any]:
    """Return the report of a process in which ``error`` was raised."""
    traceback.print_exception(error)
    return {"raised": f"{type(error).__name__}: {error}", "snapshot": snapshot}


Driver: TypeAlias = Callable[[dict[str, Any], Rounds], Awaitable[dict[str, Any]]]
"""Runs an agent once, as a script says, and returns the report."""


def play(driver: Driver, model_of: Callable[[dict[str, Any]], object]) -> None:
    """Let ``driver`` play each script of stdin in a child process.

    A script may also be an example of the page: ``{"page": code, "calls": [...]}``. In the example, ``model``
    is the return value of ``model_of``.
    """
    imported = set(sys.modules)
    for line in sys.stdin:
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            status = 1
            try:
                _play_one(driver, model_of, json.loads(line))
                _write(writes, [*sys.modules])
                status = 0
            except BaseException:  # noqa: BLE001 - it must not go on as the parent
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        os.close(writes)
        with os.fdopen(reads, encoding="utf-8") as names:
            for name in json.loads(names.readline() or "[]"):
                if name not in imported:
                    imported.add(name)
                    with suppress(Exception):  # some names belong to no module that can be imported
                        import_module(name)
        if os.waitpid(child, 0)[1]:
            _report({"failed": True})


def _play_one(
    driver: Driver, model_of: Callable[[dict[str, Any]], object], script: dict[str, Any]
) -> None:
    if "page" in script:
        names = {"__name__": "page", "model": model_of(script)}
        compiled = compile(script["page"], "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if (example := eval(compiled, names)) is not None:  # noqa: S307 - our own page
            asyncio.run(_awaited(example))
        _report({})
        return
    os.environ["EFFECTS"] = f"{script['folder']}/effects"
    os.environ["VERSION"] = script["version"]

    async def run() -> dict[str, Any]:
        async with rounds_of(script) as rounds:
            try:
                return await driver(script, rounds)
            except Exception as error:  # noqa: BLE001 - the test says whether it should be
                return raised(error, script["snapshot"])

    _report(asyncio.run(run()))


async def _awaited(example: Any) -> None:
    await example


def _report(report: dict[str, Any]) -> None:
    _write(REPORTS, report)


def _write(descriptor: int, line: object) -> None:
    left = f"{json.dumps(line)}\n".encode()
    while left:
        left = left[os.write(descriptor, left) :]
