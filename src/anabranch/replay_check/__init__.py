"""What in a tool is not safe to replay.

A tool's body is thrown away at each question and run again over its journal. ``check_tool`` reads
the source for what would differ then; ``check_replay`` runs the tool, each round twice, and tells
what did differ.

    findings.py               what is found
    rules.py, calls.py        the rules, and which calls they are about
    sources.py, scopes.py     modules, and the names in them
    kinds.py, values.py       what an expression stands for
    asks.py, suspension.py    questions, and the code around them
    changes.py                what outlives one run of the body
    body.py, check.py         the walk through a tool; reports.py is what they share
    rehearsal.py, compare.py  a tool run twice, and how the runs differ
"""

from anabranch.replay_check._findings import Finding
from anabranch.replay_check._rehearsal import check_replay
from anabranch.replay_check._static_check import check_tool

__all__ = ["Finding", "check_replay", "check_tool"]
