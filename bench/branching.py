"""A model forks itself into 100 branches, and takes 50 ms for each reply.

``wall time``: the branches run at the same time, so together they should take little longer than one
reply. Each branch adds a request, a task and two nodes in the store. The reply that opens the branches,
and the reply after their results, take no time: otherwise each would add the time of a reply. The lower
bound is the same model with as many requests at the same time, and no agent.

``cache``: the share of the (estimated) tokens of a branch's first request that are, byte for byte, the
beginning of its parent's last request, and so in the provider's cache. The row has the least share of
five branches, in a conversation of twenty turns with some 20,000 tokens. The call and the branch's prompt
are new.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from anabranch._asking import estimate_tokens
from anabranch.agents import Agent, BranchSelf, TurnLimits
from anabranch.messages import Message, SampleReply, SampleRequest, user
from anabranch.stores import open_tree_store
from anabranch.testing import MockModel, calls
from bench.measure import Row, Times, time_in_turns

NAME = "branching"
BRANCHES = 100
REPLY = 0.05
TURNS = 7
LONG = "The quick brown fox jumps over the lazy dog, again and again. " * 80
LIMITS = TurnLimits(max_branches_per_call=BRANCHES, max_concurrent_requests=BRANCHES)
PROMPTS = [f"task {number}" for number in range(BRANCHES)]


async def decide(request: SampleRequest) -> SampleReply | str:
    """Fork when asked to; answer a message after a while, and tools' results immediately."""
    said = request.messages[-1].text
    if said.startswith("fork"):
        prompts = PROMPTS[: int(said.removeprefix("fork "))]
        return calls(("fork", "branch_self", {"prompts": prompts}))
    if said == "go on":
        return LONG
    if said:
        await asyncio.sleep(REPLY)
    return "done"


def an_agent(url: str) -> tuple[Agent, MockModel]:
    model = MockModel(decide)
    return Agent(open_tree_store(url), model, tools=[BranchSelf()], limits=LIMITS), model


def saying(agent: Agent, text: str) -> Callable[[], Awaitable[None]]:
    async def say() -> None:
        thread = await agent.begin()
        await agent.say(thread.id, text)

    return say


async def wall_time(url: str) -> Times:
    """Measure a turn with a single reply, a turn with all branches, and as many bare requests."""
    agent, model = an_agent(url)
    request = SampleRequest(messages=(user("hello"),), max_tokens=9)

    async def ask() -> None:
        await asyncio.gather(*(model.sample(request) for _ in range(BRANCHES)))

    try:
        contenders = {
            "one": saying(agent, "hello"),
            "all": saying(agent, f"fork {BRANCHES}"),
            "bare": ask,
        }
        return await time_in_turns(contenders, TURNS)
    finally:
        await agent.store.close()


def as_bytes(messages: tuple[Message, ...]) -> str:
    return "".join(message.model_dump_json() for message in messages)


async def cached() -> float:
    """Return the least share of a branch's first request that its parent's last request begins with."""
    agent, model = an_agent("memory:")
    thread = await agent.begin(system_prompt=LONG)
    for text in ["go on"] * 20 + ["fork 5"]:
        await agent.say(thread.id, text)
    await agent.store.close()
    parent, *branches = model.requests[-7:-1]
    before, shares = as_bytes(parent.messages), list[float]()
    fixed = as_fixed(parent)
    for request in branches:
        sent = as_bytes(request.messages)
        same = fixed + before if sent.startswith(before) and as_fixed(request) == fixed else ""
        shares.append(estimate_tokens(same) / estimate_tokens(fixed + sent))
    return min(shares)


def as_fixed(request: SampleRequest) -> str:
    """Return the tokens before the messages: the tools and the system prompt."""
    tools = "".join(tool.model_dump_json() for tool in request.tools or ())
    return tools + (request.system_prompt or "")


async def rows() -> list[Row]:
    one = f"one reply of {REPLY * 1000:.0f} ms"
    what = f"{BRANCHES} branches at once / {one}"
    with tempfile.TemporaryDirectory() as folder:
        in_memory = await wall_time("memory:")
        in_file = await wall_time(f"sqlite:///{Path(folder) / 'threads.db'}")
    missing = 100 * (1 - await cached())
    return [
        Row(NAME, f"{BRANCHES} bare requests at once / {one}", in_memory.ratio("bare", "one")),
        Row(NAME, f"{what}, in memory", in_memory.ratio("all", "one"), goal=1.5),
        Row(NAME, f"{what}, in a file", in_file.ratio("all", "one"), goal=1.5),
        Row(NAME, "tokens of a branch's first request not cached", missing, "%", goal=1),
    ]


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
