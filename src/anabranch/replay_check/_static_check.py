"""The static check: reads a tool's body, and every function that runs with it in every round.

The check runs no part of the tool. The check skips the functions of steps, and ``before`` and
``after``, which are steps.
"""

from __future__ import annotations

import ast
import inspect
from types import FunctionType
from typing import Any, cast

from anabranch.replay_check._asks import Asks
from anabranch.replay_check._body import check_body
from anabranch.replay_check._rules import RULES, Finding
from anabranch.replay_check._scopes import Class, Function, Scope
from anabranch.replay_check._sources import Library, NoSourceError
from anabranch.replay_check._values import Values
from anabranch.tool import FunctionTool, HandoffTool, Tool


def check_tool(tool: Tool[Any]) -> list[Finding]:
    """Return the findings in the source of ``tool``, in the order of the source.

    The check reads the body, and every function of its package, or next to it, that the body calls
    or passes on, except the functions that ``ctx.step`` runs. Nothing is run. A line with the
    comment ``# anabranch: replay-safe`` has no findings; on the line of a call or a ``def``, the
    comment covers the whole function.

    Raises:
        NoSourceError: if the source cannot be read, or has changed since it was imported.
    """
    try:
        check = _Check(tool)
    except NoSourceError as error:
        raise NoSourceError(f"Tool {tool.name!r} cannot be checked: {error}") from error
    check.run()
    return sorted(check.findings, key=lambda found: (found.file, found.line, found.column))


def body_of(tool: Tool[Any]) -> FunctionType:
    """Return the function that every round runs again."""
    function: Any
    if isinstance(tool, FunctionTool):
        function = tool.fn
    elif isinstance(tool, HandoffTool):
        function = getattr(type(tool), "client")  # noqa: B009 - subclasses define it
    else:
        function = type(tool).run
    return cast("FunctionType", inspect.unwrap(function))


def place_of(tool: Tool[Any]) -> tuple[str, int]:
    """Return the file and the line where a tool's body begins."""
    code = body_of(tool).__code__
    return inspect.getsourcefile(code) or code.co_filename, code.co_firstlineno


class _Check:
    """One check of one tool.

    Raises:
        NoSourceError: if the tool's source cannot be read.
    """

    def __init__(self, tool: Tool[Any]) -> None:
        self.findings: dict[Finding, None] = {}
        function = body_of(tool)
        library = Library(function)
        node = library.home.function(function.__code__)
        if node is None:
            raise NoSourceError(f"{library.home.path} has changed since it was imported.")
        self.values: Values = Values(library)
        self.asks: Asks = Asks(self.values)
        scope = library.home.scopes[node]
        self._root = scope
        self._tool = None if isinstance(tool, FunctionTool) else _class_of(tool, library, scope)
        self._pending: list[Function] = []
        self._done: set[tuple[Scope, Class | None, int]] = set()
        root = Function(node, scope, self._tool)
        given = {parameter.arg for parameter in node.args.args}
        place = "ctx" if "ctx" in given else node.args.args[-1].arg
        if isinstance(tool, FunctionTool):
            self.asks.first_parameter_is_context(root)
        elif isinstance(tool, HandoffTool):
            self.values.contexts.add((scope, place))
        self.follow(root)

    def run(self) -> None:
        """Check each function that the body reaches, until there is no new function."""
        while self._pending:
            check_body(self, self._pending.pop())

    def emit(self, rule: str, found: str, node: ast.stmt | ast.expr, scope: Scope) -> None:
        if not scope.module.is_safe(node):
            reason, fix = RULES[rule]
            self.findings[
                Finding(
                    rule,
                    scope.module.path,
                    node.lineno,
                    node.col_offset + 1,
                    reason.format(found),
                    fix,
                )
            ] = None

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
            self._pending.append(function)

    def is_shared(self, scope: Scope) -> bool:
        return scope.parent is None or scope.encloses(self._root)

    def is_tool(self, cls: Class) -> bool:
        return cls == self._tool


def _class_of(tool: Tool[Any], library: Library, body: Scope) -> Class | None:
    """Return the class of a tool, or the class that its body is defined in."""
    module = library.module(type(tool).__module__)
    scopes = module.scopes.values() if module is not None else ()
    wanted = type(tool).__qualname__
    found = next((each for each in scopes if each.of_class and each.qualname == wanted), None)
    scope = found or body.parent
    if scope is None or not isinstance(scope.node, ast.ClassDef):
        return None
    return Class(scope.node, scope)
