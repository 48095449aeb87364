"""Mutations of what outlives one run of the body: globals, and the tool itself."""

from __future__ import annotations

import ast

from anabranch.replay_check._asks import name_of
from anabranch.replay_check._check_port import Check
from anabranch.replay_check._scopes import Assigned, Scope
from anabranch.replay_check._value_kinds import External, Instance

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


class Mutations:
    """Reports assignments and method calls that change globals or the tool."""

    def __init__(self, check: Check) -> None:
        self._check = check

    def check_target(self, target: ast.expr, node: ast.stmt, scope: Scope) -> None:
        """Check a target that is assigned to or deleted."""
        if isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self.check_target(each, node, scope)
        elif isinstance(target, ast.Starred):
            self.check_target(target.value, node, scope)
        else:
            self._check_change(target, node, scope, whole=True)

    def check_call(self, node: ast.Call, scope: Scope) -> None:
        """Check a call of a method that changes a container."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in MUTATORS:
            value = self._check.values.of(function.value, scope)
            if isinstance(value, External) and value.name in CONTAINERS:
                self._check_change(function.value, node, scope, whole=False)

    def _check_change(
        self, target: ast.expr, node: ast.stmt | ast.expr, scope: Scope, *, whole: bool
    ) -> None:
        """Report a change of what outlives the run; ``whole`` if the target may bind a name."""
        root = target
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        if not isinstance(root, ast.Name):
            return
        bound_here = whole and root is target and root.id not in scope.outside
        if bound_here:
            return
        value = self._check.values.of(root, scope)
        if isinstance(value, Instance) and self._check.is_tool(value.cls) and root is not target:
            self._check.emit("self-mutation", f"`{name_of(target)}`", node, scope)
            return
        found = scope.find(root.id)
        if found is None or not self._check.is_shared(found[0]):
            return
        if any(isinstance(binding, Assigned) for binding in found[1]):
            self._check.emit("global-mutation", f"`{name_of(target)}`", node, scope)
