"""Reads a tool's body, and every function that runs with it in every round, outside of steps."""

from __future__ import annotations

import ast
import inspect
from types import FunctionType
from typing import Any, cast

from anabranch.replay_check._asks import given_in, name_of
from anabranch.replay_check._call_rules import rule_of, rule_of_unknown
from anabranch.replay_check._check import Check, Part
from anabranch.replay_check._misuse import Misuse, Mutations
from anabranch.replay_check._rules import Finding
from anabranch.replay_check._scopes import Class, ContextMethod, External, Function, Instance, Scope
from anabranch.replay_check._sources import Library, NoSourceError
from anabranch.replay_check._suspension import Background, Suspension
from anabranch.replay_check._values import Value
from anabranch.tool import FunctionTool, HandoffTool, Tool


def check_tool(tool: Tool[Any]) -> list[Finding]:
    """Return the code of ``tool`` that is not safe to replay, without running the tool.

    The check reads the tool's function, and each function of the same package or folder that this
    function calls or passes on, but not functions for ``ctx.step``. The comment ``# anabranch:
    replay-safe`` suppresses the findings of its line; on a ``def`` or a call, the findings of the
    whole function.

    Raises:
        NoSourceError: if the source cannot be read, or has changed since it was imported.
    """
    function = body_of(tool)
    try:
        library = Library(function)
        node = library.home.function(function.__code__)
    except NoSourceError as error:
        raise NoSourceError(f"Tool {tool.name!r} cannot be checked: {error}") from error
    scope = library.home.scopes[node]
    is_function = isinstance(tool, FunctionTool)
    root = Function(node, scope, None if is_function else _class_of(tool, library, scope))
    check = Check(library, root)
    if is_function:
        check.asks.first_parameter_is_context(root)
    elif isinstance(tool, HandoffTool):
        names = [parameter.arg for parameter in node.args.args]
        check.values.contexts.add((scope, "ctx" if "ctx" in names else names[-1]))
    check.follow(root)
    while check.pending:
        scope = check.pending.pop().scope
        for part in (_Calls, Mutations, Suspension, Background, Misuse):
            visitor = part(check, scope)
            for each in scope.body:
                visitor.visit(each)
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
    code = body_of(tool).__code__
    return inspect.getsourcefile(code) or code.co_filename, code.co_firstlineno


def _class_of(tool: Tool[Any], library: Library, body: Scope) -> Class | None:
    module = library.module(type(tool).__module__)
    scopes = module.scopes.values() if module is not None else ()
    wanted = type(tool).__qualname__
    found = next((each for each in scopes if each.of_class and each.qualname == wanted), None)
    scope = found or body.parent
    if scope is None or not isinstance(scope.node, ast.ClassDef):
        return None
    return Class(scope.node, scope)


class _Calls(Part):
    """Looks up each call in the tables of ``_call_rules.py``; follows the tool's own functions."""

    def check_call(self, call: ast.Call) -> None:
        if self._scope.module.is_safe(call):
            return
        value, rule = self._values.of(call.func, self._scope), None
        match value:
            case External(name=name):
                rule = rule_of(name, call)
                files = [each.value for each in call.keywords if each.arg == "file"]
                if rule == "console-output" and not all(map(self._is_standard_stream, files)):
                    rule = None
            case Function():
                self._follow_call(value, call)
            case Class():
                for name in ("__init__", "__post_init__"):
                    self._follow_call(self._values.attribute(Instance(value), name), call)
            case None:
                rule = rule_of_unknown(call.func)
            case _:
                pass
        if rule is not None:
            self._emit(rule, call, f"`{name_of(call.func)}()`")
        if not self._in_step:
            self._follow_arguments(call, value)

    def _is_standard_stream(self, file: ast.expr) -> bool:
        return self._values.external(file, self._scope) in {"sys.stdout", "sys.stderr"}

    def _follow_call(self, function: Value, call: ast.Call) -> None:
        if isinstance(function, Function):
            self._check.asks.follow_contexts(function, call, self._scope)
            self._check.follow(function)

    def _follow_arguments(self, call: ast.Call, called: Value) -> None:
        """Follow functions that are passed to other functions, which may call them."""
        method = called.name if isinstance(called, ContextMethod) else ""
        for place, argument in enumerate(given_in(call)):
            value = self._values.of(argument, self._scope)
            if method == "call_tool" and place == 0 and isinstance(value, Instance):
                value = self._values.attribute(value, "client")
            if isinstance(value, Function) and not isinstance(argument, ast.Call):
                if method in {"branch", "call_tool"} and place == 0:
                    self._check.asks.first_parameter_is_context(value)
                self._check.follow(value)
            elif isinstance(value, External) and isinstance(argument, ast.Name | ast.Attribute):
                rule = rule_of(value.name)
                if rule is not None:
                    self._emit(rule, argument)
