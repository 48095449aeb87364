"""A thread as JSON, Mermaid and Markdown."""

import json
import re
from dataclasses import replace
from typing import Any

from hypothesis import given

from anabranch.messages import NOTHING, Block, ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock
from anabranch.tree import (
    HEAD,
    Node,
    Path,
    Tree,
    messages_to_json,
    project,
    provider_blocks,
    to_markdown,
    to_mermaid,
    tree_to_json,
)
from tests.laws.trees import Thicket, thickets
from tests.randomised import examples
from tests.tree.samples import REFS, SAMPLE, THREAD, node


def path_to(tree: Tree, name: str) -> Path:
    return Path(Thicket(tree.nodes, tree.results).path(by_id(tree, name)), tree.results)


def by_id(tree: Tree, name: str) -> Node:
    return next(one for one in tree.nodes if one.id == name)


def result(text: str, tool_use_id: str = "use", *, is_error: bool = False) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    block = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
    return {**block, "is_error": is_error}


def test_json_has_all_of_a_thread_in_order() -> None:
    exported = tree_to_json(SAMPLE)

    assert (exported["thread"], exported["refs"]) == ("trip", REFS)
    assert [one["id"] for one in exported["nodes"]] == [one.id for one in SAMPLE.nodes]
    assert exported["nodes"][6] == {
        "id": "graz",
        "parent_id": "b-graz",
        "kind": "assistant",
        "role": "assistant",
        "content": [{"type": "text", "text": "It has a hill."}],
        "label": "good",
        "usage": {"input_tokens": 5, "output_tokens": 2},
        "created_at": 101.0,
    }
    assert json.loads(json.dumps(exported)) == exported


def test_json_has_results_in_the_messages_that_a_provider_receives() -> None:
    content = {one["id"]: one["content"] for one in tree_to_json(SAMPLE)["nodes"]}

    assert content["both"] == [result("2 of 2 branches")]
    assert content["b-graz"] == [
        result("2 of 2 branches"),
        {"type": "text", "text": "Look at Graz."},
    ]
    assert content["linz"][0]["id"] == "use_2", "the id is taken on this path"
    assert content["b-port"][0] == result("No branch.", "use_2", is_error=True)


def test_json_has_questions_with_their_own_content() -> None:
    asked = (node("q", "fork", "question", "Sure?"), node("a", "q", "answer", "Yes."))
    tree = replace(SAMPLE, nodes=(*SAMPLE.nodes, *asked, node("next", "a", "results")))
    content = {one["id"]: one["content"] for one in tree_to_json(tree)["nodes"]}

    assert content["q"] == [{"type": "text", "text": "Sure?"}]
    assert content["a"] == [{"type": "text", "text": "Yes."}]
    assert content["next"] == [result("2 of 2 branches")]


def test_json_has_a_label_only_for_the_head() -> None:
    exported = tree_to_json(replace(SAMPLE, refs={HEAD: "end"}))

    assert {one["label"] for one in exported["nodes"]} == {None}


def _said(blocks: list[Block]) -> list[str]:
    texts = [block.text.rstrip() for block in blocks if isinstance(block, TextBlock)]
    return [text for text in texts if text != NOTHING]


@examples(100, gate=30)
@given(thicket=thickets(pictures=True))
def test_the_blocks_of_a_whole_tree_equal_those_of_each_path(thicket: Thicket) -> None:
    blocks = provider_blocks(thicket.nodes, thicket.results)

    assert set(blocks) == {one.id for one in thicket.nodes}
    for one in thicket.nodes:
        way = [each for each in thicket.path(one) if each.kind not in {"question", "answer"}]
        mine = [block for each in way for block in blocks[each.id]]
        messages = project(thicket.path(one), thicket.results)
        theirs = [block for message in messages for block in message.content]
        for kind in (ToolUseBlock, ImageBlock):
            found = [block for block in mine if isinstance(block, kind)]
            assert found == [block for block in theirs if isinstance(block, kind)]
        assert _said(mine) == _said(theirs)
        results = [block for block in mine if isinstance(block, ToolResultBlock)]
        assert [block for block in theirs if block in results] == results


def test_exported_messages_equal_the_projection() -> None:
    path = path_to(SAMPLE, "graz")

    assert messages_to_json(project(path.nodes, path.results)) == [
        {"role": "user", "content": [{"type": "text", "text": "Where to?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Two ideas."},
                {
                    "type": "tool_use",
                    "id": "use",
                    "name": "branch_self",
                    "input": {"prompts": ["Graz", "Linz"]},
                },
            ],
        },
        {
            "role": "user",
            "content": [result("2 of 2 branches"), {"type": "text", "text": "Look at Graz."}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "It has a hill."}]},
    ]


def test_mermaid_names_branches_and_points_refs_at_nodes() -> None:
    lines = to_mermaid(SAMPLE).splitlines()

    assert lines[0] == "graph TD"
    assert '    n0["user: Where to?"]' in lines
    assert "    n1 -->|b1| n2" in lines
    assert "    n1 --> n7" in lines
    assert '    r0(["good"]) -.-> n6' in lines
    assert len(lines) == 1 + 10 + 9 + 2


def test_mermaid_accepts_any_text() -> None:
    odd = node("n", None, "user", 'say "a" #1\n<b> `x` \\ & more')
    diagram = to_mermaid(Tree(THREAD, (odd,), {}, {'l"]': "n"}))

    assert diagram.splitlines()[1:] == [
        '    n0["user: say #34;a#34; #35;1 #60;b#62; #96;x#96; #92; #38; more"]',
        '    r0(["l#34;]"]) -.-> n0',
    ]


def test_markdown_has_the_main_stream_and_then_each_branch() -> None:
    text = to_markdown(SAMPLE)
    headings = [line for line in text.splitlines() if line.startswith("#")]

    assert headings == ["# A trip", "## b1", "## b2", "## b2.1", "## b3"]
    main = text.partition("## b1")[0]
    assert "> Be brief.\n" in main
    assert "→ [b1](#branch.b1)\n" in main
    assert "**assistant** · head\n\n> To Graz, then.\n" in main
    assert "a result:\n\n```\n2 of 2 branches\n```\n" in main
    assert "an error:\n\n```\nNo branch.\n```\n" in text.partition("## b2.1")[2]
    assert "[b2.1](#branch.b2.1)" in text
    assert '\n<a id="branch.b2.1"></a>\n\n## b2.1\n' in text


def test_a_markdown_link_leads_to_exactly_one_branch() -> None:
    """With twelve branches, two of which are inside the first, b12 and b1.2 exist."""
    nodes = [node("0", None, "user", "hello")]
    nodes += [node(f"b{number}", "0", "user", "hm") for number in range(13)]
    nodes += [node(f"c{number}", "b1", "user", "hm") for number in range(3)]
    text = to_markdown(Tree(THREAD, tuple(nodes), {}, {}))
    anchors = re.findall(r'<a id="(.+)"></a>', text)
    slugs = [line.strip("# ").replace(".", "") for line in text.splitlines() if line[:1] == "#"]

    assert sorted(re.findall(r"\(#(.+)\)", text)) == sorted(anchors)
    assert len(set(anchors)) == len(anchors) == 14
    assert not set(anchors) & set(slugs)


def test_markdown_in_messages_does_not_change_the_structure_of_the_page() -> None:
    use = ToolUseBlock(id="u", name="name", input={"code": "```py\n````\n```"})
    image = ImageBlock(data="aGk=", mime_type="image/png")
    nodes = (
        node("n", None, "user", "# No heading\n\n- one", image),
        node("m", "n", "assistant", "", use),
    )
    text = to_markdown(Tree(replace(THREAD, title="", system_prompt=None), nodes, {}, {}))

    assert text.startswith("# trip\n\n**user**\n\n> # No heading\n>\n> - one\n\n(image)\n")
    assert "calls name:\n\n`````json\n" in text


def test_an_empty_thread_can_be_exported() -> None:
    empty = Tree(THREAD, (), {}, {})

    assert tree_to_json(empty) == {"thread": "trip", "refs": {}, "nodes": []}
    assert to_mermaid(empty) == "graph TD\n"
    assert to_markdown(empty) == "# A trip\n\n> Be brief.\n"
