"""ADK's adapter loses a message before the session has it; run with a ``model`` of ADK's."""

import asyncio

from google.adk.agents import Agent
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai.types import Content, Part
from tools import TOOLS

from anabranch.adapters.google_adk import answer, as_tool, questions
from anabranch.rounds import Rounds

WHERE = {"user_id": "ann", "session_id": "1"}


async def check(model):
    rounds = Rounds(keys=["a key of the tests, which is long enough"])
    agent = Agent(name="agent", model=model, tools=[as_tool(TOOLS["pay"], rounds)])
    service = InMemorySessionService()
    await service.create_session(app_name="app", **WHERE)
    runner = Runner(app_name="app", agent=agent, session_service=service)

    async def run(message):
        async for _ in runner.run_async(**WHERE, new_message=message):
            pass

    async def answered(answers):
        session = await service.get_session(app_name="app", **WHERE)
        message = await answer(service, session, agent.tools, answers)
        return message, questions(session), [name for name in session.state if session.state[name]]

    await run(Content(role="user", parts=[Part(text="Go.")]))
    accepted = {"pay/url.1": {"action": "accept"}}
    assert (await answered({"call-0": accepted}))[0] is None
    lost, asked, _ = await answered({"call-1": accepted})
    message, _, stored = await answered({})
    assert not asked
    assert len(message.parts) == len(stored) == 2
    assert message == lost
    await run(message)
    assert {response["result"] for response in model.read.values()} == {"accept"}
    assert await answered({}) == (None, {}, [])


asyncio.run(check(model))  # noqa: F821 - given to it
