"""Finds uses of a context that fail or do nothing, and mutations that outlive a run.

``Misuse`` finds an operation without ``await``, and arguments or names in the style of another
library (the ``Context`` of the MCP Python SDK and of FastMCP). ``Mutations`` finds changes of
globals and of the tool.
"""

from __future__ import annotations

import ast

from anabranch._context import BranchContext
from anabranch.replay_check._asks import name_of
from anabranch.replay_check._check import Part
from anabranch.replay_check._scopes import Assigned, Class, ContextMethod, External, Instance

AWAITED = frozenset({
    "branch", "call_tool", "converse", "elicit", "elicit_url", "gather", "log", "notify", "patched",
    "race", "sample", "sleep", "sleep_until", "step",
})  # fmt: skip
FIELDS = frozenset({"parent_messages", "parent_system_prompt", "system_prompt", "tools"})
"""The attributes of a context that its class does not define."""
OF_COROUTINES = frozenset({"close", "send", "throw", "cr_await", "cr_frame", "cr_running"})
FOREIGN = {
    "debug": 'await ctx.log("debug", …)',
    "info": 'await ctx.log("info", …)',
    "warning": 'await ctx.log("warning", …)',
    "error": 'await ctx.log("error", …)',
    "report_progress": "await ctx.notify(message, progress, total)",
    "create_message": "await ctx.sample(…)",
    "request_id": "ctx.call_id",
}
"""Names of other libraries, each with the name in this library."""
SCHEMAS = frozenset({"message", "response_type", "schema"})
"""Keywords of other libraries' ``elicit``."""


class Misuse(Part):
    def visit_Expr(self, node: ast.Expr) -> None:
        self._check_awaited(node.value, node.value)
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        self._check_condition(node.test)
        self.generic_visit(node)

    visit_While = visit_IfExp = visit_If

    def _check_condition(self, test: ast.expr) -> None:
        """Report an operation that a condition uses without ``await``, and that is always true."""
        if isinstance(test, ast.BoolOp):
            for each in test.values:
                self._check_condition(each)
        elif isinstance(test, ast.UnaryOp):
            self._check_condition(test.operand)
        else:
            self._check_awaited(self._values.origin(test, self._scope), test)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Check the attributes that are read from a context, an operation, or an answer."""
        origin = self._values.origin(node.value, self._scope)
        if isinstance(node.ctx, ast.Load):
            method = self._values.of(node, self._scope)
            if isinstance(method, ContextMethod):
                self._check_name(method.name, node)
            elif node.attr not in OF_COROUTINES:
                self._check_awaited(origin, node)
        awaited = self._operation(origin.value) if isinstance(origin, ast.Await) else ""
        if node.attr == "data" and awaited == "elicit":
            self._foreign(node, f"{name_of(node.value)}.content")
        self.generic_visit(node)

    def check_call(self, call: ast.Call) -> None:
        """Check the order of the arguments of ``ctx.elicit``."""
        if self._operation(call) != "elicit":
            return
        swapped = any(keyword.arg in SCHEMAS for keyword in call.keywords)
        if len(call.args) > 1 and isinstance(call.args[0], ast.Constant | ast.JoinedStr):
            model = self._values.of(call.args[1], self._scope)
            builtin = isinstance(model, External) and model.name.startswith("builtins.str()")
            swapped |= isinstance(model, Class | External) and not builtin
        if swapped:
            self._emit("swapped-arguments", call)

    def _check_awaited(self, made: ast.expr, used: ast.expr) -> None:
        """Report ``used`` if it uses an operation, ``made``, in place of the operation's value."""
        if self._operation(made) in AWAITED:
            self._emit("not-awaited", used, f"`{name_of(made)}`")

    def _check_name(self, name: str, node: ast.Attribute) -> None:
        if name in FOREIGN:
            self._foreign(node, FOREIGN[name])
        elif name not in FIELDS and not hasattr(BranchContext, name):
            self._emit("unknown-operation", node)

    def _foreign(self, node: ast.expr, here: str) -> None:
        self._emit("foreign-spelling", node, f"`{name_of(node)}` is spelled `{here}`")

    def _operation(self, node: ast.expr) -> str:
        """Return the name of the context's method that ``node`` calls, or ""."""
        method = self._values.of(node.func, self._scope) if isinstance(node, ast.Call) else None
        return method.name if isinstance(method, ContextMethod) else ""


CONTAINERS = frozenset({
    "builtins.list()",
    "builtins.dict()",
    "builtins.set()",
    "collections.Counter()",
    "collections.OrderedDict()",
    "collections.defaultdict()",
    "collections.deque()",
})  # fmt: skip
MUTATORS = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop",
    "popitem", "popleft", "remove", "reverse", "rotate", "setdefault", "sort", "subtract", "update",
})  # fmt: skip


class Mutations(Part):
    """Reports assignments and method calls that change globals or the tool."""

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._check_target(target, node)
        super().visit_Assign(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._check_target(node.target, node)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._check_target(node.target, node)
        super().visit_AnnAssign(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self._check_target(target, node)
        self.generic_visit(node)

    def check_call(self, call: ast.Call) -> None:
        """Check a call of a method that changes a container."""
        match call.func:
            case ast.Attribute(changed, name) if name in MUTATORS:
                if self._values.external(changed, self._scope) in CONTAINERS:
                    self._check_change(changed, call, whole=False)
            case _:
                pass

    def _check_target(self, target: ast.expr, node: ast.stmt) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._check_target(each, node)
        elif isinstance(target, ast.Starred):
            self._check_target(target.value, node)
        else:
            self._check_change(target, node, whole=True)

    def _check_change(self, target: ast.expr, node: ast.stmt | ast.expr, *, whole: bool) -> None:
        """Report a change of an object that outlives the run; ``whole`` if the target may bind a name."""
        root, scope = target, self._scope
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        if not isinstance(root, ast.Name):
            return
        if whole and root is target and root.id not in scope.outside:
            return  # binds a local name
        value = self._values.of(root, scope)
        where, bindings = scope.find(root.id) or (scope, ())
        if isinstance(value, Instance) and self._check.is_tool(value.cls) and root is not target:
            self._emit("self-mutation", node, f"`{name_of(target)}`")
        elif self._check.is_shared(where) and any(isinstance(it, Assigned) for it in bindings):
            self._emit("global-mutation", node, f"`{name_of(target)}`")
