"""Finds the code that asks a question, and the base of the checks of the code around it.

A question is asked by a method of a context, or by a function that asks.

The search follows contexts from call to call. A call that passes its context to a function without
known source counts as asking.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Protocol

from anabranch.replay_check._scopes import (
    Class,
    Context,
    ContextMethod,
    External,
    Function,
    Scope,
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
    """Finds the calls that ask."""

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
        """Return whether an expression calls a method of a context, which names its step immediately."""
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
    """A running check, as its parts see it."""

    values: Values
    asks: Asks

    def emit(self, rule: str, found: str, node: ast.stmt | ast.expr, scope: Scope) -> None:
        """Report a finding."""
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
    """The base of the parts of a check, each of which checks one group of rules."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._values = check.values
        self._asks = check.asks
        self._emit = check.emit

    def _name(self, node: ast.expr, scope: Scope) -> str:
        """Return the dotted name of a value from outside of the tool's modules, or ""."""
        value = self._values.of(node, scope)
        return value.name if isinstance(value, External) else ""
