"""Links to the pages of questions, and the route that serves the pages.

A link is a sealed capability: anyone who has it may answer one question of one call, once, until the
call expires. What is entered counts only for the caller of that call, in the call's next request.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import mcp_types as types
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from anabranch._durable.entered import enter, entered, waiting_round
from anabranch._durable.policy import Durability
from anabranch._durable.service import CallService
from anabranch._engine import Answer, Journal
from anabranch._health import OffersRoutes
from anabranch._schemas import Form
from anabranch._sealing import SagaClaims, Sealer
from anabranch.errors import InvalidTokenError, StoreError, ToolError
from anabranch.mcp._ask_page import form_page, notice_page, read_form
from anabranch.mcp._rounds import ROUND_REPLIES

ROUTE: Final = "/ask/{token}"
FORM: Final = "application/x-www-form-urlencoded"
LARGEST: Final = 256 * 1024
"""Bytes of a form that is sent."""

logger: logging.Logger = logging.getLogger("anabranch.mcp")


class _Asked(NamedTuple):
    """The question of a link."""

    tool: str
    step_id: str
    journal: Journal
    params: types.ElicitRequestFormParams


class _Refused(Exception):  # noqa: N818 - a page, not an error
    """The request is answered by a page that says why it is refused."""

    def __init__(self, title: str, text: str, status: int) -> None:
        super().__init__(title)
        self.page = notice_page(title, text, status)


@dataclass(frozen=True, slots=True)
class AskLinks:
    """Makes the links of one server, and serves their pages.

    Attributes:
        url: where users reach the server.
        calls: runs its calls, with a store.
        policy: has the store, where what is entered waits for the call's next request.
        sealer: seals the links.
    """

    url: str
    calls: CallService
    policy: Durability
    sealer: Sealer

    def offer(self, server: OffersRoutes) -> None:
        """Let ``server`` serve the pages over HTTP."""
        server.custom_route(ROUTE, ["GET", "POST"])(self.serve)

    async def make(self, tool: str, state: str, step_id: str) -> str:
        """Return the link to the question ``step_id`` of the round that handed out ``state``.

        Raises:
            ToolError: the store does not answer.
        """
        short = await self.calls.stored.shortened(state)
        # For no principal: the person's browser is not the caller. The call's record has the caller.
        token = self.sealer.seal(SagaClaims(tool=tool, state=short, question=step_id), "")
        return f"{self.url.rstrip('/')}/ask/{token}"

    async def serve(self, request: Request) -> Response:
        """Answer the request for a page, or of its form."""
        try:
            asked = await self._asked(str(request.path_params["token"]))
            form = Form.model_validate(asked.params.requested_schema)
            if request.method != "POST":
                return form_page(asked.tool, asked.params.message, form)
            return await self._take(asked, form, await self._sent(request))
        except _Refused as refusal:
            return refusal.page
        except ClientDisconnect:
            return Response(status_code=400)
        except (StoreError, ToolError) as error:
            logger.error("a page could not be served: %s", error)  # noqa: TRY400 - the sentence is all
            again = "The server cannot reach its records just now. Please try again in a minute."
            return notice_page("Please try again", again, 503)

    async def _asked(self, token: str) -> _Asked:
        try:
            claims = self.sealer.open(token, "")
            journal = await self.calls.stored.load(claims.state)
        except InvalidTokenError as error:
            gone = "This link is not valid, or has expired. Ask for a new one in your conversation."
            raise _Refused("This link is not valid", gone, 404) from error
        waiting = await waiting_round(self.policy.store, journal, self.calls.runtime.clock.now())
        if waiting is None:
            raise _answered()
        # Other questions may have been answered since: then this one is asked by a later round.
        journal = await self.calls.stored.load(waiting.state)
        reply = self.calls.stored.repeated(ROUND_REPLIES, journal.line, waiting)
        asked = {} if reply is None else reply.input_requests or {}
        params = asked[claims.question].params if claims.question in asked else None
        done = claims.question in await entered(self.policy.store, journal)
        if done or not isinstance(params, types.ElicitRequestFormParams):
            raise _answered()
        return _Asked(claims.tool, claims.question, journal, params)

    async def _sent(self, request: Request) -> dict[str, list[str]]:
        """Return the fields of the form that was sent, if it was sent by its own page."""
        own = urlsplit(self.url)
        if request.headers.get("origin") != f"{own.scheme}://{own.netloc}":
            raise _Refused("Not accepted", "The form was not sent by its own page.", 403)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            raise _Refused("Not accepted", "This is not what the page's form sends.", 415)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST:
                raise _Refused("Not accepted", "That is more than a form may hold.", 413)
        try:
            return parse_qs(
                body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1000
            )
        except ValueError as error:
            raise _Refused("Not accepted", "That is more than a form may hold.", 413) from error

    async def _take(self, asked: _Asked, form: Form, given: dict[str, list[str]]) -> Response:
        action = given.get("action", ["accept"])[0]
        answer = Answer({"action": "cancel" if action == "cancel" else "decline"})
        if action not in {"decline", "cancel"}:
            content, errors = read_form(form, given)
            if errors:
                return form_page(asked.tool, asked.params.message, form, given, errors)
            answer = Answer({"action": "accept", "content": content})
        await self._enter(asked, answer)
        text = "Go back to your conversation and say that you have answered; it goes on there."
        return notice_page("Thank you", text)

    async def _enter(self, asked: _Asked, answer: Answer) -> None:
        """Store an answer; its client has as long to come for it as after a request of its own."""
        until = self.calls.runtime.clock.now() + self.policy.expire_after
        if not await enter(self.policy.store, asked.journal, asked.step_id, answer, until):
            raise _answered()


def _answered() -> _Refused:
    text = (
        "It was answered, or is not asked any more. Go back to your conversation; it goes on there."
    )
    return _Refused("This question is closed", text, 410)
