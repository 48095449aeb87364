"""Simulates a crash of the machine or database that loses a run's last events."""

import sqlalchemy as sa

from anabranch.stores._database import Database
from anabranch.stores._engines import read_url
from anabranch.stores._event_tables import EVENT, RUN


async def lose_events(url: str, run: str, last: int) -> None:
    """Delete the events after number ``last`` from a store, and from its memory."""
    mark = sa.select(EVENT.c.mark).where(EVENT.c.run == run, EVENT.c.number == last)
    before = {"last": last, "mark": sa.func.coalesce(mark.scalar_subquery(), 0)}

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.delete(EVENT).where(EVENT.c.run == run, EVENT.c.number > last))
        connection.execute(sa.update(RUN).where(RUN.c.run == run).values(before))

    database = Database(read_url(url))
    await database.write(work)
    await database.close()
