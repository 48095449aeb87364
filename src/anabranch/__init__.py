"""Tools that talk back.

Write one straight ``async`` function; inside it ask the model, ask the person, open isolated
sub-conversations, and return one value. The same function runs over every way of calling it.

    anabranch            what a tool author touches
    anabranch.mcp        serve tools over the Model Context Protocol, in both of its eras
    anabranch.models     models for servers, chats and tests
    anabranch.testing    a client for tests that answers as told
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch._asking.answerer import Answerer, AnswerError
    from anabranch._asking.host import Capabilities
    from anabranch._asking.sampling import Sampler, SampleResult
    from anabranch.context import BranchContext
    from anabranch.elicitation import Accepted, Cancelled, Declined, Elicitation, ElicitResult
    from anabranch.errors import (
        AnabranchError,
        BranchDepthError,
        BranchLimitError,
        BranchTimeoutError,
        BranchTokenError,
        CapabilityError,
        ConcurrentElicitError,
        ElicitInBranchError,
        ElicitValidationError,
        InvalidArgumentsError,
        InvalidTokenError,
        NonDeterminismError,
        SampleValidationError,
        SerializationError,
        StepFailed,
        StoreError,
        SuspensionError,
        ToolError,
        UnknownCallError,
        UnsupportedRuntimeError,
    )
    from anabranch.inprocess import run_tool
    from anabranch.limits import Limits
    from anabranch.messages import Message, ToolSpec, Usage, assistant, user
    from anabranch.tool import HandoffTool, Tool, tool

__all__ = [
    "Accepted",
    "AnabranchError",
    "AnswerError",
    "Answerer",
    "BranchContext",
    "BranchDepthError",
    "BranchLimitError",
    "BranchTimeoutError",
    "BranchTokenError",
    "Cancelled",
    "Capabilities",
    "CapabilityError",
    "ConcurrentElicitError",
    "Declined",
    "ElicitInBranchError",
    "ElicitResult",
    "ElicitValidationError",
    "Elicitation",
    "HandoffTool",
    "InvalidArgumentsError",
    "InvalidTokenError",
    "Limits",
    "Message",
    "NonDeterminismError",
    "SampleResult",
    "SampleValidationError",
    "Sampler",
    "SerializationError",
    "StepFailed",
    "StoreError",
    "SuspensionError",
    "Tool",
    "ToolError",
    "ToolSpec",
    "UnknownCallError",
    "UnsupportedRuntimeError",
    "Usage",
    "assistant",
    "run_tool",
    "tool",
    "user",
]

_HOMES = (
    "errors",
    "limits",
    "messages",
    "elicitation",
    "_engine.clock",
    "_asking.answerer",
    "_asking.host",
    "_asking.sampling",
    "context",
    "tool",
    "inprocess",
)
"""The modules that define the names above, those that import the least first."""


class _Package(ModuleType):
    """This package, whose names are loaded when they are first used.

    So the command line can print its help without loading pydantic, asyncio and the engine.
    """

    def __getattr__(self, name: str) -> object:
        if name in __all__:
            for home in _HOMES:
                module = import_module(f"{__name__}.{home}")
                if name in module.__all__:
                    self.__dict__[name] = value = getattr(module, name)
                    return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=self)

    def __setattr__(self, name: str, value: object) -> None:
        # The import system sets each imported submodule as an attribute here. ``anabranch.tool``
        # remains the decorator, though it has the name of the module that defines it.
        if name not in __all__ or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
