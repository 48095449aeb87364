"""The person in a chat, who answers the questions of tools.

Owns the choice between the forms at the terminal and the lines of a script, and that questions of
branches wait for each other: a terminal has room for one, and a line answers what was asked last.
Where a script does not answer, and nobody is at a terminal, a question is declined, and stderr says
so.
"""

from __future__ import annotations

import json

import anyio

from anabranch._asking.answerer import Absent, AnswerError
from anabranch._terminal.console import Console
from anabranch._terminal.respondent import Respondent
from anabranch.agents._ports import Question
from anabranch.chat._session import SessionError
from anabranch.chat._session.talking_commands import read_answer
from anabranch.chat._terminal.lines import Lines, ScriptedLines
from anabranch.messages import ElicitReply

__all__ = ["ChatPerson"]


class ChatPerson(Absent):
    """Answers the questions of tools in a chat.

    Args:
        console: where questions are shown.
        respondent: the forms.
        lines: a script may answer the question that comes up with its next line.
    """

    def __init__(self, console: Console, respondent: Respondent, lines: Lines) -> None:
        self._console = console
        self._respondent = respondent
        self._lines = lines
        self._turn = anyio.Lock()

    async def elicit(self, question: Question, /, *, step_id: str) -> ElicitReply:
        """Show a form, or take the script's next line."""
        del step_id
        if isinstance(self._lines, ScriptedLines):
            async with self._turn:
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
                "Declined: there is no terminal to ask at, and the next line is no /answer."
            )
            return ElicitReply(action="decline")
        try:
            reply = read_answer(question, typed)
        except SessionError as error:
            self._console.say(f"Declined: {error}")
            return ElicitReply(action="decline")
        given = "" if reply.content is None else f" {json.dumps(reply.content)}"
        self._console.say(f"> {reply.action}{given}")
        return reply
