"""What is refused of a branch: each code over both eras of MCP, and natively, and nothing is created."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from anabranch.agents import Agent, Folding
from anabranch.folding import BranchService, FoldingSettings, _errors
from anabranch.messages import SampleReply
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock, MockModel, calls
from tests.agents.memory import MemoryTrees
from tests.folding.harness import heard
from tests.folding.hosts import ERAS, TASK, Host

SETTINGS = FoldingSettings(
    default_budget=1_000,
    max_budget=2_000,
    session_budget=2_500,
    max_depth=2,
    max_concurrent_per_session=4,
    max_concurrent_per_instance=5,
    max_created_per_minute=60,
)


async def fail(text: str) -> str:
    """A search for secrets that breaks at one word."""
    if "unsearchable" in text:
        raise OSError(text)
    return text


class Broken(Host):
    """A host with one open branch, and what each word in a test's arguments stands for."""

    def __init__(self, mode: Any) -> None:
        self.clock = ManualClock()
        self.branches = BranchService(
            open_branch_store("memory:"), settings=SETTINGS, clock=self.clock, scrub=fail
        )
        self.known: dict[str, str] = {}
        super().__init__(self.branches, mode)

    async def begin(self) -> dict[str, Any]:
        made = await self.call("branch_create", **TASK)
        self.known = {"$branch": made["branch_id"], "$session": made["session_id"]}
        return made

    async def try_it(self, tool: str, given: dict[str, Any]) -> str:
        filled = {name: self.known.get(str(value), value) for name, value in given.items()}
        return await self.refusal(tool, **filled)


@pytest.fixture(params=list(ERAS))
def host(request: pytest.FixtureRequest) -> Broken:
    return Broken(ERAS[request.param])


CREATE, RETURN, STATUS, REPORT = "branch_create", "branch_return", "branch_status", "branch_report"
IN = {"session_id": "$session"}
REFUSALS: list[tuple[str, str, dict[str, Any]]] = [
    ("FOLD001", STATUS, {"branch_id": "br_none"}),
    ("FOLD001", RETURN, {"message": "m", "branch_id": "br_none"}),
    ("FOLD001", REPORT, {"tokens": 1, "branch_id": "br_none"}),
    ("FOLD001", CREATE, {**TASK, "parent_branch_id": "br_none"}),
    ("FOLD006", RETURN, {"message": "m"}),
    ("FOLD006", RETURN, {"message": "m", "session_id": "of no one"}),
    ("FOLD006", STATUS, {}),
    ("FOLD008", CREATE, {**TASK, "budget": 1_500, **IN}),
    ("FOLD010", CREATE, {**TASK, "budget": 0}),
    ("FOLD010", CREATE, {**TASK, "budget": -1}),
    ("FOLD010", CREATE, {**TASK, "budget": 2_001}),
    ("FOLD010", CREATE, {**TASK, "budget": 3}),
    ("FOLD010", REPORT, {"tokens": -1, **IN}),
    ("FOLD014", CREATE, {"description": "unsearchable", "prompt": "p"}),
    ("FOLD014", CREATE, {"description": "d", "prompt": "unsearchable"}),
    ("FOLD014", RETURN, {"message": "unsearchable", **IN}),
    ("FOLD014", REPORT, {"tokens": 1, "partial": "unsearchable", **IN}),
    ("FOLD015", CREATE, {**TASK, "session_id": " "}),
    ("FOLD016", CREATE, {"description": " \n", "prompt": "p"}),
    ("FOLD016", CREATE, {"description": "\x00\x1b", "prompt": "p"}),
    ("FOLD017", CREATE, {"description": "d" * 501, "prompt": "p"}),
    ("FOLD018", CREATE, {"description": "d", "prompt": ""}),
    ("FOLD019", CREATE, {"description": "d", "prompt": "p" * 10_001}),
    ("FOLD020", STATUS, {"branch_id": ""}),
    ("FOLD020", CREATE, {**TASK, "parent_branch_id": ""}),
    ("FOLD021", RETURN, {"message": "m" * 50_001, **IN}),
    ("FOLD022", STATUS, {"branch_id": "$branch", "session_id": "another"}),
    ("FOLD022", CREATE, {**TASK, "parent_branch_id": "$branch", "session_id": "another"}),
    ("FOLD023", CREATE, {**TASK, "timeout_seconds": 0}),
    ("FOLD023", CREATE, {**TASK, "timeout_seconds": -5}),
    ("FOLD023", CREATE, {**TASK, "timeout_seconds": 601}),
    ("FOLD024", RETURN, {"message": "", **IN}),
    ("FOLD026", STATUS, {"session_id": "s" * 201}),
    ("FOLD027", STATUS, {"branch_id": "b" * 201}),
]


async def test_each_refusal_has_its_code_and_changes_nothing(host: Broken) -> None:
    """Excludes refusals without a code, over the protocol as well."""
    made = await host.begin()
    before = await host.call(STATUS, branch_id=made["branch_id"])
    for code, tool, given in REFUSALS:
        text = await host.try_it(tool, given)
        assert f"{code}: " in text, (code, tool, given, text)
    assert await host.call(STATUS, branch_id=made["branch_id"]) == before
    inner = await host.call(CREATE, **TASK, session_id=made["session_id"])
    assert "FOLD004" in await host.refusal(CREATE, **TASK, session_id=made["session_id"])
    await host.call(RETURN, message="m", branch_id=inner["branch_id"])
    twice = await host.refusal(RETURN, message="m", branch_id=inner["branch_id"])
    assert "FOLD003" in twice


def test_every_code_that_is_defined_is_one_that_a_caller_meets() -> None:
    """Excludes codes that are documented and can never be raised."""
    elsewhere = {"FOLD003", "FOLD004", "FOLD012", "FOLD013"}  # in test_service.py and above
    internal = {"FOLD005"}  # a transition that the table refuses: a bug, not an answer
    room = Path(inspect.getfile(_errors)).parent
    source = "".join(path.read_text(encoding="utf-8") for path in room.glob("*.py"))
    assert set(re.findall(r"FOLD\d{3}", source)) == (
        {code for code, _, _ in REFUSALS} | elsewhere | internal
    )


@pytest.mark.parametrize("era", list(ERAS))
async def test_the_schema_refuses_values_of_another_type(era: str) -> None:
    host = Broken(ERAS[era])
    for given in ({"description": "d"}, {**TASK, "budget": "much"}, {**TASK, "prompt": ["p"]}):
        assert await host.refusal(CREATE, **given)
    assert await host.branches.branches("") == []


@pytest.mark.parametrize(
    ("code", "tool", "given"),
    [each for each in REFUSALS if each[1] == CREATE and "session_id" not in each[2]
     and "parent_branch_id" not in each[2]],
)  # fmt: skip
async def test_natively_the_model_reads_the_same_code(
    code: str, tool: str, given: dict[str, Any]
) -> None:
    branches = BranchService(
        open_branch_store("memory:"), settings=SETTINGS, clock=ManualClock(), scrub=fail
    )
    replies: list[SampleReply | str] = [calls(("c", tool, given)), "ok"]
    model = MockModel(lambda request: replies.pop(0))
    agent = Agent(MemoryTrees(), model, tools=[Folding(branches)])
    thread = await agent.begin()
    await agent.say(thread.id, "Go")
    assert heard(model.requests[-1]).startswith(f"{code}: ")
    assert await branches.branches(thread.id) == []
