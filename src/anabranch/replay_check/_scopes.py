"""The scopes of a module, the names that each scope binds, and the kinds of values of names."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from anabranch.replay_check._sources import Module

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Imported:
    """A name that an import binds to the dotted name ``target``."""

    target: str


@dataclass(frozen=True, slots=True)
class Defined:
    """A name that ``def``, ``class`` or the assignment of a lambda binds."""

    node: FunctionNode | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Assigned:
    """A binding to ``value``, if known; ``annotation`` is its type, if there is one."""

    value: ast.expr | None = None
    annotation: ast.expr | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter at ``position`` among the positional parameters."""

    name: str
    annotation: ast.expr | None
    position: int


Binding: TypeAlias = Imported | Defined | Assigned | Parameter


@dataclass(eq=False, slots=True)
class Scope:
    """One scope; ``outside`` has the names that the scope declares ``global`` or ``nonlocal``."""

    node: FunctionNode | ast.ClassDef | ast.Module
    module: Module
    parent: Scope | None = None
    bindings: dict[str, list[Binding]] = field(default_factory=dict[str, list[Binding]])
    outside: set[str] = field(default_factory=set[str])

    @property
    def of_class(self) -> bool:
        """Whether the scope is the body of a class, whose names its methods do not see."""
        return isinstance(self.node, ast.ClassDef)

    @property
    def body(self) -> Sequence[ast.stmt | ast.expr]:
        body = self.node.body
        return [body] if isinstance(body, ast.expr) else body

    @property
    def qualname(self) -> str:
        own = str(getattr(self.node, "name", ""))
        if self.parent is None or self.parent.parent is None:
            return own
        return f"{self.parent.qualname}.{'' if self.parent.of_class else '<locals>.'}{own}"

    def bind(self, name: str, binding: Binding) -> None:
        self.bindings.setdefault(name, []).append(binding)

    def find(self, name: str) -> tuple[Scope, Sequence[Binding]] | None:
        scope: Scope | None = self
        while scope is not None:
            visible = scope is self or not scope.of_class
            if visible and name in scope.bindings and name not in scope.outside:
                return scope, scope.bindings[name]
            scope = scope.parent
        return None

    def encloses(self, other: Scope) -> bool:
        scope = other.parent
        while scope is not None and scope is not self:
            scope = scope.parent
        return scope is self


def read_scopes(module: Module, tree: ast.Module) -> dict[ast.AST, Scope]:
    reader = _Reader(Scope(tree, module))
    reader.generic_visit(tree)
    return reader.scopes


def parameters_of(node: FunctionNode) -> list[ast.arg]:
    """Return the parameters, the positional ones first."""
    arguments = node.args
    extra = [arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


class _Reader(ast.NodeVisitor):
    def __init__(self, scope: Scope) -> None:
        self.module = scope.module
        self.scopes: dict[ast.AST, Scope] = {scope.node: scope}
        self._scope = scope

    def _enter(self, node: FunctionNode | ast.ClassDef) -> None:
        outer, scope = self._scope, Scope(node, self.module, self._scope)
        self.scopes[node] = scope
        if not isinstance(node, ast.ClassDef):
            for position, arg in enumerate(parameters_of(node)):
                # The annotation of *args and **kwargs is the type of each value in them.
                extra = arg is node.args.vararg or arg is node.args.kwarg
                annotation = None if extra else arg.annotation
                scope.bind(arg.arg, Parameter(arg.arg, annotation, position))
        self._scope = scope
        for child in scope.body:
            self.visit(child)
        self._scope = outer

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._scope.bind(node.name, Defined(node))
        self.visit_Lambda(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: FunctionNode) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._enter(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.bind(node.name, Defined(node))
        self._enter(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self._scope.bind(name, Imported(alias.name if alias.asname else name))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        origin = self.module.absolute(node.module or "", node.level)
        for alias in node.names:
            self._scope.bind(alias.asname or alias.name, Imported(f"{origin}.{alias.name}"))

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self._scope.outside.update(node.names)

    visit_Nonlocal = visit_Global

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign(target, node.value)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._scope.bind(node.target.id, Assigned(node.value, node.annotation))
        if node.value is not None:
            self.visit(node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._assign(node.target, node.value)
        self.visit(node.value)

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._assign(node.optional_vars, node.context_expr)
        self.visit(node.context_expr)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            self._scope.bind(node.name, Assigned())
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Bind the names of loops, comprehensions and patterns to an unknown value."""
        if isinstance(node.ctx, ast.Store):
            self._scope.bind(node.id, Assigned())

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            self.visit(target)
        elif isinstance(value, ast.Lambda):
            self._scope.bind(target.id, Defined(value))
        else:
            self._scope.bind(target.id, Assigned(value))


@dataclass(frozen=True, slots=True)
class External:
    """A value from outside of the tool's own modules, by its dotted name."""

    name: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function in the tool's own modules; ``owner`` is the class that it is called on."""

    node: FunctionNode
    scope: Scope
    owner: Class | None = None


@dataclass(frozen=True, slots=True)
class Class:
    """A class in the tool's own modules; ``scope`` is the scope of its body."""

    node: ast.ClassDef
    scope: Scope


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a class in the tool's own modules."""

    cls: Class


@dataclass(frozen=True, slots=True)
class Context:
    """A ``BranchContext``."""


@dataclass(frozen=True, slots=True)
class ContextMethod:
    """A method of a ``BranchContext``."""

    name: str
