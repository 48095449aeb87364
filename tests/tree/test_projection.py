"""The cost of a projection; the tests of law 6 cover its correctness."""

import tracemalloc

from anabranch.messages import ToolUseBlock
from anabranch.tree import Node, provider_blocks
from tests.tree.samples import node


def forked_at_each_turn(turns: int) -> list[Node]:
    """Return a conversation in which the model answered each question twice: with a tool, then without."""
    main: list[Node] = []
    others: list[Node] = []
    for turn in range(turns):
        before = f"a{turn - 1}" if turn else None
        use = ToolUseBlock(id=f"t{turn}", name="weather", input={})
        main.append(node(f"q{turn}", before, "user", "hm"))
        main.append(node(f"a{turn}", f"q{turn}", "assistant", "well", use))
        others.append(node(f"b{turn}", f"q{turn}", "assistant", "well"))
    return [*main, *others]


def memory_for(turns: int) -> int:
    nodes = forked_at_each_turn(turns)
    tracemalloc.start()
    try:
        provider_blocks(nodes, {})
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_projecting_a_thread_twice_as_long_takes_at_most_twice_the_memory() -> None:
    """While one branch is projected, the branches that forked from it earlier are pending."""
    assert memory_for(1000) < 2.5 * memory_for(500)


def test_the_id_of_a_tool_use_depends_only_on_its_path() -> None:
    def use(name: str, parent: str | None) -> Node:
        return node(name, parent, "assistant", "", ToolUseBlock(id="u", name="weather", input={}))

    start = [node("q", None, "user", "hm"), use("a", "q")]
    forks = [use("b", "a"), use("c", "b"), use("d", "a"), use("e", "d"), use("f", "d")]
    blocks = provider_blocks([*start, *forks], {})
    ids = {name: [b.id for b in own if b.type == "tool_use"] for name, own in blocks.items()}
    assert ids == {
        "q": [],
        "a": ["u"],
        "b": ["u_2"],
        "c": ["u_3"],
        "d": ["u_2"],
        "e": ["u_3"],
        "f": ["u_3"],
    }
