"""The cost of a round among few and among many stored calls, on one Postgres server.

A call of eight questions and steps is played in three stores. The stores differ only in the number of
copies of such a call.

A copy is the row of its call, its last round, and the entries and answers of that round: some million
rows for a million calls. A whole call has nine rounds. So the indexes have all calls, a ninth of the rounds,
and an eighth of the entries and answers. The ids of copies are as random as the ids of calls, and their
times differ. One copy in ten waits for a user, since some indexes have such calls alone. Statistics, vacuum and
checkpoint of the new rows end before the measurement. A million copies take two minutes, and two gigabytes
of disk until the end.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import sqlalchemy as sa

from anabranch.stores._engines import read_url
from bench.measure import Row, time_in_turns
from bench.sagas import NUMBER, alone
from tests.postgres import Server

NAME = "growth"
TURNS = 20
STORED = (100, 10_000, 1_000_000)
GOAL = 1.2

COPIES = (
    "SET session_replication_role = replica",  # otherwise each row checks its foreign key
    (
        "INSERT INTO anabranch_call (call_id, tool, arguments, started, deadline, state, principal,"
        " thread, node, version, stopped, asked)"
        " SELECT {name}, tool, arguments, started - n, deadline - n,"
        " CASE WHEN mod(n, 10) = 0 THEN 'waiting' ELSE state END, principal, thread, node,"
        " version, stopped,"
        " CASE WHEN mod(n, 10) = 0 THEN started - n END"
        " FROM anabranch_call, generate_series(1, {number}) AS n"
    ),
    (
        "INSERT INTO anabranch_round (call_id, number, reply, state, notes)"
        " SELECT {name}, number, reply, state, notes"
        " FROM anabranch_round, generate_series(1, {number}) AS n WHERE number = {last}"
    ),
    (
        "INSERT INTO anabranch_entry (call_id, number, step_id, text)"
        " SELECT {name}, number, step_id, text"
        " FROM anabranch_entry, generate_series(1, {number}) AS n WHERE number = {last}"
    ),
    (
        'INSERT INTO anabranch_answer (call_id, step_id, text, "by", number)'
        ' SELECT {name}, step_id, text, "by", number'
        " FROM anabranch_answer, generate_series(1, {number}) AS n WHERE number = {last}"
    ),
    "VACUUM ANALYZE",
    "CHECKPOINT",
)


def copy_calls(url: str, number: int) -> None:
    """Copy the store's single call."""
    engine = sa.create_engine(read_url(url).url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in COPIES:
            name = "convert_to('call_' || left(md5(n::text), 12), 'UTF8')"
            connection.exec_driver_sql(statement.format(name=name, number=number, last=NUMBER))
    engine.dispose()


async def rows() -> list[Row]:
    # A socket's path must be short, and open to the server's user.
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
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
