"""The cost of a round among few and among many stored calls, on one Postgres server.

A call of eight questions and steps is played in three stores that differ in nothing but what they
have already: copies of such a call, with all of its rounds and entries.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import sqlalchemy as sa

from anabranch.stores._urls import read_url
from bench.measure import Row, time_in_turns
from bench.sagas import NUMBER, alone
from tests.postgres import Server

NAME = "growth"
TURNS = 20
STORED = (100, 10_000, 100_000)
GOAL = 1.2

COPIES = (
    (
        "INSERT INTO anabranch_call (call_id, tool, arguments, started, deadline, status, principal)"
        " SELECT call_id || {name}, tool, arguments, started, deadline, status, principal"
        " FROM anabranch_call, generate_series(1, {number}) AS n"
    ),
    (
        "INSERT INTO anabranch_round (call_id, number, answers, reply, state)"
        " SELECT call_id || {name}, number, answers, reply, state"
        " FROM anabranch_round, generate_series(1, {number}) AS n"
    ),
    (
        "INSERT INTO anabranch_entry (call_id, number, step_id, text)"
        " SELECT call_id || {name}, number, step_id, text"
        " FROM anabranch_entry, generate_series(1, {number}) AS n"
    ),
    "ANALYZE",
)


def copy_calls(url: str, number: int) -> None:
    """Copy the one call that the store has."""
    engine = sa.create_engine(read_url(url).url)
    with engine.begin() as connection:
        for statement in COPIES:
            name = "convert_to('-' || n, 'UTF8')"
            connection.execute(sa.text(statement.format(name=name, number=number)))
    engine.dispose()


async def rows() -> list[Row]:
    # The path of a socket is short, and the server's user must get there.
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        server = Server(Path(place), durable=True)
        server.start()
        try:
            async with AsyncExitStack() as stack:
                contenders = dict[str, Callable[[], Awaitable[object]]]()
                for number in STORED:
                    url = server.new_url()
                    played = await stack.enter_async_context(alone(url))
                    await played["saga"]()
                    await asyncio.to_thread(copy_calls, url, number)
                    contenders[f"{number:,}"] = played["saga"]
                times = await time_in_turns(contenders, TURNS)
        finally:
            server.stop()
    fewest, *more = contenders
    rounds = NUMBER + 1
    return [
        *(
            Row(NAME, f"a round among {many} stored calls / {fewest}", ratio, goal=GOAL)
            for many in more
            for ratio in [times.ratio(many, fewest)]
        ),
        Row(NAME, f"a round among {fewest} stored calls", times.best(fewest) * 1e3 / rounds, "ms"),
    ]


def measure() -> list[Row]:
    """Return this benchmark's lines of the table."""
    return asyncio.run(rows())
