"""Reads the lines of a chat, and answers to questions, from a user, a script or a pipe."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TextIO

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output

from anabranch._asking import Absent, AnswerError, Capabilities
from anabranch._terminal import Console, LeftError, Respondent, UsageError, signals_restored
from anabranch._text import decoded, json_line, printable, printable_line
from anabranch.agents import Question
from anabranch.chat._terminal.session_output import SessionError
from anabranch.chat._terminal.typed_input import read_answer
from anabranch.messages import ElicitReply, SampleReply, SampleRequest

ANSWER = "/answer"


class InputLines(Protocol):
    """A source of the lines of a chat."""

    async def next(self, prompt: str) -> str | None:
        """Return the next line, ``None`` after the last; raise ``LeftError`` after Ctrl-C."""
        ...


class _FileHistory(FileHistory):
    """A history in a file that only its user can read; in memory alone if the file fails."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)

    def load_history_strings(self) -> Iterable[str]:
        try:
            return super().load_history_strings()
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)


class TypedLines:
    status = ""
    """The line below the prompt."""

    def __init__(self, stream: TextIO, history: Path | None) -> None:
        store = InMemoryHistory() if history is None else _FileHistory(history)
        self._prompts: PromptSession[str] = PromptSession(
            history=store,
            complete_while_typing=False,
            key_bindings=_line_breaks(),
            bottom_toolbar=lambda: printable_line(self.status),
            output=create_output(stdout=stream),
        )

    def complete_by(self, completer: Completer) -> None:
        self._prompts.completer = completer

    async def next(self, prompt: str) -> str | None:
        line = ""
        while not line.strip():
            try:
                with signals_restored():
                    line = await self._prompts.prompt_async(printable(prompt))
            except EOFError:
                return None
            except KeyboardInterrupt:  # the history keeps the typed text
                draft = self._prompts.default_buffer.text
                if draft.strip():
                    self._prompts.history.append_string(draft)
                raise LeftError from None
        return line


class ScriptedLines:
    """The lines of a script or pipe; ``None`` ends the queue ``more`` of further lines."""

    def __init__(
        self, lines: Iterable[str] = (), more: asyncio.Queue[str | None] | None = None
    ) -> None:
        self._lines = deque(lines)
        self._more = more

    async def next(self, prompt: str) -> str | None:
        del prompt
        while (line := await self._peek()) is not None:
            self._lines.popleft()
            if line.strip():
                return line
        return None

    async def answer(self) -> str | None:
        """Return the text after ``/answer`` if the next line has one; leave any other line."""
        line = await self._peek()
        words = line.split(maxsplit=1) if line is not None else []
        if not words or words[0] != ANSWER:
            return None
        self._lines.popleft()
        return "".join(words[1:])

    async def _peek(self) -> str | None:
        if not self._lines and self._more is not None:
            line = await self._more.get()
            if line is None:
                self._more = None
            else:
                self._lines.append(line)
        return self._lines[0] if self._lines else None


def read_script(path: Path) -> ScriptedLines:
    try:
        return ScriptedLines(decoded(path.read_bytes()).splitlines())
    except OSError as error:
        raise UsageError(f"Cannot read the script {path}: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise UsageError(f"The script {path} is not text in UTF-8.") from None


def piped_lines(descriptor: int) -> ScriptedLines:
    """Return the lines of a file descriptor, each read on demand, in a daemon thread.

    Only a thread can wait for a pipe, a file and a device alike, and the program can exit
    meanwhile.
    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue(1)

    def read() -> None:
        # A separate, unbuffered stream: the lock of sys.stdin, held here, would block the exit.
        with os.fdopen(os.dup(descriptor), "rb", buffering=0) as stream:
            for line in iter(stream.readline, b""):
                if not has_put(line.decode("utf-8", "replace").rstrip("\r\n")):
                    return
            has_put(None)

    def has_put(line: str | None) -> bool:
        putting = lines.put(line)
        try:
            taken = asyncio.run_coroutine_threadsafe(putting, loop)
            while not loop.is_closed():  # a loop that closes drops work that it has not begun
                with suppress(TimeoutError):
                    taken.result(1.0)
                    return True
        except CancelledError:
            pass
        except RuntimeError:
            if not loop.is_closed():
                raise
        putting.close()
        return False

    threading.Thread(target=read, name="anabranch chat input", daemon=True).start()
    return ScriptedLines(more=lines)


def _line_breaks() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def insert(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


class ChatAnswerer(Absent):
    """Answers the questions of tools by the user, or by the next of a script's ``lines``."""

    def __init__(
        self,
        console: Console,
        respondent: Respondent,
        lines: InputLines,
        place_of: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        self._console = console
        self._place_of = place_of
        self._respondent = respondent
        self._lines = lines
        self._lock = anyio.Lock()
        able = respondent.capabilities
        scripted = isinstance(lines, ScriptedLines)
        self.capabilities: Capabilities = replace(able, sampling=able.sampling and not scripted)

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        return await self._respondent.sample(request, step_id=step_id)

    async def elicit(self, question: Question, /, *, step_id: str) -> ElicitReply:
        if self._place_of is not None and (place := await self._place_of(step_id)):
            question = question.model_copy(update={"message": f"[{place}] {question.message}"})
        if isinstance(self._lines, ScriptedLines):
            async with self._lock:  # a script's line answers the question before it
                return await self._from_script(self._lines, question)
        try:
            return await self._respondent.elicit(question)
        except AnswerError as error:
            self._console.say(f"The question is cancelled: {error}.")
            return ElicitReply(action="cancel")

    async def _from_script(self, lines: ScriptedLines, question: Question) -> ElicitReply:
        self._console.say(f"? {question.message}")
        typed = await lines.answer()
        if typed is None:
            self._console.say(
                "Declined: there is no terminal to ask at, and the next line is not /answer."
            )
            return ElicitReply(action="decline")
        try:
            reply = read_answer(question, typed)
        except SessionError as error:
            self._console.say(f"Declined: {error}")
            return ElicitReply(action="decline")
        given = "" if reply.content is None else f" {json_line(reply.content)}"
        self._console.say(f"> {reply.action}{given}")
        return reply
