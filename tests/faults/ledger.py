"""A ledger of the effects that really happened, independent of the store, and of the planned deaths.

The harness and all workers share one folder. A process appends a line with one ``write``, so the
line is complete or absent even if the process dies; SIGKILL does not remove data from a file.
"""

import json
import os
import signal
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["step", "seen", "undo", "undone", "away", "back"]
HAPPENS: tuple[Kind, ...] = ("step", "undo")
MARKS: tuple[Kind, ...] = ("away", "back")


@dataclass(frozen=True, slots=True)
class Line:
    """An event: an effect happened (``step``), the tool saw its value, or an undo ran.

    ``undone`` means that the store has recorded the undo. From ``away`` to ``back``, the process
    ``pid`` was out of reach: it was suspended, or its database was.
    """

    kind: Kind
    run: str
    number: int
    key: str
    pid: int

    @property
    def call(self) -> str:
        return self.key.partition(":")[0]

    @property
    def strand(self) -> str:
        """Return the sequential part of the call: the call itself, or one of its branches."""
        return self.key.rpartition("/")[0]


class Ledger:
    """The shared folder with the ledger."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines = folder / "lines"
        self._arms = folder / "arms"
        self._arms.mkdir(exist_ok=True)

    def write(self, kind: Kind, run: str, number: int, key: str) -> None:
        self._append(Line(kind, run, number, key, os.getpid()))

    def mark(self, kind: Literal["away", "back"], pids: Iterable[int]) -> None:
        """Write that processes are out of reach from now on (``away``), or no longer (``back``)."""
        for pid in pids:
            self._append(Line(kind, "", 0, "", pid))

    def _append(self, line: Line) -> None:
        text = json.dumps(asdict(line)) + "\n"
        descriptor = os.open(self._lines, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def read(self) -> list[Line]:
        if not self._lines.exists():
            return []
        return [Line(**json.loads(text)) for text in self._lines.read_text().splitlines()]

    def length(self) -> int:
        return self._lines.read_bytes().count(b"\n") if self._lines.exists() else 0

    def arm(self, run: str, point: str) -> None:
        """Plan the death of the first process that reaches ``point`` of ``run``."""
        (self._arms / f"{run}@{point}").touch()

    def die_at(self, run: str, point: str) -> None:
        """Kill this process if its death here is planned; of two processes, only one dies."""
        try:
            (self._arms / f"{run}@{point}").unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def armed(self) -> set[str]:
        """Return the planned points that no worker has reached."""
        return {path.name for path in self._arms.iterdir()}
