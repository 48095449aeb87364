"""For the tests of tool authors: a client that answers as told, and time that waits for you.

    client = MockClient(samples=["An interesting hand."], elicits=[{"cardNumber": 3}])
    result = await run_tool(PickCard(db), {"count": 5}, client)

``run_tool`` replays every round by default, so that a tool which is not safe to replay fails in
its author's own test. ``check_tool`` and ``check_replay`` look for what is not, in its source and in
a run.
"""

from anabranch._asking.answerer import AnswerError
from anabranch.inprocess import run_tool
from anabranch.replay_check import Finding, check_replay, check_tool
from anabranch.testing._manual_time import ManualClock, SequentialIds
from anabranch.testing._mock_client import MockClient, MockExhausted
from anabranch.testing._mock_model import MockModel, calls

__all__ = [
    "AnswerError",
    "Finding",
    "ManualClock",
    "MockClient",
    "MockExhausted",
    "MockModel",
    "SequentialIds",
    "calls",
    "check_replay",
    "check_tool",
    "run_tool",
]
