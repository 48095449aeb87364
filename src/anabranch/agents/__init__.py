"""Agents: a model with tools whose conversations are trees, and that can fork itself.

An :class:`Agent` runs turns in threads of a :class:`~anabranch.tree.TreeStore`. How a path of the
tree becomes a request to a model is decided in :mod:`anabranch.tree`.

Inside, imports point in one direction: an agent begins turns; a turn alternates between replies on
a timeline and batches of tools; ``branch_self`` and the flows run further turns in branches.
"""

from typing import TYPE_CHECKING

from anabranch._aio import Clock as Clock
from anabranch._asking import Absent as Absent
from anabranch._asking import Answerer as Answerer
from anabranch._durable import CallStore as CallStore
from anabranch._durable import Durability as Durability
from anabranch._engine import Notice
from anabranch.agents._agent import Agent
from anabranch.agents._agent import end_of as end_of
from anabranch.agents._agent import given_answer as given_answer
from anabranch.agents._agent import turn_of as turn_of
from anabranch.agents._agent_dependencies import AgentDependencies as AgentDependencies
from anabranch.agents._agent_tools import AgentTool
from anabranch.agents._agent_tools import Outcome as Outcome
from anabranch.agents._agent_tools import ToolUse as ToolUse
from anabranch.agents._batch_line import result_at as result_at
from anabranch.agents._branch_progress import BranchOutcome
from anabranch.agents._branch_self_tool import BranchSelf
from anabranch.agents._branch_self_tool import BranchSelfTool as BranchSelfTool
from anabranch.agents._called_tool import CalledTool as CalledTool
from anabranch.agents._events import (
    BranchEnded,
    BranchResumed,
    Event,
    NodeAdded,
    TextReceived,
    ToolBranched,
    ToolEnded,
    ToolNoticed,
    ToolStarted,
    ToolSuspended,
)
from anabranch.agents._events import Listener as Listener
from anabranch.agents._events import ignore_event as ignore_event
from anabranch.agents._flows import TEXT_RECOMBINERS as TEXT_RECOMBINERS
from anabranch.agents._flows import branch, broadcast_to_leaves, combine, parallel
from anabranch.agents._folding_tool import Folding
from anabranch.agents._front_end import ContextEntry, FrontEnd
from anabranch.agents._line_writer import QuestionAnsweredError, QuestionExpiredError
from anabranch.agents._path_end import PathEnd as PathEnd
from anabranch.agents._ports import Model as Model
from anabranch.agents._ports import Naming as Naming
from anabranch.agents._ports import Question as Question
from anabranch.agents._ports import random_names as random_names
from anabranch.agents._recombination import Recombined
from anabranch.agents._remote_limits import RemoteLimits
from anabranch.agents._timeline import Timeline as Timeline
from anabranch.agents._tool_questions import FrontEndResult
from anabranch.agents._tool_questions import Reply as Reply
from anabranch.agents._tool_questions import TimeOver as TimeOver
from anabranch.agents._tool_questions import question_of as question_of
from anabranch.agents._tool_set import ToolSource
from anabranch.agents._turn_limits import TurnLimitError, TurnLimits
from anabranch.tree import open_questions

if TYPE_CHECKING:
    from anabranch.agents._remote_tools import RemoteTools

__all__ = [
    "Agent",
    "AgentTool",
    "BranchEnded",
    "BranchOutcome",
    "BranchResumed",
    "BranchSelf",
    "ContextEntry",
    "Event",
    "Folding",
    "FrontEnd",
    "FrontEndResult",
    "NodeAdded",
    "Notice",
    "QuestionAnsweredError",
    "QuestionExpiredError",
    "Recombined",
    "RemoteLimits",
    "RemoteTools",
    "TextReceived",
    "ToolBranched",
    "ToolEnded",
    "ToolNoticed",
    "ToolSource",
    "ToolStarted",
    "ToolSuspended",
    "TurnLimitError",
    "TurnLimits",
    "branch",
    "broadcast_to_leaves",
    "combine",
    "open_questions",
    "parallel",
]


def __getattr__(name: str) -> object:
    """Load a name that needs the SDK of MCP on its first use."""
    if name == "RemoteTools":
        from anabranch.agents._remote_tools import RemoteTools  # noqa: PLC0415

        return RemoteTools
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
