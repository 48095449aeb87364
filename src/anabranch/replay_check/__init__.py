"""Checks that find code in a tool that is not safe to replay.

At each question, the library cancels a tool's function, and replays the function when the answer
arrives. ``check_tool`` finds code in the source that would differ in a replay. ``check_replay``
runs the tool, each round twice, and reports the differences.

    _rules.py, _call_rules.py         the rules, and the calls that they concern
    _sources.py, _scopes.py           modules, and the names that they bind
    _values.py                        the value of an expression
    _asks.py, _check.py               questions; the state of a check, and its visitor of a function
    _suspension.py                    the code around questions, and work during a question
    _misuse.py                        operations without await, and mutations
    _static_check.py                  the functions of a tool
    _rehearsal.py, _compare.py        a tool run twice, and the differences
"""

from anabranch.replay_check._rehearsal import check_replay, rehearse
from anabranch.replay_check._rules import Finding
from anabranch.replay_check._sources import NoSourceError
from anabranch.replay_check._static_check import check_tool

__all__ = ["Finding", "NoSourceError", "check_replay", "check_tool"]
