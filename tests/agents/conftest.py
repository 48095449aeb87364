"""Servers of other projects, which agent tests start by a command."""

import pytest

from tests.mcp.harness import ROOT


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands find the servers of these tests."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
