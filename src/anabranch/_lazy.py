"""Lazy packages: a name of the package is loaded from its module when the name is first used.

So a program that needs one name of a package does not import the libraries behind the other names.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package whose modules are loaded when they are needed.

    Type checkers do not see this function. Each package imports the same names under
    ``TYPE_CHECKING``.

    Args:
        package: the ``__name__`` of the package.
        homes: the names of each module, separated by spaces; a module of the package begins with a dot.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def __getattr__(name: str) -> object:  # noqa: N807 - its name in a traceback
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        value: object = getattr(import_module(home_of[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
