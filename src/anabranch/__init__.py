"""Human-in-the-loop MCP tools as linear async functions that can ask the model and the user.

In its function, a tool asks the model with ``ctx.sample`` and the user with ``ctx.elicit``. It
opens separate conversations with ``ctx.branch``, and runs each effect once with ``ctx.step``. The
same function runs in an MCP server, in a chat and in a test. The public modules:

    anabranch                 the names that the author of a tool needs
    anabranch.adapters        tools in agents of other projects, a module for each framework
    anabranch.adapters.agent_framework  Microsoft's Agent Framework
    anabranch.adapters.google_adk  Google's Agent Development Kit
    anabranch.adapters.langchain  LangChain and LangGraph
    anabranch.adapters.openai_agents  the OpenAI Agents SDK
    anabranch.adapters.pydantic_ai  Pydantic AI
    anabranch.agents          agents: models with tools, threads and branches
    anabranch.chat            chats in a terminal or a web application
    anabranch.cli             the command line
    anabranch.engines         schedulers that assign open calls to workers
    anabranch.errors          the errors that this library raises
    anabranch.folding         branches in which agents do subtasks, with budgets and deadlines
    anabranch.mcp             serve and call tools over the Model Context Protocol
    anabranch.memory          notes from earlier work, for later agents
    anabranch.messages        messages, requests and replies
    anabranch.models          models of providers, and scripted models
    anabranch.replay_check    checks that a tool is safe to replay
    anabranch.rounds          run a tool round by round, for adapters to other agents
    anabranch.stores          SQLite and Postgres stores
    anabranch.testing         a mock client, a mock model, a manual clock
    anabranch.tool            the classes of tools
    anabranch.tree            the conversation tree

Modules with an underscore in their path are private.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from anabranch._lazy import lazy_names

if TYPE_CHECKING:
    from anabranch._aio import Clock, Ids, Timer
    from anabranch._asking import (
        Accepted,
        Answerer,
        AnswerError,
        AnsweringPolicy,
        Cancelled,
        Capabilities,
        Declined,
        Elicitation,
        ElicitResult,
        PolicedAnswerer,
        Sampler,
        SampleResult,
    )
    from anabranch._budget import Limits
    from anabranch._engine import idempotency_key
    from anabranch.errors import (
        AnabranchError,
        BranchDepthError,
        BranchLimitError,
        BranchTimeoutError,
        BranchTokenError,
        CallExpiredError,
        CapabilityError,
        ConcurrentElicitError,
        ContextUseError,
        ConverseRoundsError,
        ElicitInBranchError,
        ElicitValidationError,
        IdempotencyKeyError,
        InvalidArgumentsError,
        InvalidTokenError,
        NonDeterminismError,
        NoProgressError,
        OtherVersionError,
        SampleValidationError,
        SerializationError,
        StepFailed,
        StoreError,
        SuspensionError,
        ToolError,
        UnknownCallError,
        UnreachableError,
        UnsupportedRuntimeError,
    )
    from anabranch.messages import Message, ToolSpec, Usage, assistant, user
    from anabranch.rounds import run_tool
    from anabranch.tool import BranchContext, HandoffTool, ToolAnnotations, tool
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "._aio": "Clock Ids Timer",
            "._asking": (
                "Accepted Answerer AnswerError AnsweringPolicy Cancelled Capabilities Declined Elicitation "
                "ElicitResult PolicedAnswerer Sampler SampleResult"
            ),
            "._budget": "Limits",
            "._engine": "idempotency_key",
            ".errors": (
                "AnabranchError BranchDepthError BranchLimitError BranchTimeoutError BranchTokenError "
                "CallExpiredError CapabilityError ConcurrentElicitError ContextUseError "
                "ConverseRoundsError ElicitInBranchError ElicitValidationError IdempotencyKeyError InvalidArgumentsError "
                "InvalidTokenError NonDeterminismError NoProgressError OtherVersionError "
                "SampleValidationError SerializationError StepFailed StoreError SuspensionError "
                "ToolError UnknownCallError UnreachableError UnsupportedRuntimeError"
            ),
            ".messages": "Message ToolSpec Usage assistant user",
            ".rounds": "run_tool",
            ".tool": "BranchContext HandoffTool ToolAnnotations tool",
        },
    )

__all__ = [
    "Accepted",
    "AnabranchError",
    "AnswerError",
    "Answerer",
    "AnsweringPolicy",
    "BranchContext",
    "BranchDepthError",
    "BranchLimitError",
    "BranchTimeoutError",
    "BranchTokenError",
    "CallExpiredError",
    "Cancelled",
    "Capabilities",
    "CapabilityError",
    "Clock",
    "ConcurrentElicitError",
    "ContextUseError",
    "ConverseRoundsError",
    "Declined",
    "ElicitInBranchError",
    "ElicitResult",
    "ElicitValidationError",
    "Elicitation",
    "HandoffTool",
    "IdempotencyKeyError",
    "Ids",
    "InvalidArgumentsError",
    "InvalidTokenError",
    "Limits",
    "Message",
    "NoProgressError",
    "NonDeterminismError",
    "OtherVersionError",
    "PolicedAnswerer",
    "SampleResult",
    "SampleValidationError",
    "Sampler",
    "SerializationError",
    "StepFailed",
    "StoreError",
    "SuspensionError",
    "Timer",
    "ToolAnnotations",
    "ToolError",
    "ToolSpec",
    "UnknownCallError",
    "UnreachableError",
    "UnsupportedRuntimeError",
    "Usage",
    "assistant",
    "idempotency_key",
    "run_tool",
    "tool",
    "user",
]


class _Package(ModuleType):
    """This package, which keeps its names when modules with the same names are imported."""

    def __setattr__(self, name: str, value: object) -> None:
        # The import system sets each imported submodule as an attribute here. ``anabranch.tool``
        # remains the decorator, though it has the name of the module that defines it.
        if name not in __all__ or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
