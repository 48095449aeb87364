"""The session: takes lines of input, carries them out on the tree, and returns the output.

A line that fails returns an error as its output, and leaves the session and the tree intact. The
cursor follows the nodes that the session adds, to the end of a turn or to its interruption.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from anabranch._aio import run_shielded
from anabranch.chat._commands.command import Outputs, unknown_command
from anabranch.chat._commands.command_table import COMMANDS
from anabranch.chat._commands.conversation_commands import call, say
from anabranch.chat._session.session_cursor import SessionCursor
from anabranch.chat._session.session_dependencies import SessionDependencies, SessionSettings
from anabranch.chat._session.session_output import EXPECTED, Output, SessionError, error_text
from anabranch.chat._session.session_state import SessionState
from anabranch.chat._session.typed_values import read_line

logger: logging.Logger = logging.getLogger("anabranch.chat")


class Session:
    """A conversation that a user leads, line by line.

    Args:
        dependencies: the session's store, model, tools and other surroundings.
        thread_id: the first thread; the first message creates a thread that does not exist. By
            default, a new thread.

    Attributes:
        state: the state that the commands read and change.
    """

    def __init__(self, dependencies: SessionDependencies, *, thread_id: str | None = None) -> None:
        self.state: SessionState = SessionState(dependencies, thread_id)

    @property
    def cursor(self) -> SessionCursor:
        """The place that the next message follows."""
        return self.state.cursor

    @property
    def settings(self) -> SessionSettings:
        """The present settings."""
        return self.state.settings

    async def start(self) -> list[Output]:
        """Go to the head of the thread, and return the text there.

        Raises:
            StoreError: if the store fails.
        """
        outputs = await self.cursor.open(self.cursor.thread_id)
        self.cursor.clear_history()
        return outputs

    async def input(self, line: str) -> list[Output]:
        """Carry out a line, and return its output, errors included.

        If the caller cancels, the session stores the reply received so far, and moves the cursor to
        its end.
        """
        read = read_line(line, self._accepts)
        steps: list[Callable[[], Awaitable[Outputs]]] = []
        if read.message is not None:
            steps.append(partial(say, self.state, read.message))
        if read.command is not None:
            steps.append(partial(self._command, read.command, read.rest, line.strip()))
        return await self._carry_out(steps)

    async def _carry_out(self, steps: Iterable[Callable[[], Awaitable[Outputs]]]) -> list[Output]:
        outputs: list[Output] = []
        for step in steps:
            try:
                outputs += await self._run(step)
            except Exception as error:  # noqa: BLE001 - a failed line must not end the session
                outputs.append(Output("error", _message(error)))
                break
        return outputs

    async def say(self, text: str) -> list[Output]:
        """Send ``text`` unchanged, even if it starts with a slash; otherwise like :meth:`input`."""
        return await self._carry_out([partial(say, self.state, text)])

    async def _run(self, step: Callable[[], Awaitable[Outputs]]) -> list[Output]:
        try:
            outputs = await step()
        finally:
            await run_shielded(self.state.settle())
        return outputs if isinstance(outputs, list) else [outputs]

    def _accepts(self, name: str, rest: str) -> bool:
        command = COMMANDS.get(name)
        return command.accepts(rest) if command is not None else name in self.state.agent.tools

    async def _command(self, name: str, rest: str, line: str) -> Outputs:
        command = COMMANDS.get(name)
        if command is not None:
            return await command.run(self.state, *command.arguments(rest))
        tools = self.state.agent.tools
        if name in tools:
            return await call(self.state, name, rest)
        if line == f"/{name}" or "/" not in name:
            raise unknown_command(name, [*COMMANDS, *tools])
        raise SessionError(
            f'Unknown command /{name}. To send text that starts with "/", type "//".'
        )


def _message(error: Exception) -> str:
    """Return the text that the user sees for an error, and log an unexpected error."""
    if not isinstance(error, EXPECTED):
        logger.error("a line of input has failed", exc_info=error)
    return error_text(error)
