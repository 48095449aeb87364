"""The loss of a run's last events, as a crash of the machine or of the database leaves it."""

import sqlalchemy as sa

from anabranch.stores._database import Database
from anabranch.stores._engines import read_url
from anabranch.stores._event_tables import EVENT, RUN


async def lose_events(url: str, run: str, last: int) -> None:
    """Take what was appended after the event ``last`` from a store, and the memory of it."""
    mark = sa.select(EVENT.c.mark).where(EVENT.c.run == run, EVENT.c.number == last)
    before = {"last": last, "mark": sa.func.coalesce(mark.scalar_subquery(), 0)}

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.delete(EVENT).where(EVENT.c.run == run, EVENT.c.number > last))
        connection.execute(sa.update(RUN).where(RUN.c.run == run).values(before))

    database = Database(read_url(url))
    await database.write(work)
    await database.close()
