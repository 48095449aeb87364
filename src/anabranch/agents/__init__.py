"""Agents: a model that replies in threads, calls tools, and opens branches for subtasks.

An :class:`Agent` runs turns in threads of a :class:`~anabranch.tree.TreeStore`. Each request to the
model contains one path of the thread's tree, as :mod:`anabranch.tree` projects it.

Inside, imports point in one direction. An agent starts turns. A turn alternates between replies on
a timeline and batches of tools. ``branch_self`` and the flows run further turns in branches.
"""

from typing import TYPE_CHECKING

from anabranch._engine import Notice
from anabranch._lazy import lazy_names
from anabranch.agents._agent import Agent, add_reply, end_of, given_answer, turn_of, with_front_end
from anabranch.agents._agent_dependencies import (
    AgentDependencies,
    Model,
    Naming,
    Suspension,
    offered,
    random_names,
    require_parts,
)
from anabranch.agents._agent_tools import AgentTool, Outcome, ToolUse, failed
from anabranch.agents._batch_line import result_at
from anabranch.agents._branch_progress import BranchOutcome, PathEnd, branch_around, branches_in
from anabranch.agents._branch_self_tool import BranchSelf, BranchSelfTool
from anabranch.agents._called_tool import CalledTool, end_calls, runtime_of
from anabranch.agents._events import (
    Addition,
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
    store_nodes,
)
from anabranch.agents._flows import TEXT_RECOMBINERS, branch, broadcast_to_leaves, combine, parallel
from anabranch.agents._folding_tool import Folding
from anabranch.agents._line_writer import QuestionAnsweredError, QuestionExpiredError
from anabranch.agents._recombination import Recombined
from anabranch.agents._remote_values import RemoteLimits
from anabranch.agents._timeline import Timeline
from anabranch.agents._tool_questions import (
    FrontEndResult,
    Question,
    Reply,
    TimeOver,
    is_in_front_end,
    question_id,
    question_of,
    stored_with,
)
from anabranch.agents._tool_set import ContextEntry, FrontEnd, ToolSource, most_tools
from anabranch.agents._turn import line_at_head
from anabranch.agents._turn_limits import TurnLimitError, TurnLimits

if TYPE_CHECKING:
    from anabranch.agents._remote_tools import RemoteTools, ToolChoice
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
    "Event",
    "Folding",
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
