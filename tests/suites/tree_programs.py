"""Programs that compare stores of conversations with the plain model, one for each promise."""

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.messages import Usage
from anabranch.tree import Kind, Node, Ref, Result, Thread, TurnEnd
from tests.suites.linearizability import Operation, checks_of
from tests.suites.tree_model import TreeModel
from tests.suites.tree_samples import TreeStoreCheck, a_node, a_result, a_thread, calls_tool, says


def do(method: str, *arguments: Any, **options: Any) -> Operation:
    return Operation(method, arguments, options)


def add(*nodes: Node, results: Sequence[Result] = (), refs: Sequence[Ref] = ()) -> Operation:
    return do("append", nodes, results=results, refs=refs)


def paths(*names: str) -> Sequence[Operation]:
    return [do("path", name) for name in names]


def begun(*tool_use_ids: str) -> Sequence[Operation]:
    """Begin thread ``t``: node ``a`` has a text, and node ``b`` calls tools."""
    content = calls_tool(*(tool_use_ids or ("use",)))
    return [
        do("create_thread", a_thread()),
        add(a_node("a"), a_node("b", "a", "assistant", content)),
    ]


def settling(kind: Kind) -> Sequence[Operation]:
    """Return a caller's pending result, branches, and the caller's next message, of kind ``kind``."""
    return [
        *begun(),
        add(a_node("early", "b", "branch"), results=[a_result("b", "wait", pending="done")]),
        add(a_node("late", "b", "branch")),
        add(a_node("deep", "late")),
        *paths("late"),
        add(a_node("next", "b", kind)),
        *paths("early", "late", "deep", "next"),
        do("delete_thread", "t"),
    ]


NOBODY = a_thread("other")
THEIRS = a_node("theirs", thread_id="other")
OTHER = [do("create_thread", NOBODY), add(THEIRS, refs=[Ref("head", "theirs")])]
TREE = do("tree", "t")
REFS = [do("refs", "t"), do("refs", "other")]
KINDS: Sequence[Kind] = ("user", "assistant", "results")
OWNERS = (("a", "ann"), ("b", None), ("c", "ANN"), ("d", "ann"), ("e", ""), ("f", None))
HELD, LOST = a_result("b", "1"), a_result("unknown", "1")
HEAD, NO_HEAD = Ref("head", "b"), Ref("head", "unknown")
A, B = a_node("a"), a_node("b", "a", "assistant", calls_tool("use"))
ADDED = [a_node("y", "b", "branch"), a_node("x", "a"), a_node("z")]

TREE_PROGRAMS: Mapping[str, Sequence[Operation]] = {
    "a thread is found as it was created": [
        *(
            operation
            for thread in (
                a_thread(),
                Thread("plain", 1.5),
                a_thread("empty", system_prompt="", title="", owner=""),
                a_thread("owned", owner="\x00Ann\ud800"),
            )
            for operation in (do("create_thread", thread), do("thread", thread.id))
        ),
        do("create_thread", a_thread(title="Another")),
        do("thread", "t"),
    ],
    "what is unknown has nothing": [
        *(do(each, "t") for each in ("thread", "node", "children", "beginnings", "refs")),
        do("threads", 10),
        do("nodes_after", "t", []),
        do("delete_ref", "t", "head"),
        *(do(each, "t") for each in ("delete_thread", "delete_subtree", "path", "tree", "around")),
        add(),
        add(results=[]),
    ],
    "the newest thread comes first": [
        *(
            do("create_thread", a_thread(name, created_at=time))
            for name, time in (("b", 2.0), ("a", 1.0), ("c", 3.0), ("d", 2.0))
        ),
        do("threads", 10),
        do("threads", 1),
    ],
    "only the threads of an owner are listed as theirs": [
        *(
            do("create_thread", a_thread(name, created_at=float(time), owner=owner))
            for time, (name, owner) in enumerate(OWNERS)
        ),
        *(do("threads_of", owner, 10) for owner in ("ann", None, "", "bo")),
        do("threads_of", "ann", 1),
    ],
    "a node is found as it was appended": [
        *begun(),
        *(
            operation
            for node in (
                a_node("user", "a", created_at=0.125),
                a_node(
                    "assistant",
                    "b",
                    "assistant",
                    usage=Usage(input_tokens=7, output_tokens=0),
                    data={"model": "m", "step": {"id": 3, "list": [None, True, 0.5]}},
                ),
                a_node("results", "b", "results", ()),
                a_node("branch", "b", "branch"),
                a_node("question", "b", "question", data={"schema": {}}),
                a_node("answer", "question", "answer"),
            )
            for operation in (add(node), do("node", node.id))
        ),
    ],
    "an append is all or nothing": [
        *begun(),
        add(a_node("c", "b"), a_node("d", "unknown"), results=[HELD], refs=[HEAD]),
        TREE,
        add(a_node("c", "b"), results=[HELD, LOST], refs=[HEAD]),
        TREE,
        add(a_node("c", "b"), results=[HELD], refs=[HEAD, NO_HEAD]),
        TREE,
        add(results=[HELD, LOST]),
        TREE,
        add(a_node("c", "b"), results=[HELD], refs=[HEAD]),
        TREE,
    ],
    "a path leads from the beginning, with the results on the way": [
        *begun("use", "more"),
        add(
            a_node("c", "b", "assistant", calls_tool("use")),
            a_node("d", "b"),
            a_node("e", "d"),
            a_node("z"),
            results=[HELD, a_result("b", "3", tool_use_id="more"), a_result("c", "2")],
        ),
        *paths("e", "d", "z", "c"),
    ],
    "surroundings are the path and the children of the open end": [
        *begun(),
        do("create_thread", a_thread("other", owner="Ann")),
        do("around", "other"),
        OTHER[1],
        add(
            a_node("q", "b", "question"),
            a_node("y", "b", "branch"),
            a_node("w", "q", "answer"),
            a_node("x", "q", "answer"),
            a_node("s", "a"),
            results=[a_result("b", "1", pending="2")],
            refs=[Ref("head", "w"), Ref("good", "y")],
        ),
        *(do("around", "t", *each) for each in ((), ("w",), ("a",), ("unknown",), ("",))),
        do("around", "other"),
        do("around", "other", "w"),
        do("around", "unknown"),
    ],
    "children come in the order of appending": [
        *begun(),
        *(
            add(a_node(name, "b", created_at=50.0 - number))
            for number, name in enumerate(("z", "m", "x"))
        ),
        add(a_node("y", "z"), a_node("c", "b"), a_node("other")),
        *(do("children", name) for name in ("b", "z", "m")),
        do("beginnings", "t"),
    ],
    "a tree is all of a thread": [
        *begun(),
        *OTHER,
        add(
            a_node("y", "b", "branch"),
            a_node("x", "b", "branch"),
            results=[a_result("b", "1", pending="2")],
        ),
        add(a_node("w", "x"), refs=[Ref("head", "w"), Ref("good", "y")]),
        TREE,
        do("tree", "other"),
    ],
    "a thread is read on from what is known": [
        *begun(),
        *OTHER,
        do("nodes_after", "t", []),
        do("nodes_after", "t", [A, B]),
        add(*ADDED),
        add(results=[HELD], refs=[Ref("head", "y")]),
        do("nodes_after", "t", [A, B]),
        do("nodes_after", "t", [A]),
        do("delete_subtree", "x"),
        do("nodes_after", "t", [A, B, *ADDED]),
        do("nodes_after", "t", []),
        do("delete_subtree", "z"),
        add(a_node("w", "b")),
        do("nodes_after", "t", [A, B, ADDED[0], ADDED[2]]),
        do("delete_thread", "t"),
        do("nodes_after", "t", [A, B]),
    ],
    "a result is replaced for all": [
        *begun(),
        add(*(a_node(name, "b", "branch") for name in "xyz")),
        add(a_node("c", "x", "assistant", calls_tool("use"))),
        add(results=[a_result("b", "1", pending="9"), a_result("c", "inner")]),
        *paths("y"),
        add(results=[Result("b", "use", says("2"), is_error=True)]),
        *paths("x", "y", "z", "c"),
        add(results=[a_result("b", "3"), a_result("b", "4")]),
        *paths("x"),
    ],
    "the end of a turn is set, replaced and removed": [
        *begun(),
        do("end_turn", "b", TurnEnd("no ink")),
        *paths("a", "b"),
        do("tree", "t"),
        do("end_turn", "b", TurnEnd()),
        do("around", "t", "b"),
        add(a_node("c", "b")),
        *paths("c"),
        do("end_turn", "b", None),
        do("end_turn", "b", None),
        do("tree", "t"),
        do("end_turn", "unknown", TurnEnd("")),
        do("end_turn", "c", TurnEnd("")),
        *paths("c"),
        do("delete_subtree", "c"),
        do("tree", "t"),
    ],
    "what is pending waits for the next message": [
        operation for kind in KINDS for operation in settling(kind)
    ],
    "what is pending waits beyond questions": [
        *begun(),
        add(
            a_node("q", "b", "question"),
            a_node("r", "q", "answer"),
            results=[
                a_result("b", "wait", pending="done"),
                a_result("r", "again", pending="later"),
            ],
        ),
        *paths("r"),
        add(a_node("c", "r", "results")),
        *paths("c"),
    ],
    "what is pending is only settled later": [
        *begun(),
        add(a_node("c", "b"), results=[a_result("b", "wait", pending="done")]),
        *paths("c"),
        add(a_node("d", "c")),
        *paths("d"),
        add(a_node("e", "b"), a_node("f", "e")),
        *paths("f"),
    ],
    "a ref is moved": [
        *begun(),
        *OTHER,
        add(refs=[Ref("head", "a"), Ref("good", "a")]),
        *REFS,
        do("set_ref", "t", HEAD),
        *REFS,
        do("set_ref", "t", Ref("head", "theirs")),
        do("set_ref", "t", NO_HEAD),
        do("set_ref", "unknown", Ref("head", "a")),
        *REFS,
        do("delete_ref", "t", "good"),
        do("delete_ref", "t", "good"),
        *REFS,
    ],
    "a deleted thread is gone": [
        *begun(),
        *OTHER,
        add(results=[HELD], refs=[HEAD]),
        do("delete_thread", "t"),
        do("delete_thread", "t"),
        do("thread", "t"),
        do("node", "b"),
        do("refs", "t"),
        add(a_node("c", "b")),
        *begun(),
        *paths("b"),
        do("tree", "other"),
    ],
    "a deleted subtree is gone": [
        *begun(),
        add(
            a_node("c", "b", "branch"),
            a_node("d", "c", "assistant", calls_tool("use")),
            a_node("e", "b"),
            results=[HELD, a_result("d", "2")],
            refs=[Ref("head", "d"), Ref("good", "e")],
        ),
        do("delete_subtree", "c"),
        TREE,
        add(a_node("f", "d")),
        add(a_node("c", "b")),
        do("children", "b"),
    ],
}


TREE_PROGRAM_CHECKS: Mapping[str, TreeStoreCheck] = checks_of(TREE_PROGRAMS, TreeModel)
"""The checks that open a store once."""
