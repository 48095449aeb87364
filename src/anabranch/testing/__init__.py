"""Helpers for tests of tools: mock client and model, manual clock, faulty engine, replay checks.

    client = MockClient(samples=["An interesting hand."], elicits=[{"cardNumber": 3}])
    result = await run_tool(PickCard(db), {"count": 5}, client)

``run_tool`` replays every round by default, so a tool that is not safe to replay fails in its
author's tests. ``check_tool`` and ``check_replay`` name the cause.
"""

from anabranch._asking import AnswerError
from anabranch.replay_check import Finding, check_replay, check_tool
from anabranch.rounds import run_tool
from anabranch.testing._mocks import (
    MockClient,
    MockExhausted,
    MockModel,
    ModelAnswer,
    ModelFunction,
    calls,
)
from anabranch.testing._test_engine import ManualClock, SequentialIds, TestEngine

__all__ = [
    "AnswerError",
    "ManualClock",
    "MockClient",
    "MockExhausted",
    "MockModel",
    "SequentialIds",
    "TestEngine",
    "calls",
    "check_replay",
    "check_tool",
    "run_tool",
]
