"""The kinds of values of an expression, as ``_values.py`` finds them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TypeAlias

from anabranch.replay_check._scopes import FunctionNode, Scope
from anabranch.replay_check._sources import Module


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
class OwnModule:
    """One of the tool's own modules."""

    module: Module


@dataclass(frozen=True, slots=True)
class Context:
    """A ``BranchContext``."""


@dataclass(frozen=True, slots=True)
class ContextMethod:
    """A method of a ``BranchContext``."""

    name: str


Value: TypeAlias = (
    External | Function | Class | Instance | OwnModule | Context | ContextMethod | None
)
