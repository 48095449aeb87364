"""Servers of other projects that the tests of agents start by a command."""

import pytest

from tests.mcp.harness import ROOT


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find the servers of these tests."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
