import json
from pathlib import Path

import pytest

from anabranch import ToolSpec, assistant, run_tool, tool, user
from anabranch.messages import Message, SampleRequest, ToolResultBlock, ToolUseBlock
from anabranch.models import ModelError, ScriptedModel, open_model
from anabranch.tool import BranchContext


def asking(*messages: Message | str, system: str | None = None) -> SampleRequest:
    return SampleRequest(
        messages=tuple(user(each) if isinstance(each, str) else each for each in messages),
        max_tokens=100,
        system_prompt=system,
    )


async def test_replies_are_given_in_order() -> None:
    model = ScriptedModel([{"text": "one"}, {"text": "two"}])
    assert [(await model.sample(asking("hi"))).text for _ in range(2)] == ["one", "two"]


async def test_a_reply_ends_at_the_first_stop_sequence() -> None:
    model = ScriptedModel([{"text": "one two three", "tool_calls": [{"name": "look"}]}])
    asked = asking("count").model_copy(update={"stop_sequences": ("three", "two")})
    reply = await model.sample(asked)
    assert (reply.text, reply.tool_calls, reply.stop_reason) == ("one ", (), "stopSequence")


async def test_a_reply_with_when_is_used_once_and_before_those_in_order() -> None:
    model = ScriptedModel([{"text": "first"}, {"text": "cheap", "when": "price"}, {"text": "last"}])
    said = [(await model.sample(asking(text))).text for text in ("price?", "price?", "price?")]
    assert said == ["cheap", "first", "last"]


async def test_a_reply_with_when_and_repeat_is_used_always() -> None:
    model = ScriptedModel([{"text": "cheap", "when": "price", "repeat": True}, {"text": "other"}])
    said = [(await model.sample(asking(text))).text for text in ("price", "hello", "price")]
    assert said == ["cheap", "other", "cheap"]


async def test_a_reply_in_order_with_repeat_answers_all_later_requests() -> None:
    model = ScriptedModel([{"text": "one"}, {"text": "rest", "repeat": True}])
    assert [(await model.sample(asking("?"))).text for _ in range(3)] == ["one", "rest", "rest"]


async def test_when_matches_only_the_last_message() -> None:
    model = ScriptedModel([{"text": "yes", "when": "magic"}, {"text": "no"}])
    asked = asking("magic", assistant("what?"), "nothing")
    assert (await model.sample(asked)).text == "no"


async def test_when_matches_the_result_of_a_tool_as_well() -> None:
    use = assistant([ToolUseBlock(id="u", name="weather", input={})])
    result = user([ToolResultBlock.model_validate({"tool_use_id": "u", "content": "rain"})])
    model = ScriptedModel([{"text": "take a coat", "when": "rain"}])
    assert (await model.sample(asking("weather?", use, result))).text == "take a coat"


async def test_two_equal_replies_are_both_used() -> None:
    model = ScriptedModel([{"text": "same"}, {"text": "same"}])
    assert [(await model.sample(asking("?"))).text for _ in range(2)] == ["same", "same"]


async def test_tool_calls_come_with_ids_that_the_conversation_does_not_have() -> None:
    calls = [{"name": "look", "arguments": {"at": "it"}}, {"name": "wait"}]
    model = ScriptedModel([{"text": "hm", "tool_calls": calls}])
    used = assistant([ToolUseBlock(id="call_1", name="look", input={})])
    reply = await model.sample(asking("go", used))
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [
        ("call_2", "look", {"at": "it"}),
        ("call_3", "wait", {}),
    ]
    assert (reply.text, reply.stop_reason, reply.model) == ("hm", "toolUse", "script")


async def test_usage_grows_with_the_length_of_the_request() -> None:
    model = ScriptedModel([{"text": "ok", "when": "?", "repeat": True}])
    spec = ToolSpec(name="look", input_schema={"type": "object"})
    plain = (await model.sample(asking("why?"))).usage
    prompted = (await model.sample(asking("why?", system="Be brief, and be kind."))).usage
    tooled = (await model.sample(asking("why?").model_copy(update={"tools": (spec,)}))).usage
    assert plain is not None
    assert prompted is not None
    assert tooled is not None
    assert plain.output_tokens == 1
    assert plain.input_tokens < prompted.input_tokens < tooled.input_tokens


async def test_an_exhausted_script_names_the_request() -> None:
    model = ScriptedModel([{"text": "only"}], name="script:a.json")
    await model.sample(asking("first"))
    with pytest.raises(ModelError) as raised:
        await model.sample(asking("x" * 100))
    assert str(raised.value) == (
        f"script:a.json has no reply left for request 2, whose last message is {'x' * 80 + '…'!r}."
        " Add a reply to the script."
    )


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"text": "a"}, {"txt": "b"}], "reply 2, field 'txt': there is no such field."),
        ([{"tool_calls": [{"at": 1}]}], "reply 1, field 'tool_calls.0.name': Field required."),
        ([{"text": "a", "when": ""}], "reply 1, field 'when': String should have at least 1"),
        ([{"when": "a"}], "reply 1 needs 'text' or 'tool_calls'."),
        (["hello"], "reply 1: Input should be a valid dictionary"),
    ],
)
def test_a_wrong_entry_is_named_with_its_field(
    tmp_path: Path, entries: list[object], message: str
) -> None:
    file = tmp_path / "replies.json"
    file.write_text(json.dumps(entries))
    with pytest.raises(ModelError) as raised:
        open_model(f"script:{file}")
    assert str(raised.value).startswith(f"script:{file}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "Cannot read the model script"),
        ("{", "is not JSON: Expecting"),
        ('{"text": "a"}', "must be a JSON list."),
        (b"\xff\xfe", "is not JSON"),
        ("[" * 100_000, "is nested too deeply."),
    ],
)
def test_a_file_other_than_a_script_is_refused(
    tmp_path: Path, text: str | bytes | None, message: str
) -> None:
    file = tmp_path / "replies.json"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ModelError, match=message):
        open_model(f"script:{file}")


async def test_a_script_from_a_file_answers_the_samples_of_a_tool(tmp_path: Path) -> None:
    file = tmp_path / "replies.json"
    file.write_text('[{"text": "blue"}]', encoding="utf-8")

    @tool
    async def colour(ctx: BranchContext) -> str:
        return (await ctx.sample("Which colour?")).text

    assert await run_tool(colour, sampler=open_model(f"script:{file}")) == "blue"
