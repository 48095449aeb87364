"""The source files of a tool, and of the modules in its package or next to it.

Modules are parsed and never run.
"""

from __future__ import annotations

import ast
import inspect
import io
import linecache
import re
import tokenize
from pathlib import Path
from types import CodeType, FunctionType

from anabranch.errors import AnabranchError
from anabranch.replay_check._scopes import Scope, read_scopes

SAFE = re.compile(r"#.*\banabranch:\s*replay-safe\b")


class NoSourceError(AnabranchError):
    """The source of a tool cannot be read, or differs from the imported code."""


class Module:
    """One module: its syntax tree, its scopes, and the lines marked as replay-safe."""

    def __init__(self, name: str, package: str, path: str, text: str) -> None:
        self.name: str = name
        self.package: str = package
        self.path: str = path
        try:
            self.tree: ast.Module = ast.parse(text, path)
        except (SyntaxError, ValueError) as error:
            raise NoSourceError(f"{path} is not Python source: {error}.") from error
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments = [token for token in tokens if token.type == tokenize.COMMENT]
        self._safe = {each.start[0] for each in comments if SAFE.match(each.string)}
        self.scopes: dict[ast.AST, Scope] = read_scopes(self, self.tree)

    @property
    def scope(self) -> Scope:
        return self.scopes[self.tree]

    def absolute(self, name: str, level: int) -> str:
        if not level:
            return name
        package = self.package.split(".")
        base = package[: len(package) - level + 1]
        return ".".join([*base, name] if name else base)

    def is_safe(self, node: ast.stmt | ast.expr) -> bool:
        """Return whether a comment on the first or last line of ``node`` marks it as replay-safe."""
        return bool({node.lineno, node.end_lineno} & self._safe)

    def is_safe_function(self, node: ast.AST) -> bool:
        """Return whether a comment on its ``def`` line marks a whole function as replay-safe."""
        return isinstance(node, ast.stmt) and node.lineno in self._safe

    def function(self, code: CodeType) -> ast.FunctionDef | ast.AsyncFunctionDef:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                starts = {node.lineno, *(decorator.lineno for decorator in node.decorator_list)}
                if node.name == code.co_name and code.co_firstlineno in starts:
                    return node
        raise NoSourceError(f"{self.path} has changed since it was imported.")


class Library:
    """The modules that one check reads: the module of ``function``, and neighbours on demand."""

    def __init__(self, function: FunctionType) -> None:
        path = inspect.getsourcefile(function)
        if path is None:
            raise NoSourceError(f"{function!r} has no source file.")
        linecache.checkcache(path)
        text = "".join(linecache.getlines(path, function.__globals__))
        if not text:
            raise NoSourceError(f"The source of {function!r} cannot be read from {path}.")
        name, package = function.__module__, function.__globals__.get("__package__") or ""
        self.home: Module = Module(name, package, path, text)
        self._modules: dict[str, Module | None] = {name: self.home}
        self._root = Path(path).resolve().parents[package.count(".") + 1 if package else 0]

    def module(self, name: str) -> Module | None:
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def _read(self, name: str) -> Module | None:
        first, own = name.partition(".")[0], self.home.package.partition(".")[0]
        is_installed = bool({"site-packages", "dist-packages"} & set(self._root.parts))
        if first in {"", "anabranch"} or (first != own if own else is_installed):
            return None
        base = self._root.joinpath(*name.split("."))
        files = {base / "__init__.py": name, base.with_suffix(".py"): name.rpartition(".")[0]}
        for path, package in files.items():
            try:
                return Module(name, package, str(path), path.read_text("utf-8"))
            except (NoSourceError, OSError, UnicodeDecodeError):
                continue
        return None
