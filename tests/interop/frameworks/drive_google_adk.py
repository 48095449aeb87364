"""An agent of Google's ADK, with a scripted model, and sessions in a file."""

import tempfile
from pathlib import Path

from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai.types import Content, FunctionCall, Part
from playing import call_ids, play, raised
from tools import TOOLS

from anabranch.adapters.google_adk import answer, as_tool, questions


class Scripted(BaseLlm):
    script: dict
    read: dict = {}

    async def generate_content_async(self, llm_request, stream=False):
        parts = [part for content in llm_request.contents for part in content.parts]
        responses = [part.function_response for part in parts if part.function_response]
        self.read.update({each.id: each.response for each in responses})
        reply = [Part(text="done")]
        if not responses:
            calls = zip(call_ids(self.script), self.script["calls"], strict=True)
            reply = [
                Part(function_call=FunctionCall(id=i, name=c["name"], args=c["arguments"]))
                for i, c in calls
            ]
        yield LlmResponse(content=Content(role="model", parts=reply))


async def drive(script, rounds):
    path = Path(tempfile.mkdtemp(), "sessions.db")
    where = {"user_id": "user", "session_id": script["conversation"]}
    model = Scripted(model="scripted", script=script, read={})
    caller = {"principal": lambda _: script["principal"]}
    tools = [as_tool(each, rounds, **caller) for each in TOOLS.values()]
    agent = Agent(name="agent", model=model, tools=tools)
    message = Content(role="user", parts=[Part(text="Go.")])
    if script["snapshot"]:
        path.write_bytes(script["snapshot"].encode("latin-1"))
    service = SqliteSessionService(str(path))
    if script["snapshot"]:
        session = await service.get_session(app_name="app", **where)
        try:
            message = await answer(service, session, agent.tools, script["answers"], **caller)
        except Exception as error:  # noqa: BLE001 - it is reported
            return raised(error, path.read_bytes().decode("latin-1"))
    else:
        await service.create_session(app_name="app", **where)
    if message is not None:
        runner = Runner(app_name="app", agent=agent, session_service=service)
        async for _ in runner.run_async(**where, new_message=message):
            pass
    asked = questions(await service.get_session(app_name="app", **where))
    results = {name: response.get("result") for name, response in model.read.items()}
    snapshot = path.read_bytes().decode("latin-1") if asked else None
    return {"asked": asked, "snapshot": snapshot, "results": results, "notices": []}


play(drive, lambda script: Scripted(model="scripted", script=script, read={}))
