"""Checks of whether a tool is safe to replay: one reads its source, one runs it.

The body of a tool is cancelled at each question and run again over its journal. ``check_tool`` reads
the source for what would differ in the second run; ``check_replay`` runs the tool, each round
twice, and reports what did differ.

    _rules.py, _call_rules.py       the rules, and the calls that they are about
    _sources.py, _scopes.py         modules, and the names that they bind
    _value_kinds.py, _values.py     what an expression stands for
    _asks.py, _suspension.py        questions, and the code around them
    _body.py, _static_check.py      the way through a tool
    _rehearsal.py, _compare.py      a tool run twice, and the differences
"""

from anabranch.replay_check._rehearsal import check_replay
from anabranch.replay_check._rules import Finding
from anabranch.replay_check._sources import NoSourceError
from anabranch.replay_check._static_check import check_tool

__all__ = ["Finding", "NoSourceError", "check_replay", "check_tool"]
