"""The rules about code around questions: ``finally``, timeouts, and order."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from anabranch.replay_check._asks import name_of, own_nodes
from anabranch.replay_check._check import Part
from anabranch.replay_check._scopes import ContextMethod, Scope

TIMEOUTS = frozenset({
    "asyncio.timeout()",
    "asyncio.timeout_at()",
    "async_timeout.timeout()",
    "anyio.fail_after()",
    "anyio.move_on_after()",
})  # fmt: skip
CLOSING = re.compile(
    r"_*(a?close|clean|release|dispose|stop|shut|disconnect|cancel|terminate|wait|join|gather|exit"
    r"|aexit|teardown|unlock|end)"
)
UNORDERED = re.compile(
    r"(builtins\.(set|frozenset)|typing\.(Set|FrozenSet|AbstractSet)"
    r"|collections\.abc\.(Set|MutableSet))"
    r"\(\)(\.(union|intersection|difference|symmetric_difference|copy)\(\))*$"
)
PASSING = frozenset({"list", "tuple", "iter", "enumerate", "reversed", "map", "filter", "zip"})
"""Builtins that preserve the order of their argument, so that a set in them stays unordered."""


class Suspension(Part):
    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        around = [*node.body, *node.handlers, *node.orelse]
        if node.finalbody and self._asks.first(around, self._scope) is not None:
            self._check_finally(node.finalbody)
        self.generic_visit(node)

    visit_TryStar = visit_Try

    def _check_finally(self, body: Sequence[ast.stmt]) -> None:
        asked = self._asks.first(body, self._scope)
        if asked is not None:
            self._emit("ask-in-finally", asked)
        for statement in body:
            for node, scope in own_nodes(statement, self._scope):
                if isinstance(node, ast.Await) and self._does_more_than_close(node, scope):
                    self._emit("await-in-finally", node)

    def _does_more_than_close(self, node: ast.Await, scope: Scope) -> bool:
        if not isinstance(node.value, ast.Call):
            return False
        function = node.value.func
        if isinstance(self._values.of(function, scope), ContextMethod):
            return False  # runs only when the block is left for good
        if self._asks.first([node.value], scope) is not None:
            return False  # reported as a question
        return CLOSING.match(name_of(function).rpartition(".")[2]) is None

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            name = self._values.external(item.context_expr, self._scope)
            if name in TIMEOUTS and self._asks.first(node.body, self._scope) is not None:
                self._emit("timeout-around-ask", item.context_expr)
        self.generic_visit(node)

    visit_AsyncWith = visit_With

    def check_call(self, call: ast.Call) -> None:
        name = self._values.external(call.func, self._scope)
        has_timeout = any(keyword.arg == "timeout" for keyword in call.keywords)
        limited = name == "asyncio.wait_for" or (name == "asyncio.wait" and has_timeout)
        if limited and self._asks.first(call.args, self._scope) is not None:
            self._emit("timeout-around-ask", call, f"`{name}`")
        for arg in call.args:
            given = arg.value if isinstance(arg, ast.Starred) else arg
            starts = isinstance(given, ast.Set) and self._is_unordered(given)
            if starts and self._asks.first([given], self._scope, unnamed=True) is not None:
                self._emit("unordered-asks", given)

    def visit_For(self, node: ast.For) -> None:
        self._check_order(node.iter, node.body)
        self.generic_visit(node)

    def visit_ListComp(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for generator in node.generators:
            self._check_order(generator.iter, parts)
        self.generic_visit(node)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def _check_order(self, over: ast.expr, body: Sequence[ast.AST]) -> None:
        if self._is_unordered(over) and self._asks.first(body, self._scope, unnamed=True):
            self._emit("unordered-asks", over, f"`{name_of(over)}`, a set,")

    def _is_unordered(self, node: ast.expr) -> bool:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in PASSING:
                return any(map(self._is_unordered, node.args))
            case ast.Set():
                return not all(map(_is_number, node.elts))
            case _:
                return UNORDERED.match(self._values.external(node, self._scope)) is not None


def _is_number(node: ast.expr) -> bool:
    """Return whether a node is a number: a set of numbers has the same order in every process."""
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)
