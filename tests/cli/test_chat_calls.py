"""``anabranch calls replay`` replays a chat's calls with the conversation that they had."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from anabranch.cli import main
from anabranch.stores import open_stores
from tests.cli.running import Run

TOOLS = """
from pydantic import BaseModel
from anabranch import BranchContext, ConcurrentElicitError, Elicitation, tool
from anabranch.chat import make_plugin

class Ok(BaseModel):
    ok: bool

OK = Elicitation("ok", Ok)

@tool
async def recall(ctx: BranchContext) -> str:
    'Ask about what was said before the call.'
    said = [message.text for message in ctx.parent_messages]
    summary = await ctx.sample(f"Of {said}?", system_prompt=ctx.parent_system_prompt)
    return (await ctx.elicit(Ok, f"Is it {said}, in short {summary.text}?")).action

@tool(elicits=[OK])
async def two(ctx: BranchContext) -> str:
    'Ask twice at once.'
    try:
        await ctx.gather(ctx.elicit(OK, "Left?"), ctx.elicit(OK, "Right?"))
    except ConcurrentElicitError:
        return "refused"
    return "asked"

async def handler(request):
    raise NotImplementedError

plugin = make_plugin(two).on(OK, handler).build()
"""
MODEL: list[dict[str, Any]] = [
    {"when": "short", "text": "Brief."},
    {"when": "Of [", "text": "Brief.", "repeat": True},
    {"when": "Recall", "tool_calls": [{"name": "recall", "arguments": {}}]},
    {"when": "Two", "tool_calls": [{"name": "two", "arguments": {}}]},
    {"text": "I see.", "repeat": True},
]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a store; the TARGET and the model are in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANABRANCH_STORE", f"sqlite:///{tmp_path}/chat.db")
    Path("tools.py").write_text(TOOLS)
    Path("model.json").write_text(json.dumps(MODEL))
    return f"sqlite:///{tmp_path}/chat.db"


def chat(*lines: str) -> None:
    Path("lines").write_text("\n".join(lines))
    model = ["--model", "script:model.json"]
    assert main(["chat", "tools.py", "--script", "lines", *model]) == 0


def replayed(run: Run, target: str = "tools.py") -> tuple[int, dict[str, Any]]:
    call = run.value("calls", "list")[0]
    status, out, _ = run("calls", "replay", call["id"], target)
    return status, json.loads(out)


def test_a_tool_reads_the_messages_that_it_had_then(store: str, run: Run) -> None:
    del store
    chat("I like tea.", "Recall it.", "/answer ok=true", "What else?")
    status, outcome = replayed(run)
    assert (outcome["ended"], outcome["drift"], status) == ("ended", None, 0)
    Path("changed.py").write_text(TOOLS.replace("Is it", "Was it"))
    status, outcome = replayed(run, "changed.py")
    assert (status, outcome["drift"]["at"]) == (1, "recall/elicit.1")


def test_a_deleted_conversation_is_reported_instead_of_a_drift(store: str, run: Run) -> None:
    chat("I like tea.", "Recall it.", "/answer ok=true")

    async def delete() -> None:
        calls, trees = open_stores(store)
        [thread] = await trees.threads(10)
        await trees.delete_thread(thread.id)
        await calls.close()

    anyio.run(delete)
    status, outcome = replayed(run)
    assert (status, outcome["ended"], outcome["drift"]) == (1, "cannot be read", None)
    assert "the store no longer has" in outcome["problem"]


def test_a_plugins_rules_hold_in_the_replay(store: str, run: Run) -> None:
    del store
    chat("Two.", "/answer ok=true")
    status, outcome = replayed(run)
    assert (outcome["ended"], outcome["drift"], status) == ("ended", None, 0)
