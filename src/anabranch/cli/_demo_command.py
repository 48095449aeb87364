"""``anabranch demo``: the pick-a-card tool, served by a process of its own and played from here.

Where there is no model or no person, scripted answers take their place. The tool is
``_demo_tool.py``, which is served like any other.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import cast

import anyio
from mcp import Client, StdioServerParameters, stdio_client

from anabranch._asking.sampling import Sampler
from anabranch._terminal.answer_file import Answers
from anabranch._terminal.console import Console, log_to_stderr
from anabranch._terminal.respondent import Respondent
from anabranch.cli._answering import open_sampler, read_answers
from anabranch.cli._call_command import find_tool, invoke, value_of
from anabranch.cli._call_trace import CallTrace, traced
from anabranch.cli._connection import open_session, server_of
from anabranch.cli._options import AnswersFile, Era, EraOption, Model
from anabranch.cli._output import print_json
from anabranch.models import ScriptedModel

__all__ = ["demo", "demo_command"]

TARGET = "anabranch.cli._demo_tool"
ARGUMENTS: dict[str, object] = {"count": 5, "analyze": True}
MODEL_SAYS = "The third one has a lucky look about it. But I am a script; I say that every time."
PERSON_PICKS = {"accept": {"cardNumber": 3}}


def demo_command(
    *, era: EraOption = "auto", answers: AnswersFile = None, model: Model = None
) -> None:
    """Run the command."""
    log_to_stderr(logging.ERROR)
    sampler, given = open_sampler(model), read_answers(answers)
    print_json(anyio.run(partial(demo, Console(), era=era, sampler=sampler, answers=given)))


async def demo(
    console: Console, *, era: Era, sampler: Sampler | None, answers: Answers | None
) -> object:
    """Play the game and return its outcome.

    Raises:
        CommandError: see the message.
    """
    if answers is None and not console.interactive:
        console.say("There is no terminal to ask at: the person's answers are scripted.")
        answers = Answers([PERSON_PICKS])
    if sampler is None and not (answers is not None and answers.samples):
        console.say("No model is configured: the model's answers are scripted.")
        sampler = ScriptedModel([{"text": MODEL_SAYS, "repeat": True}])
    respondent = Respondent(console, sampler=sampler, answers=answers)
    command = cast("StdioServerParameters", server_of(TARGET))
    console.say(f"$ {' '.join(['python', *command.args])}")

    async def act(client: Client) -> object:
        console.say(f"Connected to a server process, protocol {client.protocol_version}.")
        tool = await find_tool(client, TARGET, "pick_card")
        return value_of(await invoke(client, era, tool.name, ARGUMENTS, respondent), tool)

    transport = traced(stdio_client(command), CallTrace(console.say))
    try:
        return await open_session(TARGET, transport, respondent, act, era=era)
    finally:
        respondent.report_left()
