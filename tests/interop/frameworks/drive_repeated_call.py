"""A middleware of Agent Framework repeats a first round; run with a ``model`` of the framework's."""

import asyncio
import os
import tempfile
from pathlib import Path

from agent_framework import Agent, UserInputRequiredException, function_middleware
from tools import TOOLS, effects

from anabranch.adapters.agent_framework import as_tool, questions
from anabranch.rounds import Rounds

os.environ["EFFECTS"] = str(Path(tempfile.mkdtemp(), "effects"))


@function_middleware
async def repeat(context, call_next):
    try:
        await call_next()
    except UserInputRequiredException:
        await call_next()


async def check(model):
    rounds = Rounds(keys=["a key of the tests, which is long enough"], store="memory:")
    agent = Agent(model, tools=[as_tool(TOOLS["book"], rounds)], middleware=[repeat])
    for times in (1, 2):  # in two sessions, whose calls have the same ids
        result = await agent.run("Go.", session=agent.create_session())
        assert questions(result.user_input_requests).keys() == {"call-0"}
        assert effects() == ["search Rome"] * times


asyncio.run(check(model))  # noqa: F821 - given to it
