"""Random histories of a thread: after each step, every path is a valid request."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch.agents import TurnLimits
from anabranch.messages import SampleReply, SampleRequest, TextBlock, ToolUseBlock
from anabranch.models import ModelError
from anabranch.tree import project
from tests.agents.harness import Setting, set_up
from tests.randomised import examples

LIMITS = TurnLimits(max_requests=3, max_depth=2, max_branches_per_call=4, max_branches=12)


@dataclass
class Whim:
    """A model with a list of replies that do not depend on the request.

    Attributes:
        replies: the replies; the next one is the last.
        here: the conversation.
        unknown: requests for a reply whose messages match no path in the store.
    """

    replies: list[SampleReply | Exception | None]
    here: Setting
    unknown: list[SampleRequest] = field(default_factory=list[SampleRequest])

    async def __call__(self, request: SampleRequest) -> SampleReply | Exception:
        if request.tools:  # requests of judges have no tools
            store = self.here.agent.store
            paths = [await store.path(node.id) for node in (await self.here.tree()).nodes]
            if request.messages not in [project(path.nodes, path.results) for path in paths]:
                self.unknown.append(request)
        reply = self.replies.pop() if self.replies else None
        return reply if reply is not None else SampleReply.model_validate({"content": "so be it"})


prompts = st.one_of(
    st.lists(st.sampled_from(["do it", "", "think"]), max_size=5),
    st.sampled_from(["['a', 'b']", "a, b"]),
)
inputs: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"prompts": prompts},
    optional={
        "allow_work": st.booleans(),
        "parallel": st.booleans(),
        "recombine": st.sampled_from(["none", "concatenate", "llm_vote", "no such"]),
    },
)
uses = st.builds(
    ToolUseBlock,
    id=st.sampled_from("uvw"),
    name=st.sampled_from(["branch_self", "branch_self", "missing"]),
    input=inputs,
)
texts = st.builds(TextBlock, text=st.sampled_from(["well", "", "  "]))
replies = st.one_of(
    st.none(),
    st.builds(ModelError, st.just("Out of ink.")),
    st.builds(SampleReply, content=st.lists(st.one_of(texts, uses, uses), max_size=4).map(tuple)),
)
acts = st.tuples(
    st.sampled_from(["say", "say", "say", "undo", "stop", "reload"]),
    st.integers(0, 30),
    st.lists(replies, max_size=8),
)


async def act(here: Setting, what: str, at: int, whims: list[Any]) -> Setting:
    """Do one thing at one of the nodes; failures of the model and interruptions are expected."""
    nodes = (await here.tree()).nodes
    node = nodes[at % len(nodes)].id if nodes else None
    if what == "undo":
        if node is not None:
            await here.agent.store.delete_subtree(node)
        return here
    if what == "reload":
        again = await set_up(lambda _: "again", store=here.agent.store, limits=LIMITS)
        again.thread_id = here.thread_id
        return again
    model = Whim(whims, here)
    speaking = await set_up(model, store=here.agent.store, limits=LIMITS)
    speaking.thread_id = here.thread_id
    turn = asyncio.create_task(speaking.say("hello", at=node))
    if what == "stop":
        for _ in range(at):
            await asyncio.sleep(0)
        turn.cancel()
    await asyncio.wait({turn})
    if not turn.cancelled() and (error := turn.exception()) is not None:
        assert type(error).__name__ in {"ModelError", "TurnLimitError"}, error
    assert not model.unknown
    return speaking


@examples(40)
@given(st.lists(acts, min_size=1, max_size=8))
def test_every_path_stays_valid(history: list[tuple[str, int, list[Any]]]) -> None:
    async def live() -> None:
        here = await set_up(lambda _: "hello", limits=LIMITS)
        for what, at, whims in history:
            here = await act(here, what, at, list(whims))
            tree = await here.check()
            assert set(tree.refs.values()) <= {node.id for node in tree.nodes}
        tree = await here.tree()
        for caller in tree.nodes:
            opened = [n for n in tree.nodes if n.parent_id == caller.id and n.kind == "branch"]
            assert len(opened) <= sum(use.name == "branch_self" for use in caller.tool_uses) * 4

    asyncio.run(live())
