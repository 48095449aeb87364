"""The drawing of a thread in a terminal."""

from dataclasses import replace

from anabranch.messages import FileBlock, TextBlock, ToolUseBlock
from anabranch.tree import Result, Tree, draw
from anabranch.tree._export import preview
from tests.tree.samples import SAMPLE, node


def test_branches_are_drawn_where_they_open_before_the_continuation() -> None:
    assert draw(SAMPLE) == [
        "user       start  Where to?",
        "  b3  assistant  again  Nowhere.",
        "assistant  fork  Two ideas. [branch_self]",
        "  b1  branch     b-graz  Look at Graz.",
        "      assistant  graz  It has a hill.  (good)",
        "  b2  branch     b-linz  Look at Linz.",
        "      assistant  linz  [branch_self]",
        "        b2.1  branch     b-port  Its port?",
        "results    both  ← 2 of 2 branches",
        "assistant  end  To Graz, then.  (head)",
    ]


def test_nodes_below_a_hidden_node_are_not_shown() -> None:
    lines = draw(SAMPLE, lambda one: one.kind != "branch")

    assert [line.split()[-2:] for line in lines] == [
        ["Where", "to?"],
        ["again", "Nowhere."],
        ["ideas.", "[branch_self]"],
        ["2", "branches"],
        ["then.", "(head)"],
    ]


def test_a_long_path_is_indented_like_a_short_one() -> None:
    nodes = [node("0", None), *(node(str(one), str(one - 1)) for one in range(1, 3000))]

    assert {line.index("user") for line in draw(replace(SAMPLE, nodes=tuple(nodes), refs={}))} == {
        0
    }


def test_a_preview_is_one_line_and_short() -> None:
    use = ToolUseBlock(id="u", name="look", input={})

    assert preview(node("n", None, "user", "a\n b\tc"), 9) == "a b c"
    assert preview(node("n", None, "assistant", "0123456789", use), 5) == "0123… [look]"
    assert preview(node("n", None, "assistant", "", use, use), 5) == "[look] [look]"


def test_texts_are_cut_so_that_lines_fit_a_terminal() -> None:
    said = node("0", None, text="word " * 30)
    tree = replace(SAMPLE, nodes=(said,), refs={"head": "0"})

    [line] = draw(tree, here="0", columns=66)
    assert len(line) == 66
    assert line.endswith("…  (head)  ← you are here")
    [line] = draw(tree, columns=10)
    assert line.count("word") == 4


def test_an_image_among_the_results_is_drawn_as_a_line_about_it() -> None:
    use = ToolUseBlock(id="u1", name="look", input={})
    file = FileBlock(mime_type="image/png", digest="0" * 64, size=70)
    result = Result("c", "u1", (TextBlock(text="The hill."), file))
    nodes = (node("u", None), node("c", "u", "assistant", "", use), node("r", "c", "results"))
    lines = draw(Tree(SAMPLE.thread, nodes, {("c", "u1"): result}, {}))
    assert lines[-1] == "results    r  ← The hill. (an image: image/png, 70 bytes)"
