"""A running check, and the visitor of one function that each group of rules extends."""

from __future__ import annotations

import ast

from anabranch.replay_check._asks import Asks, name_of
from anabranch.replay_check._rules import RULES, Finding
from anabranch.replay_check._scopes import Class, ContextMethod, Function, Scope
from anabranch.replay_check._sources import Library
from anabranch.replay_check._values import Values


class Check:
    """A running check of ``root``, the function that every round runs; its owner is the tool's class."""

    def __init__(self, library: Library, root: Function) -> None:
        self.findings: dict[Finding, None] = {}
        self.pending: list[Function] = []
        self.values: Values = Values(library)
        self.asks: Asks = Asks(self.values)
        self._root = root
        self._done: set[tuple[Scope, Class | None, int]] = set()

    def follow(self, function: Function) -> None:
        """Queue a function for the check, again if more of its parameters prove to be contexts."""
        if function.scope.module.is_safe_function(function.node):
            return
        contexts = sum(scope is function.scope for scope, _ in self.values.contexts)
        state = (function.scope, function.owner, contexts)
        if state not in self._done:
            self._done.add(state)
            if function.owner is not None:
                self.values.owners[function.scope] = function.owner
            self.pending.append(function)

    def is_shared(self, scope: Scope) -> bool:
        """Return whether the names that a scope binds outlive one run of the body."""
        return scope.parent is None or scope.encloses(self._root.scope)

    def is_tool(self, cls: Class) -> bool:
        return cls == self._root.owner


class Part(ast.NodeVisitor):
    """Visits one function for one group of rules; nested functions are checked at their calls."""

    def __init__(self, check: Check, scope: Scope) -> None:
        self._check = check
        self._values = check.values
        self._asks = check.asks
        self._scope = scope
        self._in_step = False

    def check_call(self, call: ast.Call) -> None:
        """Check a call that is no step."""

    def visit_Call(self, node: ast.Call) -> None:
        if self._values.of(node.func, self._scope) != ContextMethod("step"):
            self.check_call(node)
            self.generic_visit(node)
            return
        outer = self._in_step
        undos = [keyword for keyword in node.keywords if keyword.arg == "undo"]
        for each in (*node.args, *node.keywords):
            self._in_step = outer or each in (*node.args[:1], *undos)
            self.visit(each)
        self._in_step = outer

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        defaults = [default for default in node.args.kw_defaults if default is not None]
        for expression in (*node.decorator_list, *node.args.defaults, *defaults):
            self.visit(expression)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        if not self._in_step:
            outer, self._scope = self._scope, self._scope.module.scopes[node]
            self.visit(node.body)
            self._scope = outer

    def visit_Assign(self, node: ast.Assign) -> None:
        # A lambda with a name is an ordinary function.
        if not (isinstance(node.value, ast.Lambda) and isinstance(node.targets[0], ast.Name)):
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def _emit(self, rule: str, node: ast.stmt | ast.expr, found: str | None = None) -> None:
        """Report ``node``, unless its line is marked as safe; ``found`` names the code."""
        module = self._scope.module
        if not module.is_safe(node):
            reason, fix = RULES[rule]
            place = module.path, node.lineno, node.col_offset + 1
            reason = reason.format(found or f"`{name_of(node)}`")
            self._check.findings[Finding(rule, *place, reason, fix)] = None
