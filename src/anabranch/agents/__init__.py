"""The agent on the conversation tree: its turns, its tools, its branches.

Owns what happens between a message and the end of the turn that it sets going. Where nodes are
kept, and how a path becomes a request, is the tree's (``tree/``).

    ports.py        a model that streams, a person, names
    events.py       what happens, as it happens
    limits.py       what one turn may use
    tools.py        tools as an agent uses them
    turn.py         one turn, and the tools of one answer
    agent.py        what all turns share, and the ways to set one going
"""

from anabranch.agents.agent import Agent
from anabranch.agents.limits import TurnLimitError, TurnLimits
from anabranch.agents.ports import Absent, Model, Person

__all__ = ["Absent", "Agent", "Model", "Person", "TurnLimitError", "TurnLimits"]
