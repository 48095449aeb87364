"""Finds operations used without ``await``, and mutations of globals and of the tool."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from anabranch.replay_check._asks import name_of
from anabranch.replay_check._check import Part
from anabranch.replay_check._scopes import Assigned, ContextMethod, External, Instance

AWAITED = frozenset({
    "branch", "call_tool", "converse", "elicit", "elicit_url", "gather", "log", "notify", "patched",
    "race", "sample", "sleep", "sleep_until", "step",
})  # fmt: skip
AWAITING = frozenset({"gather", "race"})
"""Operations that await their arguments."""
KEEPING = frozenset({"builtins.id", "builtins.setattr", "builtins.type"})
"""Builtins that accept a coroutine as it is."""
OF_COROUTINES = frozenset({"close", "send", "throw", "cr_await", "cr_frame", "cr_running"})


READ: dict[type[ast.AST], str] = {
    ast.Assert: "test",
    ast.AsyncFor: "iter",
    ast.Expr: "value",
    ast.For: "iter",
    ast.FormattedValue: "value",
    ast.If: "test",
    ast.IfExp: "test",
    ast.Match: "subject",
    ast.Starred: "value",
    ast.UnaryOp: "operand",
    ast.While: "test",
}
"""The field whose value a statement or an operator uses."""


class Misuse(Part):
    def visit(self, node: ast.AST) -> None:
        """Report each operation that ``node`` uses without ``await``, in place of its value."""
        for used in map(_result_of, self._used_by(node)):
            made = used if isinstance(node, ast.Expr) else self._values.origin(used, self._scope)
            method = self._values.of(made.func, self._scope) if isinstance(made, ast.Call) else None
            if isinstance(method, ContextMethod) and method.name in AWAITED:
                self._emit("not-awaited", used, f"`{name_of(made)}`")
        super().visit(node)

    def _used_by(self, node: ast.AST) -> Sequence[ast.expr]:
        match node:
            case ast.Attribute(ctx=ast.Load()):
                is_method = isinstance(self._values.of(node, self._scope), ContextMethod)
                return () if is_method or node.attr in OF_COROUTINES else [node.value]
            case ast.Call():
                return node.args if self._takes_values(node.func) else ()
            case ast.Return(value=ast.expr() as value):
                return [value] if isinstance(self._scope.node, ast.AsyncFunctionDef) else ()
            case _:
                return _read_by(node)

    def _takes_values(self, function: ast.expr) -> bool:
        """Return whether ``function`` uses its arguments, and cannot await them."""
        match self._values.of(function, self._scope):
            case External(name=name):
                return name.startswith("builtins.") and name not in KEEPING
            case ContextMethod(name=name):
                return name not in AWAITING
            case _:
                return False


def _read_by(node: ast.AST) -> Sequence[ast.expr]:  # noqa: PLR0911 - one for each kind
    match node:
        case ast.Assign(targets=[ast.Tuple() | ast.List()], value=value):
            return [value]
        case ast.Subscript(ctx=ast.Load(), value=value):
            return [value]
        case ast.BoolOp(values=[*tests, _]):
            return tests
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):  # such as ``later is not None``
            return ()
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.comprehension(iter=value, ifs=tests):
            return [value, *tests]
        case _:
            field = READ.get(type(node))
            return () if field is None else [getattr(node, field)]


def _result_of(node: ast.expr) -> ast.expr:
    """Return the last operand of ``and`` or ``or``, which may be the result of ``node``."""
    return _result_of(node.values[-1]) if isinstance(node, ast.BoolOp) else node


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
