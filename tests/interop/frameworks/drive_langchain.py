"""An agent of LangChain, with a scripted model, and the checkpoints of LangGraph in a file."""

import tempfile
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from playing import SAMPLED, call_ids, play, raised
from tools import TOOLS

from anabranch.adapters.langchain import as_tool, questions


class Scripted(BaseChatModel):
    script: dict

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        reply = AIMessage("done")
        if messages[-1].text == "An umbrella?":
            reply = AIMessage(SAMPLED)
        elif not any(isinstance(each, ToolMessage) for each in messages):
            calls = zip(call_ids(self.script), self.script["calls"], strict=True)
            used = [{"name": c["name"], "args": c["arguments"], "id": i} for i, c in calls]
            reply = AIMessage("", tool_calls=used)
        return ChatResult(generations=[ChatGeneration(message=reply)])


async def drive(script, rounds):
    config = {"configurable": {"thread_id": script["conversation"]}}
    notices, names = [], {}
    model = Scripted(script=script)
    shared = {"model": model, "principal": lambda _: script["principal"]}
    tools = [as_tool(each, rounds, **shared) for each in TOOLS.values()]
    given, path = {"messages": ["Go."]}, Path(tempfile.mkdtemp(), "checkpoints.db")
    if script["snapshot"]:
        database, names = script["snapshot"]
        path.write_bytes(database.encode("latin-1"))
        # An interrupt without an answer stays open; one whose tool has slept is resumed without a
        # value.
        answers = script["answers"] or {call: {} for call in names}
        given = Command(resume={names[call]: answers[call] for call in answers})
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        agent = create_agent(model, tools, checkpointer=saver)
        failure = None
        try:
            async for part in agent.astream(given, config, stream_mode="custom"):
                notices.append(part["anabranch_notice"]["message"])
        except Exception as error:  # noqa: BLE001 - it is reported
            failure = error
        state = await agent.aget_state(config)
        await saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    found = questions(state.interrupts)
    asked = {value["call_id"]: value for value in found.values()}
    names = {value["call_id"]: key for key, value in found.items()}
    if failure:
        return raised(failure, [path.read_bytes().decode("latin-1"), names])
    if not asked:
        messages = state.values["messages"]
        read = {
            each.tool_call_id: each.content for each in messages if isinstance(each, ToolMessage)
        }
        return {"asked": {}, "snapshot": None, "results": read, "notices": notices}
    snapshot = [path.read_bytes().decode("latin-1"), names]
    return {"asked": asked, "snapshot": snapshot, "results": {}, "notices": notices}


play(drive, lambda script: Scripted(script=script))
