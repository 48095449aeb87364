"""Agents: a model with tools whose conversations are trees, and that can fork itself.

An :class:`Agent` runs turns in threads of a :class:`~anabranch.tree.TreeStore`. How a path of the
tree becomes a request to a model is decided in :mod:`anabranch.tree`.

Inside, imports point in one direction: an agent begins turns; a turn alternates between replies on
a timeline and batches of tools; ``branch_self`` and the flows run further turns in branches.
"""

from typing import TYPE_CHECKING

from anabranch._aio import Clock, Timer
from anabranch._asking.answerer import Absent, Answerer
from anabranch._budget import Account, Reservation
from anabranch._durable.job import Durability
from anabranch._durable.store import CallStore
from anabranch._engine import Answer, Ask, Notice
from anabranch.agents._agent import Agent
from anabranch.agents._agent_dependencies import AgentDependencies, Suspension
from anabranch.agents._agent_tools import (
    AgentTool,
    Asked,
    AskedInBranches,
    Asleep,
    Continuation,
    Outcome,
    ToolUse,
)
from anabranch.agents._batch_line import AnsweredRound, result_at
from anabranch.agents._branch_progress import BranchOutcome
from anabranch.agents._branch_self_tool import BranchSelf
from anabranch.agents._called_tool import CalledTool
from anabranch.agents._events import (
    BranchEnded,
    BranchResumed,
    Event,
    Listener,
    NodeAdded,
    TextReceived,
    ToolBranched,
    ToolEnded,
    ToolNoticed,
    ToolStarted,
    ToolSuspended,
    ignore_event,
)
from anabranch.agents._flows import (
    TEXT_RECOMBINERS,
    branch,
    broadcast_to_leaves,
    combine,
    parallel,
)
from anabranch.agents._folding_tool import Folding
from anabranch.agents._front_end import ContextEntry, FrontEnd
from anabranch.agents._line_writer import QuestionAnsweredError, QuestionExpiredError
from anabranch.agents._meter import AdmittedRequest, Meter
from anabranch.agents._path_end import PathEnd
from anabranch.agents._ports import Model, Naming, Question, random_names
from anabranch.agents._recombination import Recombined
from anabranch.agents._remote_state import RemoteLimits
from anabranch.agents._timeline import RequestMessages, Timeline
from anabranch.agents._tool_questions import (
    ErrorReply,
    FrontEndResult,
    Given,
    Left,
    Reply,
    TimeOver,
    question_of,
)
from anabranch.agents._tool_set import ToolSet, ToolSource
from anabranch.agents._turn import Turn
from anabranch.agents._turn_limits import (
    Charge,
    Price,
    SideUsage,
    Spent,
    TurnLimitError,
    TurnLimits,
    UsageTotal,
)
from anabranch.agents._working_branch import WorkingBranch
from anabranch.tree._person_view import open_questions

if TYPE_CHECKING:
    from anabranch.agents._remote_tools import RemoteTools

__all__ = [
    "TEXT_RECOMBINERS",
    "Absent",
    "Account",
    "AdmittedRequest",
    "Agent",
    "AgentDependencies",
    "AgentTool",
    "Answer",
    "AnsweredRound",
    "Answerer",
    "Ask",
    "Asked",
    "AskedInBranches",
    "Asleep",
    "BranchEnded",
    "BranchOutcome",
    "BranchResumed",
    "BranchSelf",
    "CallStore",
    "CalledTool",
    "Charge",
    "Clock",
    "ContextEntry",
    "Continuation",
    "Durability",
    "ErrorReply",
    "Event",
    "Folding",
    "FrontEnd",
    "FrontEndResult",
    "Given",
    "Left",
    "Listener",
    "Meter",
    "Model",
    "Naming",
    "NodeAdded",
    "Notice",
    "Outcome",
    "PathEnd",
    "Price",
    "Question",
    "QuestionAnsweredError",
    "QuestionExpiredError",
    "Recombined",
    "RemoteLimits",
    "RemoteTools",
    "Reply",
    "RequestMessages",
    "Reservation",
    "SideUsage",
    "Spent",
    "Suspension",
    "TextReceived",
    "TimeOver",
    "Timeline",
    "Timer",
    "ToolBranched",
    "ToolEnded",
    "ToolNoticed",
    "ToolSet",
    "ToolSource",
    "ToolStarted",
    "ToolSuspended",
    "ToolUse",
    "Turn",
    "TurnLimitError",
    "TurnLimits",
    "UsageTotal",
    "WorkingBranch",
    "branch",
    "broadcast_to_leaves",
    "combine",
    "ignore_event",
    "open_questions",
    "parallel",
    "question_of",
    "random_names",
    "result_at",
]


def __getattr__(name: str) -> object:
    """Load what needs the SDK of MCP when it is first used."""
    if name == "RemoteTools":
        from anabranch.agents._remote_tools import RemoteTools  # noqa: PLC0415

        return RemoteTools
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
