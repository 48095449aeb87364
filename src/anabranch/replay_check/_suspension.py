"""The rules about code around questions: cancellation, ``finally``, timeouts, and order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from anabranch.replay_check._asks import CONVERSE, Part, name_of, own_nodes
from anabranch.replay_check._scopes import ContextMethod, External, Function, Scope

CANCELLATION = frozenset({
    "builtins.BaseException",
    "asyncio.CancelledError",
    "asyncio.exceptions.CancelledError",
    "concurrent.futures.CancelledError",
    "anyio.get_cancelled_exc_class()",
})  # fmt: skip
TIMEOUTS = frozenset({
    "asyncio.timeout",
    "asyncio.timeout_at",
    "asyncio.wait_for",
    "async_timeout.timeout",
    "anyio.fail_after",
    "anyio.move_on_after",
})  # fmt: skip
CLOSING = re.compile(
    r"_*(a?close|clean|release|dispose|stop|shut|disconnect|cancel|terminate|wait|join|gather|exit"
    r"|__aexit__|teardown|unlock|end|aclose)"
)
UNORDERED = re.compile(
    r"(builtins\.(set|frozenset)|typing\.(Set|FrozenSet|AbstractSet)"
    r"|collections\.abc\.(Set|MutableSet))"
    r"\(\)(\.(union|intersection|difference|symmetric_difference|copy)\(\))*$"
)
PASSING = frozenset({"list", "tuple", "iter", "enumerate", "reversed", "map", "filter", "zip"})
"""Builtins that preserve the order of their argument, so that a set in them stays unordered."""

Loop = ast.For | ast.AsyncFor
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Suspension(Part):
    """Checks the code around questions."""

    # -- cancellation --------------------------------------------------------------------------

    def check_try(self, node: ast.Try | ast.TryStar, scope: Scope) -> None:
        """Check the handlers around questions, and the code of a ``finally`` block."""
        if self._asks.first(node.body, scope) is not None:
            self._check_handlers(node.handlers, scope)
        around = [*node.body, *node.handlers, *node.orelse]
        if node.finalbody and self._asks.first(around, scope) is not None:
            self._check_finally(node.finalbody, scope)

    def _check_handlers(self, handlers: Sequence[ast.ExceptHandler], scope: Scope) -> None:
        for handler in handlers:
            if self._catches_cancellation(handler.type, scope):
                if not _raises_again(handler):
                    what = (
                        f"`except {name_of(handler.type)}`" if handler.type else "A bare `except`"
                    )
                    # The line of the handler, which is not an expression.
                    place = ast.copy_location(ast.Pass(), handler)
                    place.end_lineno = handler.lineno
                    self._emit("swallowed-cancellation", what, place, scope)
                return  # the cancellation does not reach the handlers below

    def _catches_cancellation(self, caught: ast.expr | None, scope: Scope) -> bool:
        if caught is None:
            return True
        if isinstance(caught, ast.Tuple):
            return any(self._catches_cancellation(each, scope) for each in caught.elts)
        value = self._values.of(caught, scope)
        return isinstance(value, External) and value.name in CANCELLATION

    def _check_finally(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        asked = self._asks.first(body, scope)
        if asked is not None:
            self._emit("ask-in-finally", f"`{name_of(asked)}`", asked, scope)
        for statement in body:
            for node, where in own_nodes(statement, scope):
                if isinstance(node, ast.Return):
                    self._emit("swallowed-cancellation", "`return` in a finally", node, where)
                elif isinstance(node, ast.Await) and self._does_more_than_close(node, where):
                    self._emit("await-in-finally", f"`{name_of(node)}`", node, where)

    def _does_more_than_close(self, node: ast.Await, scope: Scope) -> bool:
        if not isinstance(node.value, ast.Call):
            return False
        function = node.value.func
        if isinstance(self._values.of(function, scope), ContextMethod):
            return False  # runs only when the block is left for good
        if self._asks.first([node.value], scope) is not None:
            return False  # reported as a question
        return CLOSING.match(name_of(function).rpartition(".")[2]) is None

    # -- timeouts ------------------------------------------------------------------------------

    def check_with(self, node: ast.With | ast.AsyncWith, scope: Scope) -> None:
        """Check for timeouts and ``suppress`` around questions."""
        for item in node.items:
            expression = item.context_expr
            if not isinstance(expression, ast.Call):
                continue
            name = self._name(expression.func, scope)
            swallows = name == "contextlib.suppress" and any(
                self._catches_cancellation(each, scope) for each in expression.args
            )
            rule = "timeout-around-ask" if name in TIMEOUTS else "swallowed-cancellation"
            if (swallows or name in TIMEOUTS) and self._asks.first(node.body, scope) is not None:
                self._emit(rule, f"`{name_of(expression)}`", expression, scope)

    def check_call(self, call: ast.Call, scope: Scope) -> None:
        """Report timeouts around questions, and questions that start in the order of a set."""
        name = self._name(call.func, scope)
        limited = name == "asyncio.wait_for" or (name == "asyncio.wait" and _has(call, "timeout"))
        if limited and self._asks.first(call.args, scope) is not None:
            self._emit("timeout-around-ask", f"`{name}`", call, scope)
        completes = name == "asyncio.as_completed" and bool(call.args)
        elements = self._elements(call, scope) if completes else ()
        if any(self._starts_in_any_order(each, scope) for each in elements):
            self._emit("unordered-asks", "`asyncio.as_completed`", call, scope)
        for arg in call.args:
            given = arg.value if isinstance(arg, ast.Starred) else arg
            starts = isinstance(given, ast.Set) and self._is_unordered(given, scope)
            if starts and self._asks.first([given], scope, unnamed=True) is not None:
                self._emit("unordered-asks", f"`{name_of(given)}`", given, scope)

    def _elements(self, call: ast.Call, scope: Scope) -> Iterator[ast.expr]:
        given: ast.expr | None = call.args[0]
        if isinstance(given, ast.Name):
            given = self._values.assigned(given.id, scope)
        match given:
            case ast.List() | ast.Tuple() | ast.Set():
                yield from given.elts
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                yield given.elt
            case _:
                return

    def _starts_in_any_order(self, element: ast.expr, scope: Scope) -> bool:
        """Return whether an element is a coroutine that asks only when ``as_completed`` runs it."""
        if not isinstance(element, ast.Call) or self._asks.directly(element, scope):
            return False
        made = self._values.of(element.func, scope)
        return (isinstance(made, Function) or made == CONVERSE) and self._asks.first(
            [element], scope, unnamed=True
        ) is not None

    # -- order ---------------------------------------------------------------------------------

    def check_loop(self, node: Loop, scope: Scope) -> None:
        """Check for questions in the order of a set."""
        if self._is_unordered(node.iter, scope):
            self._check_order(node.iter, node.body, scope)

    def check_comprehension(self, node: Comprehension, scope: Scope) -> None:
        """Check for questions in the order of a set."""
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for generator in node.generators:
            if self._is_unordered(generator.iter, scope):
                self._check_order(generator.iter, parts, scope)

    def _check_order(self, over: ast.expr, body: Sequence[ast.AST], scope: Scope) -> None:
        if self._asks.first(body, scope, unnamed=True) is not None:
            self._emit("unordered-asks", f"`{name_of(over)}`, a set,", over, scope)

    def _is_unordered(self, node: ast.expr, scope: Scope) -> bool:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in PASSING:
                return any(self._is_unordered(arg, scope) for arg in node.args)
            case ast.Set():
                return not all(_is_number(each) for each in node.elts)
            case _:
                value = self._values.of(node, scope)
                return isinstance(value, External) and bool(UNORDERED.match(value.name))


def _has(call: ast.Call, name: str) -> bool:
    return any(keyword.arg == name for keyword in call.keywords)


def _is_number(node: ast.expr) -> bool:
    """Return whether a node is a number: a set of numbers has the same order in every process."""
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler raises the caught error on every path."""
    nodes = [node for statement in handler.body for node in ast.walk(statement)]
    return _ends_in_raise(handler.body, handler.name) and not any(
        isinstance(node, ast.Return) for node in nodes
    )


def _ends_in_raise(body: Sequence[ast.stmt], name: str | None) -> bool:
    match body[-1] if body else None:
        case ast.Raise(exc=None):
            return True
        case ast.Raise(exc=ast.Name(id=raised)):
            return raised == name
        case ast.If(body=then, orelse=otherwise):
            return _ends_in_raise(then, name) and _ends_in_raise(otherwise, name)
        case ast.With(body=inner) | ast.AsyncWith(body=inner) | ast.Try(body=inner):
            return _ends_in_raise(inner, name)
        case _:
            return False
