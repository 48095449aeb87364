"""Finds operations without ``await``, and mutations of globals and of the tool."""

from __future__ import annotations

import ast

from anabranch.replay_check._asks import name_of
from anabranch.replay_check._check import Part
from anabranch.replay_check._scopes import Assigned, ContextMethod, Instance

AWAITED = frozenset({
    "branch", "call_tool", "converse", "elicit", "elicit_url", "gather", "log", "notify", "patched",
    "race", "sample", "sleep", "sleep_until", "step",
})  # fmt: skip
OF_COROUTINES = frozenset({"close", "send", "throw", "cr_await", "cr_frame", "cr_running"})


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
        is_method = isinstance(self._values.of(node, self._scope), ContextMethod)
        if isinstance(node.ctx, ast.Load) and not is_method and node.attr not in OF_COROUTINES:
            self._check_awaited(self._values.origin(node.value, self._scope), node)
        self.generic_visit(node)

    def _check_awaited(self, made: ast.expr, used: ast.expr) -> None:
        """Report ``used`` if it uses an operation, ``made``, in place of the operation's value."""
        method = self._values.of(made.func, self._scope) if isinstance(made, ast.Call) else None
        if isinstance(method, ContextMethod) and method.name in AWAITED:
            self._emit("not-awaited", used, f"`{name_of(made)}`")


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
