"""The kinds of values that an expression can stand for, as ``_values.py`` finds them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TypeAlias

from anabranch.replay_check._scopes import FunctionNode, Scope
from anabranch.replay_check._sources import Module


@dataclass(frozen=True, slots=True)
class External:
    """Something outside of the tool's own modules, by its dotted name."""

    name: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the tool's own; ``owner`` is the class that it is called on."""

    node: FunctionNode
    scope: Scope
    owner: Class | None = None


@dataclass(frozen=True, slots=True)
class Class:
    """A class of the tool's own; ``scope`` is that of its body."""

    node: ast.ClassDef
    scope: Scope


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of a class of the tool's own."""

    cls: Class


@dataclass(frozen=True, slots=True)
class OwnModule:
    """A module of the tool's own."""

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
