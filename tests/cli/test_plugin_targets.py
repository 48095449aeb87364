"""Plugins in TARGET files: each provides its tool, with its exposed values, rules and modules."""

import json
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from anabranch._terminal import UsageError
from anabranch.agents import CalledTool
from anabranch.chat import Plugin
from anabranch.cli._chat_parts import tools_of
from anabranch.cli._option_groups import TurnOptions
from anabranch.cli._targets import load
from tests.chat.web import message, resume
from tests.chat.web import run as run_turn
from tests.cli.running import Run
from tests.cli.stopping import ANABRANCH, started, url_of
from tests.patience import PATIENCE

pytestmark = pytest.mark.usefixtures("workplace")

TOOLS = """
from pydantic import BaseModel
from anabranch import BranchContext, ConcurrentElicitError, Elicitation, HandoffTool

class Choice(BaseModel):
    number: int

class Hand(BaseModel):
    cards: list[str]
    winner: str

PICK = Elicitation("pick", Choice)

class PickCard(HandoffTool):
    'Draw cards.'

    pick = PICK

    async def before(self, count: int = 2) -> Hand:
        return Hand(cards=["A", "K"][:count], winner="K")

    async def client(self, hand: Hand, ctx: BranchContext) -> str:
        first, second = ctx.elicit(PICK, "First?"), ctx.elicit(PICK, "Second?")
        try:
            return " ".join(answer.action for answer in await ctx.gather(first, second))
        except ConcurrentElicitError:
            return "one at a time"

    async def after(self, hand: Hand, picked: str) -> str:
        return picked

pick_card = PickCard()
"""
PLUGIN = """
from pathlib import Path
from anabranch.chat import make_plugin
{imported}
shown = make_plugin({tool}, expose=("params", "handoff.cards")).on_page(
    {elicitation}, Path(__file__).with_name("cards.mjs")
).build()
again = shown
"""
MODULE = "export default async () => ({ action: 'decline' });\n"


@pytest.fixture(params=["one file", "its tool elsewhere"])
def target(request: pytest.FixtureRequest) -> str:
    Path("cards.mjs").write_text(MODULE)
    if request.param == "one file":
        text = TOOLS + PLUGIN.format(imported="", tool="pick_card", elicitation="PICK")
    else:
        Path("games.py").write_text(TOOLS)
        imports = {"imported": "import games", "tool": "games.pick_card"}
        text = PLUGIN.format(**imports, elicitation="games.PICK")
    Path("plugged.py").write_text(text)
    return "plugged.py"


def test_the_page_has_the_names_the_module_and_the_rules_of_the_plugin(target: str) -> None:
    command = (*ANABRANCH, "web", target, "--port", "0", "--store", "sqlite:///chat.db")
    with started(*command) as server:
        question, module, ended = anyio.run(_played, url_of(server).removesuffix("/mcp"))
    assert question["message"] == "First?"
    assert question["params"] == {"count": 2}
    assert question["handoff"] == {"cards": ["A", "K"]}
    assert module == MODULE
    assert "one at a time" in ended


async def _played(url: str) -> tuple[dict[str, Any], str, str]:
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        await run_turn(client, message("/pick_card"))
        [question] = (await client.get("/threads/t1/pending")).json()
        module = (await client.get(f"/{question['module']}")).text
        entry = {"interruptId": question["interrupt_id"], "status": "cancelled"}
        return question, module, json.dumps(await run_turn(client, resume(entry)))


def test_the_other_commands_find_the_tool_once(target: str, run: Run) -> None:
    assert [each["name"] for each in run.value("list", target)] == ["pick_card"]
    assert run.value("inspect", target, "pick_card")["name"] == "pick_card"
    assert run("check", target).status in {0, 1}
    assert "decline decline" in run("call", target, "pick_card").out  # by a server process


def test_in_the_terminal_questions_are_forms_under_the_plugins_rules(target: str, run: Run) -> None:
    Path("lines").write_text("/pick_card\n/answer decline\n")
    done = run("chat", target, "--script", "lines", "--store", "memory:")
    assert (done.status, "one at a time" in done.out) == (0, True)


@pytest.mark.parametrize("targets", [["games.py", "plugged.py"], ["plugged.py", "games.py"]])
@pytest.mark.parametrize("target", ["its tool elsewhere"], indirect=True)
def test_a_tool_and_its_plugin_in_another_target_are_one(target: str, targets: list[str]) -> None:
    found = load(targets)
    assert [each.mcp for each in found.plugins] == found.tools
    assert [type(each).__name__ for each in tools_of(targets)] == ["BranchSelfTool", "Plugin"]
    chosen = tools_of(targets, TurnOptions(tools=["*"], without=["nothing", "*"]))
    assert [type(each).__name__ for each in chosen] == ["BranchSelfTool"]


@pytest.mark.parametrize("target", ["one file"], indirect=True)
def test_a_plugin_can_be_named(target: str) -> None:
    [_, plugin] = tools_of([f"{target}:shown"])
    assert isinstance(plugin, Plugin)
    assert isinstance(plugin.server.tools[0], CalledTool)


def test_two_plugins_of_one_tool_are_refused(target: str) -> None:
    other = """
from anabranch.chat import Plugin
other = Plugin(shown.mcp, [], on_page=[("pick", Path(__file__).with_name("cards.mjs"))])
"""
    Path("plugged.py").write_text(Path(target).read_text() + other)
    with pytest.raises(UsageError, match="Two tools, or plugins, are called pick_card"):
        tools_of([target])
