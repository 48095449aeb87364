"""The value of an expression, as far as the source shows it without being run.

A value from outside of the tool's own modules is a dotted name, in which ``()`` marks a call: the
client of ``async with httpx.AsyncClient() as client`` is ``httpx.AsyncClient()``.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import TypeAlias

from anabranch.replay_check._scopes import (
    Assigned,
    Binding,
    Class,
    Context,
    ContextMethod,
    Defined,
    External,
    Function,
    Imported,
    Instance,
    Parameter,
    Scope,
    parameters_of,
)
from anabranch.replay_check._sources import Library, Module

Value: TypeAlias = External | Function | Class | Instance | Module | Context | ContextMethod | None

BUILTINS = frozenset(dir(builtins))
CONTEXTS = frozenset({"anabranch.BranchContext", "anabranch.tool._context.BranchContext"})
CONTEXT_NAMES = frozenset({"ctx", "context"})
DISPLAYS: dict[type[ast.expr], str] = {
    ast.List: "list",
    ast.ListComp: "list",
    ast.Dict: "dict",
    ast.DictComp: "dict",
    ast.Set: "set",
    ast.SetComp: "set",
    ast.Tuple: "tuple",
    ast.JoinedStr: "str",
}


class Values:
    """Finds the values of expressions.

    ``contexts`` are the parameters that receive a context, ``owners`` the classes of methods' instances.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self.contexts: set[tuple[Scope, str]] = set()
        self.owners: dict[Scope, Class] = {}
        self._asked: set[tuple[Scope, str]] = set()

    def of(self, node: ast.expr, scope: Scope) -> Value:  # noqa: PLR0911 - one for each kind
        match node:
            case ast.Name():
                return self._of_name(node.id, scope)
            case ast.Attribute():
                return self.attribute(self.of(node.value, scope), node.attr)
            case ast.Call():
                return self._called(self.of(node.func, scope))
            case ast.Await() | ast.NamedExpr() | ast.Starred():
                return self.of(node.value, scope)
            case ast.BinOp():
                left = self.of(node.left, scope)
                return left if isinstance(left, External) else None
            case ast.IfExp():
                return self.of(node.body, scope) or self.of(node.orelse, scope)
            case ast.Constant():
                return External(f"builtins.{type(node.value).__name__}()")
            case _:
                display = DISPLAYS.get(type(node))
                return External(f"builtins.{display}()") if display else None

    def external(self, node: ast.expr, scope: Scope) -> str:
        """Return the dotted name of a value from outside of the tool's modules, or ""."""
        value = self.of(node, scope)
        return value.name if isinstance(value, External) else ""

    def of_annotation(self, node: ast.expr | None, scope: Scope) -> Value:  # noqa: PLR0911 - one for each kind
        match node:
            case ast.Constant(value=str(text)):
                try:
                    return self.of_annotation(ast.parse(text, mode="eval").body, scope)
                except SyntaxError:
                    return None
            case ast.BinOp(op=ast.BitOr()):
                sides = (self.of_annotation(side, scope) for side in (node.left, node.right))
                return next((side for side in sides if side is not None), None)
            case ast.Subscript():
                kind = self.of(node.value, scope)
                if isinstance(kind, External) and kind.name.endswith((".Annotated", ".Optional")):
                    inner = node.slice
                    first = inner.elts[0] if isinstance(inner, ast.Tuple) else inner
                    return self.of_annotation(first, scope)
                return self._called(kind)
            case ast.Name() | ast.Attribute():
                return self._called(self.of(node, scope))
            case _:
                return None

    def attribute(self, value: Value, name: str) -> Value:  # noqa: PLR0911 - one for each kind
        match value:
            case External():
                return External(f"{value.name}.{name}")
            case Context():
                return ContextMethod(name)
            case Module():
                if name in value.scope.bindings:
                    return self._of_name(name, value.scope)
                return self._imported(f"{value.name}.{name}")
            case Class():
                return self._in_class(value, name, value)
            case Instance():
                return self._in_class(value.cls, name, value.cls) or self._on_self(value.cls, name)
            case _:
                return None

    def origin(self, node: ast.expr, scope: Scope) -> ast.expr:
        """Return the expression that a name is bound to, if there is only one, else ``node``."""
        found = scope.find(node.id) if isinstance(node, ast.Name) else None
        match found:
            case (_, [Assigned(value=ast.expr() as value)]):
                return value
            case _:
                return node

    def is_context(self, scope: Scope, parameter: Parameter) -> bool:
        """Return whether a parameter is a context, by its calls, its annotation or its name."""
        if (scope, parameter.name) in self.contexts:
            return True
        if parameter.annotation is None:
            return parameter.name in CONTEXT_NAMES
        around = scope.parent or scope
        return isinstance(self.of_annotation(parameter.annotation, around), Context)

    # -- names ---------------------------------------------------------------------------------

    def _of_name(self, name: str, scope: Scope) -> Value:
        found = scope.find(name)
        if found is None:
            return External(f"builtins.{name}") if name in BUILTINS else None
        where, bindings = found
        if (where, name) in self._asked:
            return None  # the name is defined by itself
        self._asked.add((where, name))
        try:
            values = [self._bound(binding, where) for binding in bindings]
        finally:
            self._asked.discard((where, name))
        for binding, value in reversed([*zip(bindings, values, strict=True)]):
            # The last definition, which follows overloads; `x = None` after an ImportError is none.
            if isinstance(binding, Imported | Defined):
                return value
        return values[0] if all(value == values[0] for value in values) else None

    def _bound(self, binding: Binding, scope: Scope) -> Value:
        match binding:
            case Imported():
                return self._imported(binding.target)
            case Defined(node=node):
                own = scope.module.scopes[node]
                return Class(node, own) if isinstance(node, ast.ClassDef) else Function(node, own)
            case Parameter():
                return self._parameter(binding, scope)
            case Assigned(value, annotation):
                if annotation is None and value is not None:
                    return self.of(value, scope)
                return self.of_annotation(annotation, scope)

    def _parameter(self, parameter: Parameter, scope: Scope) -> Value:
        if self.is_context(scope, parameter):
            return Context()
        if parameter.position == 0 and parameter.annotation is None:
            owner = self.owners.get(scope) or _class_around(scope)
            if owner is not None:
                return owner if _has_decorator(scope.node, "classmethod") else Instance(owner)
        return self.of_annotation(parameter.annotation, scope.parent or scope)

    def _imported(self, target: str) -> Value:
        if target in CONTEXTS:
            return External(target)
        parts = target.split(".")
        for length in range(len(parts), 0, -1):
            module = self._library.module(".".join(parts[:length]))
            if module is not None:
                return self._inside(module, parts[length:])
        return External(target)

    def _inside(self, module: Module, names: list[str]) -> Value:
        value: Value = module
        for name in names:
            if isinstance(value, Module) and name not in value.scope.bindings:
                return None
            value = self.attribute(value, name)
        return value

    # -- calls and classes ---------------------------------------------------------------------

    def _called(self, value: Value) -> Value:
        match value:
            case External():
                return Context() if value.name in CONTEXTS else External(f"{value.name}()")
            case Class():
                return Instance(value)
            case Function(node=ast.FunctionDef() | ast.AsyncFunctionDef() as node):
                return self.of_annotation(node.returns, value.scope.parent or value.scope)
            case _:
                return None

    def _in_class(self, cls: Class, name: str, owner: Class) -> Value:
        if name in cls.scope.bindings:
            value = self._of_name(name, cls.scope)
            if isinstance(value, Function):
                return Function(value.node, value.scope, owner)
            return value
        for base in self._bases(cls):
            found = self._in_class(base, name, owner) if isinstance(base, Class) else None
            if found is None and isinstance(base, External):
                found = External(f"{base.name}().{name}")
            if found is not None:
                return found
        return None

    def _bases(self, cls: Class) -> Iterator[Value]:
        around = cls.scope.parent or cls.scope
        for node in cls.node.bases:
            base = self.of(node.value if isinstance(node, ast.Subscript) else node, around)
            if base != Class(cls.node, cls.scope) and not _says_nothing(base):
                yield base

    def _on_self(self, cls: Class, name: str) -> Value:
        """Return the value that the ``__init__`` of the class or of a base assigns to an attribute."""
        init = self._in_class(cls, "__init__", cls)
        if not isinstance(init, Function) or isinstance(init.node, ast.Lambda):
            return None
        own = [f"{me.arg}.{name}" for me in parameters_of(init.node)[:1]]
        for node in ast.walk(init.node):
            match node:
                case ast.Assign(targets=[target], value=value) if ast.unparse(target) in own:
                    return self.of(value, init.scope)
                case ast.AnnAssign(target=target) if ast.unparse(target) in own:
                    return self.of_annotation(node.annotation, init.scope)
                case _:
                    pass
        return None


def _says_nothing(base: Value) -> bool:
    """Return whether a base class is this library's or a builtin, with only safe attributes."""
    return isinstance(base, External) and base.name.partition(".")[0] in {"anabranch", "builtins"}


def _class_around(scope: Scope) -> Class | None:
    parent = scope.parent
    if parent is None or not isinstance(parent.node, ast.ClassDef):
        return None
    return None if _has_decorator(scope.node, "staticmethod") else Class(parent.node, parent)


def _has_decorator(node: ast.AST, name: str) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(isinstance(each, ast.Name) and each.id == name for each in decorators)
