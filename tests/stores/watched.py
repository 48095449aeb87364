"""Stores whose database requests a test can observe before they run."""

from typing import Any

from anabranch.stores import CallStore
from anabranch.stores._calls import Calls
from anabranch.stores._database import Database
from anabranch.stores._engines import read_url
from anabranch.stores._trees import Trees
from anabranch.tree import TreeStore


class WatchedDatabase(Database):
    """The connections of one process; a request has the name of the store's method that makes it."""

    def __init__(self, url: str) -> None:
        super().__init__(read_url(url))

    @property
    def stores(self) -> tuple[CallStore, TreeStore]:
        return Calls(self), Trees(self)

    def writes(self, name: str) -> None:
        """Observe the start of a write."""

    async def asked(self, name: str) -> None:
        """Observe a request before it runs."""

    async def write(self, work: Any, *, lasting: bool = True) -> Any:
        self.writes(_name_of(work))
        return await super().write(work, lasting=lasting)

    async def write_single(self, work: Any) -> Any:
        self.writes(_name_of(work))
        return await super().write_single(work)

    async def _do(self, workers: Any, work: Any, *, lasting: bool = True) -> Any:
        await self.asked(_name_of(work))
        return await super()._do(workers, work, lasting=lasting)


def _name_of(work: Any) -> str:
    return str(work.__qualname__).partition(".<locals>")[0]
