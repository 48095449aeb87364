"""Plays the pick-a-card tool in this terminal: the work of ``anabranch demo``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import cast

from mcp import Client, StdioServerParameters, stdio_client

from anabranch._asking import Sampler
from anabranch._terminal import Answers, Console, Respondent
from anabranch.cli._call_trace import CallTrace, traced
from anabranch.cli._calling import find_tool, invoke, value_of
from anabranch.cli._connection import open_session, server_of
from anabranch.cli._demo_tool import PickCard, analyze
from anabranch.cli._options import Era
from anabranch.models import ScriptedModel

TARGET = "anabranch.cli._demo_tool"
WHAT_HAPPENED = """
In short: the function waited at each question, and the server sent the question to this client.
"""
WHAT_HAPPENED_IN_ROUNDS = (
    "\nIn short: at each question the server discarded the function and forgot the call. The next"
    " request brought the answer, and a sealed record of the cards and of the earlier answers. The"
    " function ran again to the same line, with the recorded values. The tool drew the cards once.\n"
)
NEXT = """Next:
  anabranch demo --era handshake       the same, for clients before 2026-07-28
  anabranch web                        the same game in a browser (extra chat)
  anabranch call FILE TOOL name=value  your own tool; the README has one
"""
ARGUMENTS: dict[str, object] = {"count": 5, "analyze": True}
MODEL_SAYS = "The third one has a lucky look about it. But I am a script; I say that every time."
PERSON_PICKS = {"accept": {"cardNumber": 3}}


async def demo(
    console: Console, *, era: Era, sampler: Sampler | None, answers: Answers | None
) -> object:
    if answers is None and not console.interactive:
        console.say("There is no terminal to ask at: a script gives the user's answers.")
        answers = Answers([PERSON_PICKS])
    if sampler is None and not (answers is not None and answers.samples):
        console.say("No model is configured: the model's answers are scripted.")
        sampler = ScriptedModel([{"text": MODEL_SAYS, "repeat": True}])
    respondent = Respondent(console, sampler=sampler, answers=answers)
    command = cast("StdioServerParameters", server_of(TARGET))
    source = ToolSource(PickCard.client, analyze)
    console.say("The source of the tool:\n")
    console.say(f"{source.text}\n")
    console.say(f"$ {' '.join(['python', *command.args])}")

    async def act(client: Client) -> object:
        console.say(f"Connected to a server process, protocol {client.protocol_version}.")
        tool = await find_tool(client, TARGET, "pick_card")
        return value_of(await invoke(client, era, tool.name, ARGUMENTS, respondent), tool)

    transport = traced(stdio_client(command), CallTrace(console.say, source.place_of))
    try:
        outcome = await open_session(TARGET, transport, respondent, act, era=era)
    finally:
        respondent.report_left()
    console.say(WHAT_HAPPENED if era == "handshake" else WHAT_HAPPENED_IN_ROUNDS)
    console.say(NEXT)
    return outcome


class ToolSource:
    def __init__(self, *functions: Callable[..., object]) -> None:
        self._lines: dict[int, str] = {}
        for function in functions:
            lines, first = inspect.getsourcelines(function)
            self._lines |= dict(enumerate(map(str.rstrip, lines), first))

    @property
    def text(self) -> str:
        shown: list[str] = []
        for number in sorted(self._lines):
            if shown and number - 1 not in self._lines:
                shown.append("")
            shown.append(f"{number:4}  {self._lines[number]}".rstrip())
        return "\n".join(shown)

    def place_of(self, step_id: str) -> str:
        call = "ctx.sample(" if step_id.rpartition("/")[2].startswith("sample") else "ctx.elicit("
        number, line = next(each for each in self._lines.items() if call in each[1])
        return f"at line {number}: {line.strip()}"
