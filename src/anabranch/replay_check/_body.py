"""Checks one function that is replayed: its calls, its uses of the context, and its mutations.

Every call is looked up in the tables of ``_call_rules.py``; the tool's own functions are followed.
The function given to ``ctx.step`` runs once and is not checked; the body evaluates the other
arguments of the step in every round.
"""

from __future__ import annotations

import ast

from anabranch.replay_check._asks import Beside, Check, name_of
from anabranch.replay_check._call_rules import rule_of, rule_of_unknown
from anabranch.replay_check._misuse import Misuse, Mutations
from anabranch.replay_check._scopes import (
    Class,
    ContextMethod,
    External,
    Function,
    Instance,
    Scope,
    Value,
)
from anabranch.replay_check._suspension import Comprehension, Suspension

STANDARD_STREAMS = frozenset({"sys.stdout", "sys.stderr"})


def check_body(check: Check, function: Function) -> None:
    """Report the findings in one function; nested functions are checked at their calls."""
    visitor = _BodyVisitor(check, function.scope)
    body = function.node.body
    for node in [body] if isinstance(body, ast.expr) else body:
        visitor.visit(node)


class _BodyVisitor(ast.NodeVisitor):
    """Visits the nodes of one function."""

    def __init__(self, check: Check, scope: Scope) -> None:
        self._check = check
        self._values = check.values
        self._scope = scope
        self._mutations = Mutations(check)
        self._suspension = Suspension(check)
        self._beside = Beside(check)
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
        self._beside.check_call(node, self._scope)
        self._misuse.check_call(node, self._scope)
        if not self._scope.module.is_safe(node):
            self._check_call(node, value)
            if not self._in_step:
                self._follow_arguments(node, value)
        self.generic_visit(node)

    def _step(self, node: ast.Call) -> None:
        """Check the arguments of a step, which every round evaluates; function and undo run once."""
        undo = [keyword for keyword in node.keywords if keyword.arg == "undo"]
        others = [keyword for keyword in node.keywords if keyword.arg != "undo"]
        outer = self._in_step
        for inside, nodes in ((True, [*node.args[:1], *undo]), (outer, [*node.args[1:], *others])):
            self._in_step = inside
            for each in nodes:
                self.visit(each)
        self._in_step = outer

    def _check_call(self, node: ast.Call, value: Value) -> None:
        match value:
            case External(name=name):
                rule = rule_of(name, node)
                if rule == "console-output" and self._writes_elsewhere(node):
                    rule = None
            case Function():
                self._check.asks.follow_contexts(value, node, self._scope)
                self._check.follow(value)
                rule = None
            case Class():
                self._follow_construction(value, node)
                rule = None
            case None:
                rule = rule_of_unknown(node.func)
            case _:
                rule = None
        if rule is not None:
            self._check.emit(rule, f"`{name_of(node.func)}()`", node, self._scope)
        self._mutations.check_call(node, self._scope)

    def _writes_elsewhere(self, node: ast.Call) -> bool:
        """Return whether ``print`` has a ``file`` other than the standard streams."""
        for keyword in node.keywords:
            if keyword.arg == "file":
                value = self._values.of(keyword.value, self._scope)
                return not (isinstance(value, External) and value.name in STANDARD_STREAMS)
        return False

    def _follow_construction(self, cls: Class, node: ast.Call) -> None:
        for name in ("__init__", "__post_init__"):
            method = self._values.attribute(Instance(cls), name)
            if isinstance(method, Function):
                self._check.asks.follow_contexts(method, node, self._scope)
                self._check.follow(method)

    def _follow_arguments(self, node: ast.Call, called: Value) -> None:
        """Follow functions that are passed to other functions, which may call them."""
        method = called.name if isinstance(called, ContextMethod) else ""
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        for place, argument in enumerate(given):
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
                    self._check.emit(rule, f"`{name_of(argument)}`", argument, self._scope)

    # -- around questions ------------------------------------------------------------------------

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        self._suspension.check_try(node, self._scope)
        self.generic_visit(node)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        self._suspension.check_with(node, self._scope)
        self._beside.check_with(node, self._scope)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._suspension.check_loop(node, self._scope)
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
