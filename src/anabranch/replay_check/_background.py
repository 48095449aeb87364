"""The rule about work that a function starts next to its questions: tasks, and clients with tasks."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from anabranch.replay_check._asks import given_in, own_nodes
from anabranch.replay_check._check import Part
from anabranch.replay_check._scopes import Context, Function, Instance, Scope
from anabranch.replay_check._values import Value

RULE = "work-during-ask"
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
            self._emit(RULE, call)
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
            self._emit(RULE, entered)

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
