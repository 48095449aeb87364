"""Finds the calls that ask a question, by a method of a context or by a function that asks.

A call that passes its context to a function without known source counts as asking.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from anabranch.replay_check._scopes import Context, ContextMethod, Function, Scope, parameters_of
from anabranch.replay_check._values import Values

ASKS = frozenset({"sample", "elicit", "elicit_url", "converse", "sleep", "sleep_until"})


def own_nodes(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
    """Yield ``node`` and all nodes in it, with their scopes, without the bodies of definitions."""
    yield node, scope
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    inner = scope.module.scopes[node] if isinstance(node, ast.Lambda) else scope
    for child in ast.iter_child_nodes(node):
        yield from own_nodes(child, inner)


def name_of(node: ast.AST) -> str:
    """Return the source of ``node``, in one line of limited length."""
    text = " ".join(ast.unparse(node).split())
    longest = 60
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def given_in(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


class Asks:
    def __init__(self, values: Values) -> None:
        self._values = values
        self._in_progress: set[ast.AST] = set()

    def first(
        self, nodes: Iterable[ast.AST], scope: Scope, *, unnamed: bool = False
    ) -> ast.Call | None:
        """Return the first call among ``nodes`` that asks; ``unnamed`` skips questions with a ``key=``."""
        for node in nodes:
            for inner, where in own_nodes(node, scope):
                if isinstance(inner, ast.Call) and self._asks(inner, where, unnamed=unnamed):
                    return inner
        return None

    def directly(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether ``node`` calls a method of a context that gives its step an id at once."""
        method = self._values.of(node.func, scope) if isinstance(node, ast.Call) else None
        # ``ctx.converse`` names its steps when it runs, like an author's function.
        return isinstance(method, ContextMethod) and method.name != "converse"

    def follow_contexts(self, function: Function, call: ast.Call, scope: Scope) -> None:
        given = [*zip(_parameters(function), call.args, strict=False)]
        given += [(keyword.arg or "", keyword.value) for keyword in call.keywords]
        for name, value in given:
            if isinstance(self._values.of(value, scope), Context):
                self._values.contexts.add((function.scope, name))

    def first_parameter_is_context(self, function: Function) -> None:
        """Record that ``function`` is called as ``fn(branch_ctx, *args)``."""
        self._values.contexts.update((function.scope, name) for name in _parameters(function)[:1])

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
                return any(
                    isinstance(self._values.of(each, scope), Context) for each in given_in(call)
                )

    def _branch_asks(self, call: ast.Call, scope: Scope, *, unnamed: bool) -> bool:
        names = [each.value for each in call.keywords if each.arg == "name"]
        if unnamed and not all(isinstance(each, ast.Constant) for each in names):
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
        try:
            return self.first(function.scope.body, function.scope, unnamed=unnamed) is not None
        finally:
            self._in_progress.discard(function.node)


def _parameters(function: Function) -> list[str]:
    """Return the names of the parameters that a caller gives, without ``self`` of a method."""
    names = [arg.arg for arg in parameters_of(function.node)]
    return names[1:] if function.owner is not None else names
