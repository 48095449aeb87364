"""The static check: reads a tool's body, and every function that runs with it in every round.

The check runs no part of the tool. Every call is looked up in the tables of ``_call_rules.py``; the
tool's own functions are followed. The functions of steps run once and are not checked, nor are
``before`` and ``after``, which are steps; the body evaluates the other arguments of a step in every
round.
"""

from __future__ import annotations

import ast
import inspect
from types import FunctionType
from typing import Any, cast

from anabranch.replay_check._asks import Check, given_in, name_of
from anabranch.replay_check._background import Background
from anabranch.replay_check._call_rules import rule_of, rule_of_unknown
from anabranch.replay_check._misuse import Misuse, Mutations
from anabranch.replay_check._rules import Finding
from anabranch.replay_check._scopes import (
    Class,
    ContextMethod,
    External,
    Function,
    Instance,
    Scope,
)
from anabranch.replay_check._sources import Library, NoSourceError
from anabranch.replay_check._suspension import Comprehension, Suspension
from anabranch.replay_check._values import Value
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
        visitor = _BodyVisitor(check, scope)
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
    """Return the file and the line where a tool's body begins."""
    code = body_of(tool).__code__
    return inspect.getsourcefile(code) or code.co_filename, code.co_firstlineno


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


class _BodyVisitor(ast.NodeVisitor):
    def __init__(self, check: Check, scope: Scope) -> None:
        self._check = check
        self._values = check.values
        self._scope = scope
        self._mutations = Mutations(check)
        self._suspension = Suspension(check)
        self._background = Background(check)
        self._misuse = Misuse(check)
        self._in_step = False

    # -- definitions, whose bodies are not run ---------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        defaults = [default for default in node.args.kw_defaults if default is not None]
        for expression in (*node.decorator_list, *node.args.defaults, *defaults):
            self.visit(expression)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        if self._in_step:
            return
        outer, self._scope = self._scope, self._scope.module.scopes[node]
        self.visit(node.body)
        self._scope = outer

    # -- calls -----------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        value = self._values.of(node.func, self._scope)
        if value == ContextMethod("step"):
            self._step(node)
            return
        self._suspension.check_call(node, self._scope)
        self._background.check_call(node, self._scope)
        self._misuse.check_call(node, self._scope)
        if not self._scope.module.is_safe(node):
            self._check_call(node, value)
            if not self._in_step:
                self._follow_arguments(node, value)
        self.generic_visit(node)

    def _step(self, node: ast.Call) -> None:
        """Check the arguments of a step, which every round evaluates; function and undo run once."""
        outer = self._in_step
        undos = [keyword for keyword in node.keywords if keyword.arg == "undo"]
        for each in (*node.args, *node.keywords):
            self._in_step = outer or each in (*node.args[:1], *undos)
            self.visit(each)
        self._in_step = outer

    def _check_call(self, node: ast.Call, value: Value) -> None:
        rule = None
        match value:
            case External(name=name):
                rule = rule_of(name, node)
                files = [each.value for each in node.keywords if each.arg == "file"]
                if rule == "console-output" and not all(map(self._is_standard_stream, files)):
                    rule = None
            case Function():
                self._follow_call(value, node)
            case Class():
                for name in ("__init__", "__post_init__"):
                    self._follow_call(self._values.attribute(Instance(value), name), node)
            case None:
                rule = rule_of_unknown(node.func)
            case _:
                pass
        if rule is not None:
            self._check.emit(rule, node, self._scope, f"`{name_of(node.func)}()`")
        self._mutations.check_call(node, self._scope)

    def _is_standard_stream(self, file: ast.expr) -> bool:
        return self._values.external(file, self._scope) in {"sys.stdout", "sys.stderr"}

    def _follow_call(self, function: Value, node: ast.Call) -> None:
        if isinstance(function, Function):
            self._check.asks.follow_contexts(function, node, self._scope)
            self._check.follow(function)

    def _follow_arguments(self, node: ast.Call, called: Value) -> None:
        """Follow functions that are passed to other functions, which may call them."""
        method = called.name if isinstance(called, ContextMethod) else ""
        for place, argument in enumerate(given_in(node)):
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
                    self._check.emit(rule, argument, self._scope)

    # -- around questions ------------------------------------------------------------------------

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        self._suspension.check_try(node, self._scope)
        self.generic_visit(node)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        self._suspension.check_with(node, self._scope)
        self._background.check_with(node, self._scope)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._suspension.check_loop(node.iter, node.body, self._scope)
        self.generic_visit(node)

    def visit_ListComp(self, node: Comprehension) -> None:
        self._suspension.check_comprehension(node, self._scope)
        self.generic_visit(node)

    visit_TryStar = visit_Try
    visit_AsyncWith = visit_With
    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    # -- uses of a context ----------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        self._misuse.check_statement(node, self._scope)
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        self._misuse.check_condition(node.test, self._scope)
        self.generic_visit(node)

    visit_While = visit_IfExp = visit_If

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._misuse.check_attribute(node, self._scope)
        self.generic_visit(node)

    # -- mutations -------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._mutations.check_target(target, node, self._scope)
        # A lambda with a name is an ordinary function.
        if not (isinstance(node.value, ast.Lambda) and isinstance(node.targets[0], ast.Name)):
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._mutations.check_target(node.target, node, self._scope)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._mutations.check_target(node.target, node, self._scope)
            self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self._mutations.check_target(target, node, self._scope)
        self.generic_visit(node)
