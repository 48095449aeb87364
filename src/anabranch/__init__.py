"""Tools that talk back.

Write one straight ``async`` function; inside it ask the model, ask the person, open isolated
sub-conversations, and return one value. The same function runs over every way of calling it.

    anabranch            what a tool author touches
    anabranch.mcp        serve tools over the Model Context Protocol, in both of its eras
    anabranch.models     models for servers, chats and tests
    anabranch.testing    a client for tests that answers as told
"""

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
