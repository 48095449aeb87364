"""A server's callers see no text of a model's error."""

import pytest

from anabranch import BranchContext, tool
from anabranch.models import ProviderError
from tests.masking import with_any_id
from tests.mcp.harness import ERAS, connected, serving, text_of
from tests.sagas.harness import call_saga, text_in


@tool
async def ask_directly(ctx: BranchContext) -> str:
    raise ProviderError("m refused the key (401): no key hunter2 in org-1. Check the key.")


@pytest.mark.parametrize("era", ERAS)
async def test_text_of_a_provider_does_not_reach_the_callers_of_a_server(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    """This is a decision: the provider's text may contain information for the operator only."""
    async with connected(serving(ask_directly), era) as client:
        called = await client.call_tool("ask_directly")
        saga = await call_saga(client, "ask_directly", {})
    for shown in (text_of(called), text_in(saga)):
        assert with_any_id(shown) == "Error executing tool ask_directly (error ID)"
    assert called.is_error
    assert saga["isError"]
    assert "hunter2" in caplog.text
