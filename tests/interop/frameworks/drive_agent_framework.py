"""An agent of Microsoft's Agent Framework, with a scripted client."""

import json
import logging

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)
from playing import call_ids, play, raised
from tools import TOOLS

from anabranch.adapters.agent_framework import answer, as_tool, questions, results

logging.disable(logging.ERROR)  # each question, as a failure of its function


class Scripted(FunctionInvocationLayer, BaseChatClient):
    def __init__(self, script):
        super().__init__()
        self.script = script
        self.read = {}

    async def _inner_get_response(self, *, messages, stream, options, **_):
        contents = [content for message in messages for content in message.contents]
        for each in contents:
            if each.type == "function_result":
                self.read[each.call_id] = each.result
        reply = ["done"]
        if not self.read:
            calls = zip(call_ids(self.script), self.script["calls"], strict=True)
            reply = [
                Content.from_function_call(i, c["name"], arguments=json.dumps(c["arguments"]))
                for i, c in calls
            ]
        return ChatResponse(messages=[Message("assistant", reply)], response_id="scripted")


async def drive(script, rounds):
    client = Scripted(script)
    tools = [as_tool(t, rounds, principal=lambda _: script["principal"]) for t in TOOLS.values()]
    agent = Agent(client, tools=tools)
    message, requests = "Go.", []
    session = agent.create_session(session_id=script["conversation"])
    if script["snapshot"]:
        stored, held = script["snapshot"]
        session = AgentSession.from_dict(stored)
        given = [Content.from_dict(each) for each in held]
        try:
            requests = await answer(given, tools, script["answers"], principal=script["principal"])
        except Exception as error:  # noqa: BLE001 - it is reported
            return raised(error, [stored, [each.to_dict() for each in given]])
        message = results(requests)
    if message is not None:
        requests = (await agent.run(message, session=session)).user_input_requests
    asked = questions(requests)
    snapshot = [session.to_dict(), [each.to_dict() for each in requests]] if asked else None
    return {"asked": asked, "snapshot": snapshot, "results": client.read, "notices": []}


play(drive, Scripted)
