"""Tools that talk back: one linear async function that can ask the model and the person.

Inside the function a tool asks with ``ctx.sample`` and ``ctx.elicit``, opens isolated
sub-conversations with ``ctx.branch``, performs recorded effects with ``ctx.step``, and returns one
value. The same function runs unchanged over every way of calling it. The public modules:

    anabranch                 what the author of a tool needs
    anabranch.agents          agents that work on a conversation tree
    anabranch.chat            the chat: sessions, commands and plugins
    anabranch.cli             the command line
    anabranch.context         the context, the author's view of a branch
    anabranch.elicitation     typed questions to the person, and their answers
    anabranch.errors          the hierarchy of errors
    anabranch.inprocess       run a tool in this process
    anabranch.limits          limits on depth, tokens and time
    anabranch.mcp             serve and call tools over the Model Context Protocol
    anabranch.messages        messages, requests and replies
    anabranch.models          provider models and scripted ones
    anabranch.replay_check    find what in a tool is not safe to replay
    anabranch.stores          SQLite and Postgres stores
    anabranch.testing         a mock client, a mock model, manual time
    anabranch.testing.suites  the tests that every store must pass
    anabranch.tool            the classes of tools
    anabranch.tree            the conversation tree

Modules with an underscore in their path are private.
"""

from anabranch._asking.answerer import Answerer, AnswerError
from anabranch._asking.host import Capabilities
from anabranch._asking.sampling import Sampler, SampleResult
from anabranch._engine.clock import Clock, Ids, Timer
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
from anabranch.tool import HandoffTool, tool

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
    "Clock",
    "ConcurrentElicitError",
    "Declined",
    "ElicitInBranchError",
    "ElicitResult",
    "ElicitValidationError",
    "Elicitation",
    "HandoffTool",
    "Ids",
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
    "Timer",
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
