"""The loop of a chat at the terminal: reads a line, carries it out, and shows its output.

Ctrl-C during a turn stops the turn, and the session stores the reply received so far. At the prompt and
in a script, Ctrl-C ends the program.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio

from anabranch._terminal import Console, LeftError, on_interrupt
from anabranch.chat._chat_session import Session
from anabranch.chat._session.session_output import SessionError
from anabranch.chat._terminal_session.chat_screen import ChatScreen
from anabranch.chat._terminal_session.completions import LineCompleter, candidates
from anabranch.chat._terminal_session.input_lines import (
    InputLines,
    ScriptedLines,
    TypedLines,
)
from anabranch.chat._terminal_session.replies import status_line
from anabranch.errors import StoreError

STOPPED = "Stopped by you. The received part is stored."


async def run_lines(
    session: Session,
    screen: ChatScreen,
    lines: InputLines,
    console: Console,
    command: Callable[[str], str | None] = "anabranch chat --thread {}".format,
) -> int:
    """Carry out all lines; return the number of lines that failed.

    Args:
        session: carries them out.
        screen: shows the session.
        lines: the lines.
        console: shows notices about the conversation.
        command: returns the command that continues a thread, if there is one.

    Raises:
        LeftError: if the user pressed Ctrl-C.
    """
    if isinstance(lines, TypedLines):
        lines.complete_by(LineCompleter(partial(candidates, session)))
    try:
        failed = await _carry_out(session, screen, lines, console)
    except LeftError:
        await _say_how_to_go_on(session, console, command)
        raise
    await _say_how_to_go_on(session, console, command)
    return failed


async def _carry_out(
    session: Session, screen: ChatScreen, lines: InputLines, console: Console
) -> int:
    """Carry out all lines; return the number of lines that failed."""
    failed = 0
    while (line := await _next(session, lines)) is not None:
        if isinstance(lines, ScriptedLines):
            console.say(f"> {line}")
        outputs = None
        with anyio.CancelScope() as turn, on_interrupt(turn.cancel), screen.turn():
            outputs = await session.input(line)
        if outputs is None:
            screen.end_line()
            console.say(STOPPED)
            await _show_open_question(session, console)
            if isinstance(lines, ScriptedLines):
                raise LeftError
            continue
        screen.show(outputs)
        failed += any(output.type == "error" for output in outputs)
        if any(output.action == "exit" for output in outputs):
            break
    return failed


async def _show_open_question(session: Session, console: Console) -> None:
    """Tell the user how to continue from the question at which a turn stopped, if it did."""
    # The next line reports a failure here, if the failure persists.
    with suppress(StoreError, SessionError):
        node = await session.cursor.node()
        if node is not None and node.kind == "question":
            console.say((await session.cursor.here())[-1].content)


async def _say_how_to_go_on(
    session: Session, console: Console, command: Callable[[str], str | None]
) -> None:
    thread_id = session.cursor.thread_id
    again = command(thread_id)
    if again and await session.state.dependencies.store.thread(thread_id) is not None:
        console.say(f"To continue: {again}")


async def _next(session: Session, lines: InputLines) -> str | None:
    if isinstance(lines, TypedLines):
        lines.status = await status_line(session)
    return await lines.next(await _prompt(session, lines))


async def _prompt(session: Session, lines: InputLines) -> str:
    """Return the text before the line: the name of the cursor's branch, if it has one."""
    if isinstance(lines, ScriptedLines) or session.cursor.node_id is None:
        return "> "
    try:
        walk = await session.cursor.look()
    except StoreError:  # the next line reports it, if the store still fails then
        return "> "
    branch = walk.branch_of(session.cursor.node_id) if walk is not None else None
    return f"{branch or ''}> "
