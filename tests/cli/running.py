"""Commands that run in this process."""

import json
import sys
from typing import Any, NamedTuple

import pytest

from anabranch.cli import main


class Ended(NamedTuple):
    status: int
    out: str
    err: str


class Run:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ended:
        self._capsys.readouterr()
        status = main(arguments)
        return Ended(status, *self._capsys.readouterr())

    def value(self, *arguments: str) -> Any:
        """Return the JSON that a command prints, and check that it prints nothing else."""
        status, out, err = self(*arguments)
        assert (status, err) == (0, "")
        return json.loads(out) if out else None

    def refusal(self, *arguments: str) -> str:
        """Return the one line in which a command refuses its arguments as wrong usage."""
        status, out, err = self(*arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        return err

    def at_terminal(self, *arguments: str) -> Ended:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
            return self(*arguments)
