"""The stages on which calls are disturbed: MCP servers, or a chat whose runs workers take."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import httpx2

from tests.faults import errand, journey
from tests.faults.client import Client, Way
from tests.faults.journey import Settings
from tests.faults.user import User


class Player(Protocol):
    repeated: int

    async def play(
        self, way: Way, arguments: dict[str, Any], *, leave_at: int | None = None
    ) -> dict[str, Any] | None:
        """Answer all questions and return the result, or leave at question ``leave_at``, counted from 0."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a process: the error of its clock, and its line to the store.

    Attributes:
        ahead: 1 if its clock is ahead, -1 if it is behind.
        line: number of the line that can be cut; ``None`` for a direct connection.
    """

    ahead: int = 0
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """Processes, and the client that performs calls on them.

    Attributes:
        work: the main function of each process.
        places: one place for each process.
        fronts: number of processes, from the first, that clients reach; the others take runs.
        client: performs a call; takes a name, the address, and connections.
        steps: number of steps of a call.
        least_lines: minimum number of ledger lines of a run.
        restart: how the database is stopped. A crash may lose the last events of a chat, since no
            commit of an event waits for the disk. A crash loses no effects of calls.
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
    client=User,
    steps=errand.STEPS,
    least_lines=2 * errand.STEPS,
    restart="fast",
)
