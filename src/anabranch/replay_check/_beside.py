"""The rule about background work during a question: started tasks, and open clients."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import partial

from anabranch.replay_check._asks import Part, name_of, own_nodes
from anabranch.replay_check._scopes import (
    FUNCTIONS,
    Context,
    External,
    Function,
    Instance,
    Scope,
    Value,
)

RULE = "work-beside-ask"
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
ENTERS = frozenset({"enter_async_context", "enter_context"})


class Beside(Part):
    """Checks the work that a function starts next to its questions."""

    def check_call(self, call: ast.Call, scope: Scope) -> None:
        """Check for a background task, in a function that asks, that neither asks nor is a step."""
        started = self._started(call, scope)
        if started is not None and not self._is_durable(started, scope) and self._asks_in(scope):
            self._emit(RULE, f"`{name_of(call)}`", call, scope)
        match call.func:
            case ast.Attribute(attr="__aenter__", value=entered):
                asks = self._asks_in
            case ast.Attribute(attr=name, value=stack) if name in ENTERS and call.args:
                entered, asks = call.args[0], partial(self._asks_in_block_of, stack, call)
            case _:
                return
        if self._opens_client(entered, scope) and asks(scope):
            self._emit(RULE, f"`{name_of(entered)}`", entered, scope)

    def check_with(self, node: ast.With | ast.AsyncWith, scope: Scope) -> None:
        """Check for a client whose tasks run while a question is open."""
        for item in node.items:
            entered = item.context_expr
            if self._asks.first(node.body, scope) is None:
                return
            if self._opens_client(entered, scope):
                self._emit(RULE, f"`{name_of(entered)}`", entered, scope)

    def _opens_client(self, entered: ast.expr, scope: Scope, seen: tuple[Value, ...] = ()) -> bool:
        """Return whether ``entered`` opens a client, directly or through a helper."""
        value = self._values.of(entered, scope)
        if isinstance(value, External) and CLIENTS.fullmatch(value.name):
            return True
        made = self._values.of(entered.func, scope) if isinstance(entered, ast.Call) else None
        helpers = [each for each in (self._entering(value), made) if isinstance(each, Function)]
        return any(
            self._opens_client(call, helper.scope, (*seen, helper))
            for helper in helpers
            if helper not in seen
            for call in _calls_in(helper)
        )

    def _entering(self, value: Value) -> Value:
        """Return the method that runs when an instance is entered."""
        is_own = isinstance(value, Instance)
        return self._values.attribute(value, "__aenter__") if is_own else None

    def _started(self, call: ast.Call, scope: Scope) -> ast.expr | None:
        """Return the coroutine that ``call`` starts in a task, or ``None``."""
        name = self._name(call.func, scope)
        if call.args and STARTS.fullmatch(name):
            return call.args[0]
        if call.args and STARTS_SOON.fullmatch(name):
            return ast.Call(func=call.args[0], args=call.args[1:], keywords=[])
        return None

    def _is_durable(self, started: ast.expr, scope: Scope) -> bool:
        """Return whether a task asks, or gets the context and may do its work in steps."""
        if self._asks.directly(started, scope) or self._asks.first([started], scope) is not None:
            return True
        given = started.args if isinstance(started, ast.Call) else []
        return any(isinstance(self._values.of(each, scope), Context) for each in given)

    def _asks_in(self, scope: Scope) -> bool:
        """Return whether the function of ``scope`` asks."""
        node = scope.node
        if not isinstance(node, FUNCTIONS):
            return False
        body = [node.body] if isinstance(node.body, ast.expr) else node.body
        return self._asks.first(body, scope) is not None

    def _asks_in_block_of(self, stack: ast.expr, call: ast.Call, scope: Scope) -> bool:
        """Return whether the function asks while ``stack`` is open, on which ``call`` enters a client."""
        for block in ast.walk(scope.node):
            if isinstance(block, _WITH) and call in ast.walk(block):
                names = (each.optional_vars for each in block.items if each.optional_vars)
                if any(ast.unparse(name) == ast.unparse(stack) for name in names):
                    return self._asks.first(block.body, scope) is not None
        return self._asks_in(scope)


def _calls_in(function: Function) -> Iterator[ast.Call]:
    """Yield the calls in a helper, without those in blocks that it has left when it yields or returns."""
    body = function.node.body
    nodes = _nodes([body] if isinstance(body, ast.expr) else body, function.scope)
    left = {
        item.context_expr
        for block in nodes
        if isinstance(block, _WITH)
        and not any(
            isinstance(each, (ast.Yield, ast.YieldFrom))
            for each in _nodes(block.body, function.scope)
        )
        for item in block.items
    }
    for node in nodes:
        if isinstance(node, ast.Call) and node not in left:
            yield node


def _nodes(body: Sequence[ast.AST], scope: Scope) -> list[ast.AST]:
    return [inner for node in body for inner, _ in own_nodes(node, scope)]
