"""Finds uses of a context that fail or do nothing, and mutations that outlive a run.

``Misuse`` finds an operation without ``await``, and arguments or names in the style of another
library (the ``Context`` of the MCP Python SDK and of FastMCP). ``Mutations`` finds changes of
globals and of the tool.
"""

from __future__ import annotations

import ast

from anabranch._context import BranchContext
from anabranch.replay_check._asks import Part, name_of
from anabranch.replay_check._scopes import Assigned, Class, ContextMethod, External, Instance, Scope

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
    def check_statement(self, node: ast.Expr, scope: Scope) -> None:
        """Report an operation that is a statement without ``await``, and so never starts."""
        self._check_awaited(node.value, node.value, scope)

    def check_condition(self, test: ast.expr, scope: Scope) -> None:
        """Report an operation that a condition uses without ``await``, and that is always true."""
        if isinstance(test, ast.BoolOp):
            for each in test.values:
                self.check_condition(each, scope)
        elif isinstance(test, ast.UnaryOp):
            self.check_condition(test.operand, scope)
        else:
            self._check_awaited(self._values.origin(test, scope), test, scope)

    def check_attribute(self, node: ast.Attribute, scope: Scope) -> None:
        """Check the attributes that are read from a context, an operation, or an answer."""
        origin = self._values.origin(node.value, scope)
        if isinstance(node.ctx, ast.Load):
            method = self._values.of(node, scope)
            if isinstance(method, ContextMethod):
                self._check_name(method.name, node, scope)
            elif node.attr not in OF_COROUTINES:
                self._check_awaited(origin, node, scope)
        if node.attr != "data" or not isinstance(origin, ast.Await):
            return
        if self._operation(origin.value, scope) == "elicit":
            self._foreign(node, f"{name_of(node.value)}.content", scope)

    def check_call(self, node: ast.Call, scope: Scope) -> None:
        """Check the order of the arguments of ``ctx.elicit``."""
        if self._operation(node, scope) != "elicit":
            return
        swapped = any(keyword.arg in SCHEMAS for keyword in node.keywords)
        if len(node.args) > 1 and isinstance(node.args[0], ast.Constant | ast.JoinedStr):
            model = self._values.of(node.args[1], scope)
            builtin = isinstance(model, External) and model.name.startswith("builtins.str()")
            swapped |= isinstance(model, Class | External) and not builtin
        if swapped:
            self._emit("swapped-arguments", node, scope)

    def _check_awaited(self, made: ast.expr, used: ast.expr, scope: Scope) -> None:
        """Report ``used`` if it uses an operation, ``made``, in place of the operation's value."""
        if self._operation(made, scope) in AWAITED:
            self._emit("not-awaited", used, scope, f"`{name_of(made)}`")

    def _check_name(self, name: str, node: ast.Attribute, scope: Scope) -> None:
        if name in FOREIGN:
            self._foreign(node, FOREIGN[name], scope)
        elif name not in FIELDS and not hasattr(BranchContext, name):
            self._emit("unknown-operation", node, scope)

    def _foreign(self, node: ast.expr, here: str, scope: Scope) -> None:
        self._emit("foreign-spelling", node, scope, f"`{name_of(node)}` is spelled `{here}`")

    def _operation(self, node: ast.expr, scope: Scope) -> str:
        """Return the name of the context's method that ``node`` calls, or ""."""
        method = self._values.of(node.func, scope) if isinstance(node, ast.Call) else None
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

    def check_target(self, target: ast.expr, node: ast.stmt, scope: Scope) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self.check_target(each, node, scope)
        elif isinstance(target, ast.Starred):
            self.check_target(target.value, node, scope)
        else:
            self._check_change(target, node, scope, whole=True)

    def check_call(self, node: ast.Call, scope: Scope) -> None:
        """Check a call of a method that changes a container."""
        match node.func:
            case ast.Attribute(changed, name) if name in MUTATORS:
                if self._values.external(changed, scope) in CONTAINERS:
                    self._check_change(changed, node, scope, whole=False)
            case _:
                pass

    def _check_change(
        self, target: ast.expr, node: ast.stmt | ast.expr, scope: Scope, *, whole: bool
    ) -> None:
        """Report a change of an object that outlives the run; ``whole`` if the target may bind a name."""
        root = target
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        if not isinstance(root, ast.Name):
            return
        if whole and root is target and root.id not in scope.outside:
            return  # binds a local name
        value = self._values.of(root, scope)
        where, bindings = scope.find(root.id) or (scope, ())
        if isinstance(value, Instance) and self._check.is_tool(value.cls) and root is not target:
            self._emit("self-mutation", node, scope, f"`{name_of(target)}`")
        elif self._check.is_shared(where) and any(isinstance(it, Assigned) for it in bindings):
            self._emit("global-mutation", node, scope, f"`{name_of(target)}`")
