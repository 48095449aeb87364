"""Each refusal of a folding tool has its code, and changes nothing."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from anabranch.folding import (
    BranchEvent,
    BranchService,
    FoldingError,
    FoldingSettings,
    _errors,
    folding_tools,
)
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock, MockClient, run_tool
from tests.folding.hosts import TASK

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
    """Fail a search for secrets at one word."""
    if "unsearchable" in text:
        raise OSError(text)
    return text


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
    ("FOLD022", RETURN, {"message": "m", "branch_id": "$branch", "session_id": "another"}),
    ("FOLD022", CREATE, {**TASK, "parent_branch_id": "$branch", "session_id": "another"}),
    ("FOLD022", STATUS, {"branch_id": "$branch", "session_id": "$other"}),
    ("FOLD022", RETURN, {"message": "m", "branch_id": "$branch", "session_id": "$other"}),
    ("FOLD022", REPORT, {"tokens": 1, "branch_id": "$branch", "session_id": "$other"}),
    ("FOLD022", CREATE, {**TASK, "parent_branch_id": "$branch", "session_id": "$other"}),
    ("FOLD023", CREATE, {**TASK, "timeout_seconds": 0}),
    ("FOLD023", CREATE, {**TASK, "timeout_seconds": -5}),
    ("FOLD023", CREATE, {**TASK, "timeout_seconds": 601}),
    ("FOLD024", RETURN, {"message": "", **IN}),
    ("FOLD026", STATUS, {"session_id": "s" * 201}),
    ("FOLD026", CREATE, {**TASK, "session_id": "s" * 201}),
    ("FOLD027", STATUS, {"branch_id": "b" * 201}),
    ("FOLD027", CREATE, {**TASK, "parent_branch_id": "b" * 201}),
]


async def test_each_refusal_has_its_code_and_changes_nothing() -> None:
    events: list[BranchEvent] = []
    service = BranchService(
        open_branch_store("memory:"),
        settings=SETTINGS,
        clock=ManualClock(),
        scrub=fail,
        listener=events.append,
    )
    tools = {each.name: each for each in folding_tools(service)}

    async def call(tool: str, **given: Any) -> Any:
        return await run_tool(tools[tool], given, MockClient())

    made = await call(CREATE, **TASK)
    other = await call(CREATE, **TASK)
    known = {"$branch": made.branch_id, "$session": made.session_id, "$other": other.session_id}
    before = await call(STATUS, branch_id=made.branch_id)
    for code, tool, given in REFUSALS:
        filled = {name: known.get(str(value), value) for name, value in given.items()}
        with pytest.raises(FoldingError, match=f"^{code}: ") as refused:
            await call(tool, **filled)
        assert refused.value.code == code, (tool, given)
    assert await call(STATUS, branch_id=made.branch_id) == before
    assert [event.kind for event in events] == ["created", "created"]
    inner = await call(CREATE, **TASK, session_id=made.session_id)
    with pytest.raises(FoldingError, match="FOLD004"):
        await call(CREATE, **TASK, session_id=made.session_id)
    await call(RETURN, message="m", branch_id=inner.branch_id)
    with pytest.raises(FoldingError, match="FOLD003"):
        await call(RETURN, message="m", branch_id=inner.branch_id)


def test_every_defined_code_reaches_a_caller() -> None:
    """Excludes documented codes that nothing raises."""
    elsewhere = {"FOLD003", "FOLD004", "FOLD012", "FOLD013"}  # raised in test_service.py and above
    internal = {"FOLD005"}  # a transition that the table refuses: a bug, not an answer
    room = Path(inspect.getfile(_errors)).parent
    source = "".join(path.read_text(encoding="utf-8") for path in room.glob("*.py"))
    assert set(re.findall(r"FOLD\d{3}", source)) == (
        {code for code, _, _ in REFUSALS} | elsewhere | internal
    )
