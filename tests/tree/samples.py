"""A sample thread: two branches of the model, one inside the other, and a fork of the user."""

from anabranch.messages import Block, TextBlock, ToolUseBlock, Usage
from anabranch.tree import HEAD, Kind, Node, Ref, Result, Thread, Tree, TreeStore

THREAD = Thread("trip", 100.0, "Be brief.", "A trip")
REFS = {"good": "graz", HEAD: "end"}


def node(
    name: str, parent: str | None, kind: Kind = "user", text: str = "", *blocks: Block
) -> Node:
    """Return a node with the text ``text``."""
    content = (TextBlock(text=text), *blocks) if text else blocks
    usage = Usage(input_tokens=5, output_tokens=2) if kind == "assistant" else None
    return Node(name, "trip", parent, kind, content, 101.0, usage)


def call(tool_use_id: str, name: str = "branch_self") -> ToolUseBlock:
    return ToolUseBlock(id=tool_use_id, name=name, input={"prompts": ["Graz", "Linz"]})


NODES = (
    node("start", None, "user", "Where to?"),
    node("fork", "start", "assistant", "Two ideas.", call("use")),
    node("b-graz", "fork", "branch", "Look at Graz."),
    node("b-linz", "fork", "branch", "Look at Linz."),
    node("linz", "b-linz", "assistant", "", call("use")),
    node("b-port", "linz", "branch", "Its port?"),
    node("graz", "b-graz", "assistant", "It has a hill."),
    node("both", "fork", "results"),
    node("end", "both", "assistant", "To Graz, then."),
    node("again", "start", "assistant", "Nowhere."),
)
RESULTS = (
    Result("fork", "use", (TextBlock(text="2 of 2 branches"),)),
    Result("linz", "use", (TextBlock(text="No branch."),), is_error=True),
)
SAMPLE = Tree(THREAD, NODES, {(one.node_id, one.tool_use_id): one for one in RESULTS}, REFS)


async def fill(store: TreeStore) -> None:
    """Add the thread to a store."""
    await store.create_thread(THREAD)
    refs = [Ref(name, target) for name, target in REFS.items()]
    await store.append(NODES, results=RESULTS, refs=refs)
