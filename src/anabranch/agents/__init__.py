"""Agents: a model with tools whose conversations are trees, and that can fork itself.

An :class:`Agent` runs turns in threads of a :class:`~anabranch.tree.TreeStore`. How a path of the
tree becomes a request to a model is decided in :mod:`anabranch.tree`.

Inside, imports point in one direction: an agent begins turns; a turn alternates between replies on
a timeline and batches of tools; ``branch_self`` and the flows run further turns in branches.
"""

from typing import TYPE_CHECKING

from anabranch._engine import Notice
from anabranch._lazy import lazy_names
from anabranch.agents._agent import Agent
from anabranch.agents._agent import end_of as end_of
from anabranch.agents._agent import given_answer as given_answer
from anabranch.agents._agent import turn_of as turn_of
from anabranch.agents._agent_dependencies import AgentDependencies as AgentDependencies
from anabranch.agents._agent_dependencies import Suspension as Suspension
from anabranch.agents._agent_dependencies import offered as offered
from anabranch.agents._agent_dependencies import require_parts as require_parts
from anabranch.agents._agent_tools import AgentTool
from anabranch.agents._agent_tools import Outcome as Outcome
from anabranch.agents._agent_tools import ToolUse as ToolUse
from anabranch.agents._agent_tools import failed as failed
from anabranch.agents._answers import line_at_head as line_at_head
from anabranch.agents._batch_line import result_at as result_at
from anabranch.agents._branch_progress import BranchOutcome
from anabranch.agents._branch_progress import BranchProgress as BranchProgress
from anabranch.agents._branch_self_tool import BranchSelf
from anabranch.agents._branch_self_tool import BranchSelfTool as BranchSelfTool
from anabranch.agents._branch_states import branch_around as branch_around
from anabranch.agents._branch_states import branches_in as branches_in
from anabranch.agents._call_expiry import end_calls as end_calls
from anabranch.agents._call_expiry import runtime_of as runtime_of
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
from anabranch.agents._tool_questions import is_in_front_end as is_in_front_end
from anabranch.agents._tool_questions import question_id as question_id
from anabranch.agents._tool_questions import question_of as question_of
from anabranch.agents._tool_questions import stored_with as stored_with
from anabranch.agents._tool_set import ToolSource
from anabranch.agents._tool_set import most_tools as most_tools
from anabranch.agents._turn_limits import TurnLimitError, TurnLimits

if TYPE_CHECKING:
    from anabranch.agents._remote_tools import RemoteTools
    from anabranch.agents._remote_tools import ToolChoice as ToolChoice
else:
    # These names need the SDK of MCP.
    __getattr__ = lazy_names(__name__, {"._remote_tools": "RemoteTools ToolChoice"})

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
    "parallel",
]
