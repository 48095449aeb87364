"""The memory's tools give the same results over every edge, and refuse every bad argument."""

from typing import Any

import pytest
from pydantic_core import to_jsonable_python

from anabranch.errors import InvalidArgumentsError
from anabranch.memory import (
    LevelError,
    MemoryStore,
    ReasoningBank,
    Scopes,
    UnknownMemoryError,
    memory_tools,
)
from anabranch.testing import ManualClock, MockClient, run_tool

RECORD = {"title": "Flaky tests", "description": "When one fails", "content": "Run it twice."}


@pytest.fixture
def bank(store: MemoryStore) -> ReasoningBank:
    scopes = Scopes(project="web", org="acme")
    return ReasoningBank(store, scopes=scopes, writes=["project", "org"], clock=ManualClock(1000.0))


async def call(bank: ReasoningBank, name: str, **arguments: Any) -> Any:
    (tool,) = [each for each in memory_tools(bank) if each.name == name]
    return to_jsonable_python(await run_tool(tool, arguments, MockClient()))


async def test_a_recorded_note_is_found_and_rated(bank: ReasoningBank) -> None:
    recorded = await call(bank, "memory_record", **RECORD)
    assert recorded.pop("similar") == []
    rated = await call(bank, "memory_feedback", memory_id=recorded["id"], helpful=True)

    stored = {"scope": "project", "confidence": 0.75, "recorded": "1970-01-01"}
    assert recorded == {"id": recorded["id"], **RECORD, **stored}
    assert rated == {**recorded, "confidence": 0.8}
    assert await call(bank, "memory_search", query="a test fails") == [rated]
    assert await call(bank, "memory_search", query="a test fails", min_confidence=0.9) == []


async def test_recording_names_similar_notes(bank: ReasoningBank) -> None:
    first = await call(bank, "memory_record", **RECORD)
    second = await call(bank, "memory_record", **{**RECORD, "content": "Run it three times."})

    assert second["id"] != first["id"]
    assert [each["id"] for each in second["similar"]] == [first["id"]]


async def test_a_level_that_the_caller_may_not_write_is_refused(bank: ReasoningBank) -> None:
    with pytest.raises(LevelError, match=r"'team'\. Levels that it may write: project, org"):
        await call(bank, "memory_record", **RECORD, scope="team")


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("memory_record", {**RECORD, "title": ""}, "title"),
        ("memory_record", {**RECORD, "title": "x" * 201}, "title"),
        ("memory_record", {**RECORD, "content": " "}, "content"),
        ("memory_record", {**RECORD, "scope": "world"}, "scope"),
        ("memory_search", {"query": ""}, "query"),
        ("memory_search", {"query": "x", "limit": 0}, "limit"),
        ("memory_search", {"query": "x", "limit": 21}, "limit"),
        ("memory_feedback", {"memory_id": "mem_1"}, "helpful"),
    ],
    ids=str,
)
async def test_a_bad_argument_is_named(
    bank: ReasoningBank, name: str, arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgumentsError, match=field):
        await call(bank, name, **arguments)


async def test_feedback_on_an_unknown_memory_is_refused(bank: ReasoningBank) -> None:
    with pytest.raises(UnknownMemoryError, match="memory_search returns the ids"):
        await call(bank, "memory_feedback", memory_id="mem_1", helpful=True)
