"""A tool that an agent runs sees the conversation that called the tool."""

from anabranch import BranchContext, tool
from anabranch.messages import ElicitReply, Message, SampleReply, SampleRequest
from anabranch.testing import calls
from tests.agents.asking import Confirm
from tests.agents.harness import Answering, faults, fork, heard, set_up

SEEN: list[tuple[tuple[Message, ...], str | None]] = []


@tool
async def look(ctx: BranchContext) -> str:
    """Read the conversation before and after a question."""
    SEEN.append((ctx.parent_messages, ctx.parent_system_prompt))
    await ctx.elicit(Confirm, "Seen?")
    SEEN.append((ctx.parent_messages, ctx.parent_system_prompt))
    return "seen"


def decide(request: SampleRequest) -> SampleReply | str:
    if heard(request) == "fork":
        return fork("look there")
    if heard(request).endswith(("look", "look there")):
        return calls(("use", "look", {}), text="I look.")
    return "fine"


YES = Answering(lambda _: ElicitReply(action="accept", content={"ok": True}))


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


async def test_a_tool_sees_the_messages_and_system_prompt_sent_to_the_model() -> None:
    SEEN.clear()
    here = await set_up(decide, tools=[look], user=YES)
    here.thread_id = (await here.agent.begin(system_prompt="Be brief.")).id
    await here.say("hello")
    await here.say("look")
    called = next(each for each in here.model.requests if heard(each) == "look")
    assert set(SEEN) == {(called.messages, "Be brief.")}
    assert texts(called.messages) == ["hello", "fine", "look"]


async def test_it_sees_the_same_when_it_is_resumed_at_its_question() -> None:
    SEEN.clear()
    here = await set_up(decide, tools=[look], user=YES)
    await here.say("look")
    [question] = await here.of_kind("question")
    await here.agent.answer(question.id, ElicitReply(action="decline"))
    assert len(SEEN) == 5
    assert all(texts(messages) == ["look"] for messages, _ in SEEN)


async def test_in_a_branch_it_sees_the_branch() -> None:
    SEEN.clear()
    here = await set_up(
        lambda request: (
            fork("look there", allow_work=True) if heard(request) == "fork" else decide(request)
        ),
        tools=[look],
        user=YES,
    )
    await here.say("fork")
    messages, _ = SEEN[0]
    assert texts(messages)[-1].endswith("look there")
    assert faults(messages) == []
