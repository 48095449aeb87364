"""The conversation tree on a full screen: the tree on the left, one node in full on the right.

No other module imports textual.
"""

from __future__ import annotations

from typing import ClassVar, cast

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Footer, Header, Input, Static
from textual.widgets import Tree as TreeWidget
from textual.widgets.tree import TreeNode

from anabranch._terminal import LeftError
from anabranch._text import printable, printable_line
from anabranch.messages import TextBlock, ToolResultBlock, ToolUseBlock, text_of
from anabranch.tree import (
    HEAD,
    HERE,
    AmbiguousIdError,
    Navigator,
    Node,
    Tree,
    cut,
    glimpse,
    provider_blocks,
    results_preview,
    state_of,
    text_for_user,
)

WIDTH = 60


class Browser(App[str]):
    """Shows a thread; the result is the id of the node at which the user wants to continue."""

    CSS: ClassVar[str] = """
    #tree { width: 1fr; }
    #side { width: 1fr; padding: 0 1; border-left: solid $primary; }
    #find { dock: bottom; display: none; }
    #find.open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "continue", "Continue here"),
        Binding("g", "ask", "Go to label, branch or id"),
        Binding("e", "unfold", "Expand all"),
        Binding("f", "fold", "Collapse all"),
        Binding("h", "head", "Head"),
        Binding("escape", "close", "Close", show=False),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "leave", "Leave", show=False, priority=True),
    ]

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self.title = printable_line(tree.thread.title or tree.thread.id)
        self._navigator = Navigator(tree)
        self._blocks = provider_blocks(tree.nodes, tree.results)
        self._places: dict[str, TreeNode[str]] = {}

    def compose(self) -> ComposeResult:
        yield Header()
        with Horizontal():
            yield TreeWidget[str](Text(printable(self.title or "")), id="tree")
            with VerticalScroll(id="side"):
                yield Static(id="details")
        yield Input(placeholder="a label, a branch (b1.2), or an id", id="find")
        yield Footer()

    def on_mount(self) -> None:
        widget = self._widget
        widget.show_root = False
        left = [(node, widget.root) for node in reversed(self._navigator.children(None))]
        while left:
            node, above = left.pop()
            followers = self._navigator.children(node.id)
            line = self._line(node)
            # Only branches are indented, below the line that they leave: a long conversation stays
            # one column.
            branches = [follower for follower in followers if self._opens_branch(follower)]
            place = above.add(line, node.id) if branches else above.add_leaf(line, node.id)
            self._places[node.id] = place
            left += [
                (follower, place if follower in branches else above)
                for follower in reversed(followers)
            ]
        widget.root.expand_all()
        widget.focus()
        self.call_after_refresh(self.action_head)

    # -- actions ------------------------------------------------------------------------------

    def action_continue(self) -> None:
        node = self._widget.cursor_node
        if node is not None and node.data is not None:
            self.exit(node.data)

    def action_leave(self) -> None:
        """Exit like a program that Ctrl-C ends."""
        self.exit(return_code=LeftError.status)

    def action_ask(self) -> None:
        field = self.query_one("#find", Input)
        field.add_class("open")
        field.value = ""
        field.focus()

    def action_close(self) -> None:
        self.query_one("#find", Input).remove_class("open")
        self._widget.focus()

    def action_unfold(self) -> None:
        self._widget.root.expand_all()

    def action_fold(self) -> None:
        for child in self._widget.root.children:
            child.collapse_all()

    def action_head(self) -> None:
        head = self._navigator.tree.refs.get(HEAD)
        if head is not None:
            self._go(head)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        missing = f"There is no label, branch or node {event.value!r}."
        try:
            node = self._navigator.find(event.value.strip())
        except AmbiguousIdError as error:
            node, missing = None, str(error)
        if node is None:
            self.notify(missing, severity="error", markup=False)
            return
        self.action_close()
        self._go(node.id)

    def on_tree_node_highlighted(self, event: TreeWidget.NodeHighlighted[str]) -> None:
        if event.node.data is not None:
            details = self._details(self._navigator.nodes[event.node.data])
            self.query_one("#details", Static).update(details)

    # -- drawing -----------------------------------------------------------------------------

    @property
    def _widget(self) -> TreeWidget[str]:
        # A query takes a class, and a class cannot name the type of its nodes' data.
        return cast("TreeWidget[str]", self.query_one("#tree"))

    def _go(self, node_id: str) -> None:
        place = self._places[node_id]
        above = place.parent
        while above is not None:
            above.expand()
            above = above.parent
        # Lines get numbers when the tree is drawn, and the cursor moves by number.
        self.call_after_refresh(self._widget.move_cursor, place)

    def _opens_branch(self, node: Node) -> bool:
        return self._navigator.branch_of(node.id) != self._navigator.branch_of(node.parent_id)

    def _line(self, node: Node) -> Text:
        names = [*self._navigator.labels.get(node.id, ())]
        if self._navigator.tree.refs.get(HEAD) == node.id:
            names.append(HEAD)
        branch = f"{self._navigator.branch_of(node.id)} " if self._opens_branch(node) else ""
        results = self._blocks[node.id] if node.kind == "results" else ()
        text = results_preview(results, WIDTH) or self._glimpse(node)
        line = Text(
            printable(f"{branch}{node.kind}  "), style="bold" if node.role == "user" else ""
        )
        line.append(printable_line(text), style="not bold")
        marks = [*filter(None, [cut(self._state(node), WIDTH)]), *names]
        shown = printable_line(f"  ({', '.join(marks)})") if marks else ""
        line.append(shown, style="italic")
        return line.append(f"  {HERE}" if HEAD in names else "", style="bold")

    def _state(self, node: Node) -> str:
        return state_of(node, self._navigator, self._navigator.tree)

    def _glimpse(self, node: Node) -> str:
        text = text_for_user(node)
        return glimpse(node, WIDTH) if text == node.text else cut(" ".join(text.split()), WIDTH)

    def _details(self, node: Node) -> Text:
        branch = self._navigator.branch_of(node.id)
        place = " · ".join(filter(None, [node.kind, branch, node.id]))
        details = Text(printable_line(place), style="bold")
        if state := self._state(node):
            details.append(f" · {printable_line(state)}")
        text = text_for_user(node)
        if text.strip():
            details.append(f"\n\n{printable(text)}", style="not bold")
        for block in self._blocks[node.id]:
            match block:
                case TextBlock():
                    pass  # is above
                case ToolUseBlock():
                    use = f"\n\n→ {block.name}({block.input})"
                    details.append(printable(use), style="not bold")
                case ToolResultBlock():
                    parts = [part for part in block.content if isinstance(part, TextBlock)]
                    details.append(f"\n\n← {printable(text_of(parts))}", style="not bold italic")
                case _:
                    details.append(f"\n\n({block.type})", style="not bold")
        return details
