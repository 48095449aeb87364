"""The sealed token: who may present it, for which saga, and how long. Every refusal has one
message.

Source: design, "What a client sends is hostile"; the saga proposal leaves all of this open.
"""

import base64
import hashlib
import hmac
import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import AESGCMRequestStateCodec

from anabranch import Accepted, BranchContext, tool
from anabranch._durable import SagaClaims, Sealer
from anabranch.mcp import create_server
from anabranch.testing import ManualClock
from anabranch.tool import Tool
from tests.mcp.harness import KEY, MODERN, Answers, connected
from tests.sagas.harness import (
    REFUSED,
    Number,
    accepted,
    call_saga,
    raw,
    refusal,
    resume_saga,
    signed_in,
    text_in,
)

OLD, NEW = "the old secret, long enough for a key", "the new secret, long enough for a key"
ONE, TWO = accepted("ask/elicit.1", n=1), accepted("ask/elicit.2", n=2)


def asking(name: str = "ask", ran: list[str] | None = None) -> Tool[str]:
    @tool(name=name)
    async def body(ctx: BranchContext, what: str = "it") -> str:
        if ran is not None:
            ran.append(name)
        answers = [await ctx.elicit(Number, f"{what}?") for _ in range(2)]
        return f"{what}: {sum(a.content.n for a in answers if isinstance(a, Accepted))}"

    return body


def joined(server: Any) -> Any:
    """Connect a client that declares nothing."""
    return connected(server, MODERN, Answers())


def server_of(*tools: Tool[Any], **options: Any) -> Any:
    given: dict[str, Any] = {"keys": [KEY], **options}
    return create_server(given.pop("name", "test"), tools or [asking()], **given)


async def begun(client: Client, name: str = "ask", **arguments: Any) -> str:
    token: str = (await call_saga(client, name, arguments))["sagaToken"]
    return token


async def assert_refused(
    client: Client, token: str, reason: str, caplog: pytest.LogCaptureFixture, *steps: Any
) -> None:
    caplog.clear()
    params = {"sagaToken": token, "completedSteps": list(steps or [ONE])}
    assert await refusal(client, "tools/resumeSaga", params) == REFUSED
    assert reason in caplog.text


def changed(token: str, place: int) -> str:
    """Return ``token`` with another letter at ``place``."""
    letter = "A" if token[place] != "A" else "B"
    return token[:place] + letter + token[place + 1 :]


SPOILED: dict[str, Callable[[str], str]] = {
    "version": lambda token: "v2" + token[2:],
    "empty": lambda token: "",
    "not unicode": lambda token: "v1.\ud800",
    "encoded": lambda token: base64.b64encode(b'{"tool":"ask"}').decode(),
    "huge": lambda token: token * 3000,
}
"""How a token is spoiled where ``test_attacks.py``, which changes letters, does not come."""


@pytest.mark.parametrize("how", SPOILED)
async def test_a_changed_token_is_refused_before_anything_runs(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    async with joined(server_of(asking(ran=ran))) as client:
        token = await begun(client)
        ran.clear()
        await assert_refused(client, SPOILED[how](token), "a saga token was refused", caplog)
    assert ran == []


async def test_a_token_expires(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    async with joined(server_of(ttl=30, clock=clock)) as client:
        token = await begun(client)
        clock.advance(29.5)
        again = (await resume_saga(client, token, ONE))["sagaToken"]
        clock.advance(0.5)
        await assert_refused(client, token, "expired", caplog)
        clock.advance(29)  # the server counts the time from the start of each turn
        assert text_in(await resume_saga(client, again, ONE, TWO)) == "it: 3"


@pytest.mark.parametrize(("ahead", "refused"), [(60, False), (61, True)])
async def test_a_token_from_the_future_is_refused_beyond_a_small_clock_difference(
    ahead: float, refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    there, here = ManualClock(1000.0 + ahead), ManualClock(1000.0)
    async with joined(server_of(clock=there)) as client:
        token = await begun(client)
    async with joined(server_of(clock=here)) as client:
        if refused:
            await assert_refused(client, token, "minted in the future", caplog)
        else:
            assert (await resume_saga(client, token, ONE))["state"] == "suspended"


async def test_keys_rotate_while_steps_are_open(caplog: pytest.LogCaptureFixture) -> None:
    async with joined(server_of(keys=[OLD])) as client:
        token = await begun(client)
    async with joined(server_of(keys=[NEW])) as client:
        await assert_refused(client, token, "InvalidRequestState", caplog)
    async with joined(server_of(keys=[NEW, OLD])) as client:
        token = (await resume_saga(client, token, ONE))["sagaToken"]
    async with joined(server_of(keys=[NEW])) as client:
        assert text_in(await resume_saga(client, token, ONE, TWO)) == "it: 3"


async def test_a_token_opens_no_other_tool_when_its_tool_is_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with joined(server_of(asking("ask"))) as client:
        token = await begun(client)
    async with joined(server_of(asking("other"))) as client:
        await assert_refused(client, token, "there is no tool 'ask'", caplog)


async def test_the_token_decides_the_tool_and_its_arguments() -> None:
    """The server ignores the names and arguments that a client sends next to the token."""
    ran: list[str] = []
    async with joined(server_of(asking(), asking("other", ran))) as client:
        params = {
            "sagaToken": await begun(client, what="this"),
            "completedSteps": [ONE],
            "name": "other",
            "arguments": {"what": "that"},
        }
        reply = await raw(client, "tools/resumeSaga", params)
        last = await resume_saga(client, reply["sagaToken"], ONE, TWO)
    assert text_in(last) == "this: 3"
    assert ran == []


@pytest.mark.parametrize(("mine", "theirs"), [("ida", "bo"), ("ida", None), (None, "bo")])
async def test_a_token_belongs_to_its_caller(
    mine: str | None, theirs: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with signed_in(mine) if mine else nullcontext():
        async with joined(server_of()) as client:
            token = await begun(client)
            assert (await resume_saga(client, token, ONE))["state"] == "suspended"
    with signed_in(theirs) if theirs else nullcontext():
        async with joined(server_of()) as client:
            await assert_refused(client, token, "principal", caplog)


async def test_a_sealed_state_of_another_kind_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """The token has a valid seal, and content that this release never writes."""
    sealer = Sealer([KEY], audience="test", ttl=60, clock=ManualClock(0.0))
    async with joined(server_of(clock=ManualClock(0.0))) as client:
        for state in ("", "{}", "@x", '@["a",0,"b"]', "x [1]"):
            token = sealer.seal(SagaClaims(tool="ask", arguments={}, state=state), "")
            await assert_refused(client, token, "a state was refused", caplog)


@pytest.mark.parametrize("inside", [b"", b"[]", b"{}", b'{"tool": 1}\n', b"\xff", b"[" * 100_000])
async def test_a_sealed_text_that_holds_no_claims_is_refused(
    inside: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    derived = hmac.digest(KEY.encode(), b"anabranch/saga/v1", hashlib.sha256)
    async with joined(server_of()) as client:
        token = AESGCMRequestStateCodec([derived]).seal(inside)
        await assert_refused(client, token, "a saga token was refused", caplog)


async def test_an_older_token_can_be_used_until_it_expires() -> None:
    """Without a store a client can use a token several times, and so fork the saga."""
    async with joined(server_of()) as client:
        one = await begun(client)
        other = accepted("ask/elicit.1", n=10)
        left = (await resume_saga(client, one, ONE))["sagaToken"]
        right = (await resume_saga(client, one, other))["sagaToken"]
        assert text_in(await resume_saga(client, left, ONE, TWO)) == "it: 3"
        assert text_in(await resume_saga(client, right, other, TWO)) == "it: 12"


async def test_the_log_has_the_reason_and_neither_token_nor_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "anabranch")
    async with joined(server_of()) as client:
        token = await begun(client, what="a secret plan")
        await assert_refused(client, changed(token, 20), "refused", caplog, accepted("x", n=777))
        mine = [record.getMessage() for record in caplog.records if "anabranch" in record.name]
    assert mine
    assert not any(word in line for line in mine for word in (token[3:20], "777", "secret plan"))
