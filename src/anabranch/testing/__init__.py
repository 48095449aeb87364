"""For the tests of tool authors: a client that answers as told, and time that waits for you.

    client = MockClient(samples=["An interesting hand."], elicits=[{"cardNumber": 3}])
    result = await run_tool(PickCard(db), {"count": 5}, client)

``run_tool`` replays every round by default, so that a tool which is not safe to replay fails in
its author's own test.
"""

from anabranch.edges.direct import AnswerError, run_tool
from anabranch.testing.client import MockClient, MockExhausted
from anabranch.testing.model import MockModel, calls
from anabranch.testing.time import ManualClock, SequentialIds

__all__ = [
    "AnswerError",
    "ManualClock",
    "MockClient",
    "MockExhausted",
    "MockModel",
    "SequentialIds",
    "calls",
    "run_tool",
]
