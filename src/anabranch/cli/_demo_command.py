"""``anabranch demo``: the pick-a-card tool in a server process of its own, played from here.

Owns the staging: what is told of the messages, and who stands in where there is no model or no
person. The tool is ``demo_tool.py``, and it is served like any other.
"""

from __future__ import annotations

from typing import cast

from mcp import Client, StdioServerParameters, stdio_client

from anabranch._asking.sampling import Sampler
from anabranch._terminal.answer_file import Answers
from anabranch._terminal.console import Console
from anabranch._terminal.respondent import Respondent
from anabranch.cli._call_command import Wish, choose_tool, invoke, value_of
from anabranch.cli._connection import Era, server_of, talk
from anabranch.cli._story import Story, watched
from anabranch.models import ScriptedModel

__all__ = ["demo"]

TARGET = "anabranch.cli._demo_tool"
ARGUMENTS: dict[str, object] = {"count": 5, "analyze": True}
MODEL_SAYS = "The third one has a lucky look about it. But I am a script; I say that every time."
PERSON_PICKS = {"accept": {"cardNumber": 3}}


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
        tool = await choose_tool(client, Wish(TARGET, "pick_card"))
        return value_of(await invoke(client, era, tool.name, ARGUMENTS, respondent), tool)

    transport = watched(stdio_client(command), Story(console.say))
    try:
        return await talk(TARGET, transport, respondent, act, era=era)
    finally:
        respondent.report_left()
