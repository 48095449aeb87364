"""The loop of a chat at the terminal whose server is elsewhere: each line is said there.

Ctrl-C during a turn stops the turn at the server; at the prompt, and in a script, it ends the program.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
from ag_ui.core import Event

from anabranch._terminal.console import Console
from anabranch._terminal.exits import LeftError
from anabranch._terminal.interrupts import on_interrupt
from anabranch.chat._client.chat_client import ChatClient
from anabranch.chat._client.chat_reply import ChatClientError
from anabranch.chat._terminal_session.input_lines import InputLines, ScriptedLines, TypedLines
from anabranch.chat._terminal_session.remote_screen import STOPPED, RemoteScreen

LEAVING = ("/quit", "/exit")
UNKNOWN = 404


class RemoteLines:
    """Says lines in one thread.

    Args:
        client: leads the conversation; its questions are answered at the terminal.
        thread_id: the thread.
        lines: what is said.
        console: for everything but the conversation.
        screen: shows what the server sends.
    """

    def __init__(
        self,
        client: ChatClient,
        thread_id: str,
        lines: InputLines,
        console: Console,
        screen: RemoteScreen,
    ) -> None:
        self._client = client
        self._thread_id = thread_id
        self._lines = lines
        self._console = console
        self._screen = screen
        self._come_back: float | None = None
        """In how many seconds the server wants to be sent again what it has just refused."""

    async def run(self, *, answers_first: bool) -> int:
        """Say all lines; return the number of lines that have failed.

        Args:
            answers_first: whether questions are asked first that are open in the thread, if there
                is one; if none is, its last reply is shown.

        Raises:
            LeftError: the person has left by Ctrl-C.
        """
        failed = 0
        if answers_first:
            await self._follow(self._where_it_is(), begins=True)
        while (line := await self._lines.next("> ")) is not None:
            if isinstance(self._lines, ScriptedLines):
                self._console.say(f"> {line}")
            if line.strip() in LEAVING:
                break
            failed += not await self._say(line)
        return failed

    async def _where_it_is(self) -> AsyncGenerator[Event]:
        """Yield what happens in the thread by itself and after answers; if nothing does, show its end."""
        happens = False
        async with aclosing(self._client.stream_answers(self._thread_id)) as events:
            async for event in events:
                happens = True
                yield event
        if not happens:
            self._screen.show_last(await self._client.last(self._thread_id))

    async def _say(self, line: str) -> bool:
        """Say a line; return whether it was carried out.

        Where the server has no room for it just now, it is said once more when the server has asked
        for it. If that is in vain, or the person does not want to wait, it stands at the next prompt.
        """
        is_done = await self._follow(self._client.stream(self._thread_id, line))
        if self._come_back is not None and await self._waited(self._come_back):
            is_done = await self._follow(self._client.stream(self._thread_id, line))
        if self._come_back is not None and isinstance(self._lines, TypedLines):
            self._lines.draft = line
        return is_done

    async def _waited(self, seconds: float) -> bool:
        """Wait, and return whether the person has let that happen.

        Raises:
            LeftError: Ctrl-C was pressed in a script.
        """
        self._console.say(f"It is sent again in {seconds:g} s. Ctrl-C does not wait.")
        with anyio.CancelScope() as waiting, on_interrupt(waiting.cancel):
            await anyio.sleep(seconds)
            return True
        if isinstance(self._lines, ScriptedLines):
            raise LeftError
        return False

    async def _follow(self, events: AsyncGenerator[Event], *, begins: bool = False) -> bool:
        """Show a turn; return whether it was carried out. A thread may have to be begun yet."""
        begun = ended = False
        self._come_back = None
        try:
            with anyio.CancelScope() as reading, on_interrupt(reading.cancel), self._screen.turn():
                async with aclosing(events):
                    async for event in events:
                        begun = True
                        self._screen.show(event)
                ended = True
            if not ended:
                await self._stop()
        except ChatClientError as error:
            self._screen.end_line()
            if not (begins and error.status == UNKNOWN):
                self._console.say(f"error: {error}")
            self._come_back = None if begun else error.retry_after
            return False
        return True

    async def _stop(self) -> None:
        self._screen.end_line()
        if await self._client.stop(self._thread_id):
            self._console.say(STOPPED)
        if isinstance(self._lines, ScriptedLines):
            raise LeftError
