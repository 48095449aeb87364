"""Where calls are disturbed: on servers of MCP, or in a chat whose runs workers take."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import httpx2

from tests.faults import errand, journey
from tests.faults.client import Client, Way
from tests.faults.journey import Settings
from tests.faults.person import Person


class Player(Protocol):
    repeated: int

    async def play(
        self, way: Way, arguments: dict[str, Any], *, leave_at: int | None = None
    ) -> dict[str, Any] | None:
        """Answer all questions and return the result; or leave at a question, the first being 0."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process is: on which side its clock is wrong, and by which way it reaches the store.

    Attributes:
        ahead: 1 if its clock is ahead, -1 if it is behind.
        line: the number of the way that can be cut, ``None`` for one that cannot.
    """

    ahead: int = 0
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """Processes, and who plays calls before them.

    Attributes:
        work: the main function of each.
        places: one for each.
        fronts: how many of them are reached from outside, the first ones; the others take runs.
        client: plays a call: its name, the address, and connections.
        steps: how many a call has.
        least_lines: what any run writes into the ledger, at least.
        restart: how the database is stopped. In a crash the last events of a chat may be lost, for
            which no one waits; what calls have done is not.
    """

    work: Callable[[Settings, socket.socket], None]
    places: Sequence[Place]
    fronts: int
    client: Callable[[str, str, httpx2.AsyncClient], Player]
    steps: int
    least_lines: int
    restart: Literal["immediate", "fast"]


OVER_MCP = Stage(
    journey.serve,
    places=(Place(-1, 0), Place(line=1), Place(), Place(1)),
    fronts=4,
    client=Client,
    steps=journey.STEPS,
    least_lines=32,
    restart="immediate",
)
IN_CHAT = Stage(
    errand.serve,
    places=(Place(-1, 0), Place(1), Place(-1, 1), Place(), Place(), Place(1)),
    fronts=2,
    client=Person,
    steps=errand.STEPS,
    least_lines=2 * errand.STEPS,
    restart="fast",
)
