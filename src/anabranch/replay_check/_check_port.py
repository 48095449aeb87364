"""``Check``, the protocol between the parts that find and the check that collects and continues."""

from __future__ import annotations

import ast
from typing import Protocol

from anabranch.replay_check._asks import Asks
from anabranch.replay_check._scopes import Scope
from anabranch.replay_check._value_kinds import Class, Function
from anabranch.replay_check._values import Values


class Check(Protocol):
    """A check in progress, as its parts use it."""

    values: Values
    asks: Asks

    def emit(self, rule: str, found: str, node: ast.stmt | ast.expr, scope: Scope) -> None:
        """Report a finding."""
        ...

    def follow(self, function: Function) -> None:
        """Have a function checked that the body runs."""
        ...

    def is_shared(self, scope: Scope) -> bool:
        """Whether what a scope binds outlives one run of the body."""
        ...

    def is_tool(self, cls: Class) -> bool:
        """Whether a class is the tool's."""
        ...
