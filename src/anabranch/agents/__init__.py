"""The agent on the conversation tree: its turns, its tools, its branches.

Owns what happens between a message and the end of the turn that it sets going. Where nodes are
kept, and how a path becomes a request, is the tree's (``tree/``).

    ports.py        a model that streams, a person, names
    events.py       what happens, as it happens
    limits.py       what one turn may use
    tools.py        tools as an agent uses them
    together.py     several things at once
    appending.py    what comes to be written at the same time is written together
    phase.py        the tools of one answer, while they run
    turn.py         one turn
    agent.py        what all turns share, and the ways to set one going
    branches.py     branches growing from their prompts
    recombining.py  what they have said becomes one text
    branch_input.py what a model may hand to branch_self
    branching.py    branch_self: the model forks itself
    flows.py        conversations led by program
"""

from anabranch._asking.answerer import Absent
from anabranch.agents import _flows as flows
from anabranch.agents._agent import Agent
from anabranch.agents._branch_self import BranchSelf
from anabranch.agents._branches import Grown
from anabranch.agents._ports import Model
from anabranch.agents._recombining import Recombined
from anabranch.agents._turn_limits import TurnLimitError, TurnLimits

__all__ = [
    "Absent",
    "Agent",
    "BranchSelf",
    "Grown",
    "Model",
    "Recombined",
    "TurnLimitError",
    "TurnLimits",
    "flows",
]
