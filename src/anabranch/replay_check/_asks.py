"""Finds code that asks a question, and background work while a question is open.

A question is asked by a method of a context, or by a function that asks. ``Beside`` has the rule about
tasks and clients that run meanwhile. ``Part`` is the base of the checks.

The search follows contexts from call to call. A call that passes its context to a function without
known source counts as asking.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from anabranch.replay_check._scopes import (
    FUNCTIONS,
    Class,
    Context,
    ContextMethod,
    External,
    Function,
    Instance,
    Scope,
    Value,
    parameters_of,
)
from anabranch.replay_check._values import Values

ASKS = frozenset({"sample", "elicit", "elicit_url", "converse", "sleep", "sleep_until"})

CONVERSE = ContextMethod("converse")
"""``ctx.converse``, which names its steps when it runs, like an author's function."""


def own_nodes(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
    """Yield ``node`` and all nodes in it, with their scopes, without the bodies of definitions."""
    yield node, scope
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    inner = scope.module.scopes[node] if isinstance(node, ast.Lambda) else scope
    for child in ast.iter_child_nodes(node):
        yield from own_nodes(child, inner)


def name_of(node: ast.expr) -> str:
    """Return the source of an expression, in one line of limited length."""
    text = " ".join(ast.unparse(node).split())
    longest = 60
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class Asks:
    """Finds the calls in the source that ask a question."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._in_progress: set[ast.AST] = set()

    def first(
        self, nodes: Iterable[ast.AST], scope: Scope, *, unnamed: bool = False
    ) -> ast.Call | None:
        """Return the first call among ``nodes`` that asks, or ``None``.

        ``unnamed`` skips questions that the author has named (``key=``).
        """
        for node in nodes:
            for inner, where in own_nodes(node, scope):
                if isinstance(inner, ast.Call) and self._asks(inner, where, unnamed=unnamed):
                    return inner
        return None

    def directly(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether ``node`` calls a method of a context that gives its step an id at once."""
        method = self._values.of(node.func, scope) if isinstance(node, ast.Call) else None
        return isinstance(method, ContextMethod) and method != CONVERSE

    def follow_contexts(self, function: Function, call: ast.Call, scope: Scope) -> None:
        """Record the parameters of ``function`` that receive a context from ``call``."""
        names = [arg.arg for arg in parameters_of(function.node)]
        by_position = names[1:] if function.owner is not None else names
        given = [*zip(by_position, call.args, strict=False)]
        given += [(keyword.arg or "", keyword.value) for keyword in call.keywords]
        for name, value in given:
            if isinstance(self._values.of(value, scope), Context):
                self._values.contexts.add((function.scope, name))

    def first_parameter_is_context(self, function: Function) -> None:
        """Record that ``function`` is called as ``fn(branch_ctx, *args)``."""
        names = [arg.arg for arg in parameters_of(function.node)]
        place = 1 if function.owner is not None else 0
        self._values.contexts.update((function.scope, name) for name in names[place : place + 1])

    def _asks(self, call: ast.Call, scope: Scope, *, unnamed: bool) -> bool:
        value = self._values.of(call.func, scope)
        match value:
            case ContextMethod(name="branch"):
                return self._branch_asks(call, scope, unnamed=unnamed)
            case ContextMethod(name=name):
                named = unnamed and any(keyword.arg == "key" for keyword in call.keywords)
                return name == "call_tool" or (name in ASKS and not named)
            case Function():
                self.follow_contexts(value, call, scope)
                return self._function_asks(value, unnamed=unnamed)
            case _:
                given = [*call.args, *(keyword.value for keyword in call.keywords)]
                return any(isinstance(self._values.of(each, scope), Context) for each in given)

    def _branch_asks(self, call: ast.Call, scope: Scope, *, unnamed: bool) -> bool:
        for keyword in call.keywords:
            if keyword.arg == "name" and not isinstance(keyword.value, ast.Constant) and unnamed:
                return False
        value = self._values.of(call.args[0], scope) if call.args else None
        if not isinstance(value, Function):
            return True
        self.first_parameter_is_context(value)
        return self._function_asks(value, unnamed=False)

    def _function_asks(self, function: Function, *, unnamed: bool) -> bool:
        if function.node in self._in_progress:
            return False  # a recursion: the calls around this one decide
        self._in_progress.add(function.node)
        if function.owner is not None:
            self._values.owners[function.scope] = function.owner
        body = function.node.body
        nodes: Iterable[ast.AST] = [body] if isinstance(body, ast.expr) else body
        try:
            return self.first(nodes, function.scope, unnamed=unnamed) is not None
        finally:
            self._in_progress.discard(function.node)


class Check(Protocol):
    """The interface that a running check offers to its parts, such as :class:`Beside`."""

    values: Values
    asks: Asks

    def emit(self, rule: str, found: str, node: ast.stmt | ast.expr, scope: Scope) -> None:
        """Report a finding, unless its line is marked as safe."""
        ...

    def follow(self, function: Function) -> None:
        """Check a function that the body runs."""
        ...

    def is_shared(self, scope: Scope) -> bool:
        """Return whether the names that a scope binds outlive one run of the body."""
        ...

    def is_tool(self, cls: Class) -> bool:
        """Return whether a class is the tool's class."""
        ...


class Part:
    """The base class of a check's parts; each part checks one group of rules."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._values = check.values
        self._asks = check.asks
        self._emit = check.emit

    def _name(self, node: ast.expr, scope: Scope) -> str:
        """Return the dotted name of a value from outside of the tool's modules, or ""."""
        value = self._values.of(node, scope)
        return value.name if isinstance(value, External) else ""


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
ENTERS = frozenset({"enter_async_context", "enter_context"})


class Beside(Part):
    """Checks the work that a function starts next to its questions."""

    def check_call(self, call: ast.Call, scope: Scope) -> None:
        """Report background work in a function that asks: a task without steps, or a client."""
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
        """Report a client whose tasks run while a question in its ``with`` block is open."""
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
        """Return the ``__aenter__`` of an instance of the tool's own classes, or ``None``."""
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
    """Yield the calls in a helper, without contexts that end before it yields or returns."""
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
