"""Agents: a model with tools whose conversations are trees, and that can fork itself.

An :class:`Agent` runs turns in threads of a :class:`~anabranch.tree.TreeStore`. How a path of the
tree becomes a request to a model is decided in :mod:`anabranch.tree`. Each module imports only
modules above it in this list:

    _ports                 what an agent needs: a model that streams, a person, names
    _events                what a listener receives during a turn
    _turn_limits           what a turn may use, and the count of what it has used
    _gather_structured     concurrent jobs that raise one plain error
    _append_queue          combines writes that are made at the same time
    _agent_dependencies    what all turns of an agent share
    _timeline              a path that a turn extends by replies of the model
    _tool_questions        questions of tools, as nodes
    _agent_tools           the port of a tool that the model can call
    _called_tool           an anabranch tool behind that port
    _tool_batch            the tools of one reply, run at the same time
    _turn                  one turn: replies and tools until no tool is called
    _agent                 the agent: the ways to begin a turn
    _branch_runs           branches, run from their prompts
    _recombination         one text made of the answers of branches
    _branch_self_input     the input of branch_self
    _branch_self_tool      branch_self: the model forks itself
    _flows                 conversations led by a program
"""

from anabranch._asking.answerer import Absent, Answerer
from anabranch._engine import Notice
from anabranch._engine.clock import Clock, Timer
from anabranch.agents._agent import Agent
from anabranch.agents._agent_dependencies import AgentDependencies
from anabranch.agents._agent_tools import AgentTool, Outcome, ToolUse
from anabranch.agents._branch_runs import BranchOutcome
from anabranch.agents._branch_self_tool import BranchSelf
from anabranch.agents._called_tool import CalledTool
from anabranch.agents._events import (
    Event,
    Listener,
    NodeAdded,
    TextReceived,
    ToolEnded,
    ToolNoticed,
    ToolStarted,
    ignore_event,
)
from anabranch.agents._flows import (
    TEXT_RECOMBINERS,
    StopCondition,
    branch,
    broadcast_to_leaves,
    chain,
    combine,
    parallel,
    prompt_while,
    said,
    tool_not_used,
    tool_used,
    tree_of_thought,
)
from anabranch.agents._ports import Model, Naming, Question, random_names
from anabranch.agents._recombination import Recombined
from anabranch.agents._timeline import RequestMessages, Timeline
from anabranch.agents._tool_questions import ToolQuestions, question_of
from anabranch.agents._turn import Turn
from anabranch.agents._turn_limits import Meter, Price, TurnLimitError, TurnLimits, UsageTotal

__all__ = [
    "TEXT_RECOMBINERS",
    "Absent",
    "Agent",
    "AgentDependencies",
    "AgentTool",
    "Answerer",
    "BranchOutcome",
    "BranchSelf",
    "CalledTool",
    "Clock",
    "Event",
    "Listener",
    "Meter",
    "Model",
    "Naming",
    "NodeAdded",
    "Notice",
    "Outcome",
    "Price",
    "Question",
    "Recombined",
    "RequestMessages",
    "StopCondition",
    "TextReceived",
    "Timeline",
    "Timer",
    "ToolEnded",
    "ToolNoticed",
    "ToolQuestions",
    "ToolStarted",
    "ToolUse",
    "Turn",
    "TurnLimitError",
    "TurnLimits",
    "UsageTotal",
    "branch",
    "broadcast_to_leaves",
    "chain",
    "combine",
    "ignore_event",
    "parallel",
    "prompt_while",
    "question_of",
    "random_names",
    "said",
    "tool_not_used",
    "tool_used",
    "tree_of_thought",
]
