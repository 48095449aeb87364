"""The rules about code around and during questions: ``finally``, timeouts, order, and tasks."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from anabranch.replay_check._asks import given_in, name_of, own_nodes
from anabranch.replay_check._check import Part
from anabranch.replay_check._scopes import Context, ContextMethod, Function, Instance, Scope
from anabranch.replay_check._values import Value

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


STARTS = re.compile(
    r"asyncio\.(create_task|ensure_future|TaskGroup\(\)\.create_task"
    r"|(get_running_loop|get_event_loop)\(\)\.create_task)"
)
STARTS_SOON = re.compile(r"anyio\.create_task_group\(\)\.start(_soon)?")
"""Functions that take a function and its arguments, in place of a coroutine."""
CLIENTS = re.compile(
    r"((mcp|fastmcp)(\.\w+)*\.Client"
    r"|mcp\.([\w.]+\.)?(ClientSession|ClientSessionGroup|stdio_client|sse_client|streamable_http_client)"
    r"|anabranch\.agents\.RemoteTools)\(\)(\.__aenter__\(\))?"
)
"""Clients that run tasks while they are open."""
_WITH = (ast.With, ast.AsyncWith)


class Background(Part):
    def check_call(self, call: ast.Call) -> None:
        scope, started = self._scope, self._started(call)
        if started and not self._is_durable(started) and self._asks.first(scope.body, scope):
            self._emit("work-during-ask", call)
        match call.func:
            case ast.Attribute(client, "__aenter__"):
                self._check_client(client, scope.body)
            case ast.Attribute(stack, "enter_async_context" | "enter_context") if call.args:
                self._check_client(call.args[0], _block_of(stack, call, scope))
            case _:
                pass

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self._check_client(item.context_expr, node.body)
        self.generic_visit(node)

    visit_AsyncWith = visit_With

    def _check_client(self, entered: ast.expr, during: Sequence[ast.AST]) -> None:
        if self._opens_client(entered, self._scope) and self._asks.first(during, self._scope):
            self._emit("work-during-ask", entered)

    def _opens_client(self, entered: ast.expr, scope: Scope, seen: tuple[Value, ...] = ()) -> bool:
        if CLIENTS.fullmatch(self._values.external(entered, scope)):
            return True
        value = self._values.of(entered, scope)
        helpers: list[Value] = []
        if isinstance(value, Instance):
            helpers.append(self._values.attribute(value, "__aenter__"))
        if isinstance(entered, ast.Call):
            helpers.append(self._values.of(entered.func, scope))
        return any(
            self._opens_client(call, helper.scope, (*seen, helper))
            for helper in helpers
            if isinstance(helper, Function) and helper not in seen
            for call in _calls_in(helper)
        )

    def _started(self, call: ast.Call) -> ast.expr | None:
        name = self._values.external(call.func, self._scope)
        if call.args and STARTS.fullmatch(name):
            return call.args[0]
        if call.args and STARTS_SOON.fullmatch(name):
            return ast.Call(func=call.args[0], args=call.args[1:], keywords=[])
        return None

    def _is_durable(self, started: ast.expr) -> bool:
        """Return whether a task asks, or gets the context and may do its work in steps."""
        scope = self._scope
        if self._asks.directly(started, scope) or self._asks.first([started], scope) is not None:
            return True
        given = given_in(started) if isinstance(started, ast.Call) else []
        return any(isinstance(self._values.of(each, scope), Context) for each in given)


def _block_of(stack: ast.expr, call: ast.Call, scope: Scope) -> Sequence[ast.AST]:
    """Return the code during which ``stack`` is open, on which ``call`` enters a client."""
    for block in ast.walk(scope.node):
        if isinstance(block, _WITH) and call in ast.walk(block):
            names = [each.optional_vars for each in block.items if each.optional_vars]
            if ast.unparse(stack) in map(ast.unparse, names):
                return block.body
    return scope.body


def _calls_in(helper: Function) -> list[ast.Call]:
    """Return the calls in a helper, without contexts that end before it yields or returns."""
    scope = helper.scope
    nodes = [inner for node in scope.body for inner, _ in own_nodes(node, scope)]
    left = {
        item.context_expr
        for block in nodes
        if isinstance(block, _WITH)
        and not any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(block))
        for item in block.items
    }
    return [node for node in nodes if isinstance(node, ast.Call) and node not in left]
