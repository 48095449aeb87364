"""The page of a question: its HTML form without script, its link, and its sent answers.

All text on the page is foreign, so all of it is escaped. The page loads nothing, runs nothing,
refuses to be framed, and sends its form only to its own address.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import mcp_types as types
from pydantic import JsonValue
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response

from anabranch._durable import (
    CallService,
    Durability,
    SagaClaims,
    Sealer,
    enter,
    entered,
    waiting_round,
)
from anabranch._engine import Answer, Journal
from anabranch._health import OffersRoutes
from anabranch._schemas import LEAVE_OUT, Field, Form, LeaveOut, Option
from anabranch._text import printable
from anabranch.errors import InvalidTokenError, StoreError, ToolError
from anabranch.mcp._eras import ROUND_REPLIES

PREFIX: Final = "field:"
"""The prefix of field names, so that no field has the name of the button."""

_STYLE = """
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; padding: 0 1rem; }
.message { white-space: pre-wrap; overflow-wrap: anywhere; }
.field { margin: 1rem 0; }
fieldset.field { padding: .5rem 1rem; }
label.name, legend { font-weight: bold; }
.message, legend, label, .hint, .error { unicode-bidi: plaintext; }
label.name { display: block; }
input:not([type=checkbox]), select, textarea { display: block; width: 100%; box-sizing: border-box; font: inherit; padding: .4rem; }
.hint { color: #555; }
.error { color: #a00; font-weight: bold; }
button { font: inherit; padding: .4rem 1rem; margin-right: .5rem; }
"""

_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()

HEADERS: Final = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self';"
    " frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # the URL alone gives the right to answer
    "Cache-Control": "no-store",
}

Given = Mapping[str, Sequence[str]]


def notice_page(title: str, text: str, status: int = 200) -> HTMLResponse:
    return _page(title, f'<p class="message" dir="auto">{_text(text)}</p>', status)


def form_page(
    tool: str, message: str, form: Form, given: Given | None = None, errors: Mapping[str, str] = {}
) -> HTMLResponse:
    fields = [
        _field(name, field, given, errors.get(name), required=name in form.required)
        for name, field in form.properties.items()
    ]
    wrong = '<p class="error" role="alert">Please correct the fields below.</p>' if errors else ""
    body = (
        f'<p class="message" dir="auto">{_text(message)}</p>{wrong}<form method="post" accept-charset="utf-8">'
        f"{''.join(fields)}"
        '<button name="action" value="accept">Send</button>'
        '<button name="action" value="decline" formnovalidate>Decline</button>'
        '<button name="action" value="cancel" formnovalidate>Cancel</button></form>'
    )
    return _page(f"A question of {tool}", body, 422 if errors else 200)


def read_form(form: Form, given: Given) -> tuple[dict[str, JsonValue], dict[str, str]]:
    """Return the valid values and the problems of the invalid values, each by field."""
    content: dict[str, JsonValue] = {}
    errors: dict[str, str] = {}
    for name, field in form.properties.items():
        try:
            value = _value(field, given.get(PREFIX + name, ()), required=name in form.required)
        except ValueError as error:
            errors[name] = str(error)
        else:
            if not isinstance(value, LeaveOut):
                content[name] = value
    return content, errors


def _value(field: Field, given: Sequence[str], *, required: bool) -> JsonValue | LeaveOut:
    choices = _choices(field)
    if field.is_typed_list:
        return field.listed("\n".join(given).splitlines(), required=required)
    if field.type == "array":
        if not {*given} <= {*choices}:
            raise ValueError("choose from these")
        return field.chosen([choices[each].const for each in given], required=required)
    text = given[0].strip() if given else ""
    if not text and not required:
        return LEAVE_OUT
    if not text:
        raise ValueError("choose one" if choices else "fill this in")
    if choices and text not in choices:
        raise ValueError("choose one of these")
    return choices[text].const if choices else field.read(text, required=required)


def _choices(field: Field) -> dict[str, Option]:
    """Return the choices of a field by their text; none for a field into which the user types."""
    if field.type == "boolean":
        return {"yes": Option(const=True, title="yes"), "no": Option(const=False, title="no")}
    return {option.text: option for option in field.options or field.items.options}


def _field(
    name: str, field: Field, given: Given | None, error: str | None, *, required: bool
) -> str:
    sent, hint = PREFIX + name, field.in_words(required=required, titled=False)
    values = _defaults(field) if given is None else list(given.get(sent, ()))
    described = f' aria-describedby="{_text(sent)}:hint"' + (
        ' aria-invalid="true"' if error else ""
    )
    title = f"{_text(field.title or name)}{'' if required else ' (optional)'}"
    notes = f'<div class="hint" id="{_text(sent)}:hint">{_text(hint)}'
    notes += f'<div class="error">{_text(error)}</div></div>' if error else "</div>"
    if field.type == "array" and not field.is_typed_list:
        boxes = "".join(
            f'<div dir="auto"><label><input type="checkbox" name="{_text(sent)}" value="{_text(value)}"'
            f"{' checked' if value in values else ''}> {_text(option.label)}</label></div>"
            for value, option in _choices(field).items()
        )
        return f'<fieldset class="field" dir="auto"{described}><legend>{title}</legend>{boxes}{notes}</fieldset>'
    attributes = f'id="{_text(sent)}" name="{_text(sent)}" dir="auto"{described}{" required" if required else ""}'
    value = values[0] if values else ""
    if choices := _choices(field):
        options = {"": "", **{each: option.label for each, option in choices.items()}}
        control = "".join(
            f'<option value="{_text(each)}"{" selected" if each == value else ""}>{_text(label)}</option>'
            for each, label in options.items()
        )
        control = f"<select {attributes}>{control}</select>"
    elif field.is_typed_list:
        lines = _text("\n".join(values))
        control = (
            f'<textarea {attributes} rows="4" placeholder="one entry per line">{lines}</textarea>'
        )
    else:
        control = f'<input {attributes} {_TYPED.get(field.format or field.type, "")} value="{_text(value)}">'
    label = f'<label class="name" for="{_text(sent)}">{title}</label>'
    return f'<div class="field">{label}{control}{notes}</div>'


_TYPED = {
    "integer": 'inputmode="numeric"',  # a number field would drop invalid entries
    "number": 'inputmode="decimal"',
    "email": 'type="email"',
    "uri": 'type="url"',
    "date": 'placeholder="YYYY-MM-DD"',
    "date-time": 'placeholder="YYYY-MM-DDTHH:MM"',
}


def _defaults(field: Field) -> list[str]:
    default = field.default
    if isinstance(default, list):
        return [str(each) for each in default]
    if isinstance(default, bool):
        return ["yes" if default else "no"]
    return [] if default is None else [str(default)]


def _page(title: str, body: str, status: int) -> HTMLResponse:
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{_text(title)}</h1>{body}</main></body></html>"
    )
    return HTMLResponse(html, status, HEADERS)


def _text(text: str) -> str:
    return escape(printable(text), quote=True)


FORM: Final = "application/x-www-form-urlencoded"
LARGEST: Final = 256 * 1024
"""Maximum bytes of a sent form."""

logger: logging.Logger = logging.getLogger("anabranch.mcp")


class _Asked(NamedTuple):
    tool: str
    step_id: str
    journal: Journal
    params: types.ElicitRequestFormParams


class _Refused(Exception):  # noqa: N818 - a page, not an error
    def __init__(self, title: str, text: str, status: int) -> None:
        super().__init__(title)
        self.page = notice_page(title, text, status)


@dataclass(frozen=True, slots=True)
class AskLinks:
    """Makes the links of one server, and serves their pages.

    A link is a capability: anyone who has it may answer one question of one call, once, until the
    call expires. ``policy`` has the store, where an entered answer waits for the call's next request.
    """

    url: str
    calls: CallService
    policy: Durability
    sealer: Sealer

    def offer(self, server: OffersRoutes) -> None:
        server.custom_route("/ask/{token}", ["GET", "POST"])(self.serve)

    async def make(self, tool: str, state: str, step_id: str) -> str:
        short = await self.calls.stored.shortened(state)
        # For no principal: the user's browser is not the caller. The call's record has the caller.
        token = self.sealer.seal(SagaClaims(tool=tool, state=short, question=step_id), "")
        return f"{self.url.rstrip('/')}/ask/{token}"

    async def serve(self, request: Request) -> Response:
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
            again = "The server cannot reach its store now. Please try again in a minute."
            return notice_page("Please try again", again, 503)

    async def _asked(self, token: str) -> _Asked:
        try:
            claims = self.sealer.open(token, "")
            journal = await self.calls.stored.load(claims.state)
        except InvalidTokenError as error:
            gone = (
                "This link is not valid, or has expired. Ask for a new link in your conversation."
            )
            raise _Refused("This link is not valid", gone, 404) from error
        waiting = await waiting_round(self.policy.store, journal, self.calls.runtime.clock.now())
        if waiting is None:
            raise _answered()
        # Other questions may have been answered since; a later round then asks this one.
        journal = await self.calls.stored.load(waiting.state)
        reply = self.calls.stored.repeated(ROUND_REPLIES, journal.line, waiting)
        asked = {} if reply is None else reply.input_requests or {}
        params = asked[claims.question].params if claims.question in asked else None
        done = claims.question in await entered(self.policy.store, journal)
        if done or not isinstance(params, types.ElicitRequestFormParams):
            raise _answered()
        return _Asked(claims.tool, claims.question, journal, params)

    async def _sent(self, request: Request) -> dict[str, list[str]]:
        """Return the fields of a sent form, if the form's own page has sent it."""
        own = urlsplit(self.url)
        if request.headers.get("origin") != f"{own.scheme}://{own.netloc}":
            raise _Refused("Not accepted", "The form was not sent by its own page.", 403)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            raise _Refused(
                "Not accepted",
                "The request has another content type than the page's form. Send the form from the page.",
                415,
            )
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST:
                raise _Refused("Not accepted", "The form is too large.", 413)
        try:
            return parse_qs(
                body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1000
            )
        except ValueError as error:
            raise _Refused("Not accepted", "The form is too large.", 413) from error

    async def _take(self, asked: _Asked, form: Form, given: dict[str, list[str]]) -> Response:
        action = given.get("action", ["accept"])[0]
        answer = Answer({"action": "cancel" if action == "cancel" else "decline"})
        if action not in {"decline", "cancel"}:
            content, errors = read_form(form, given)
            if errors:
                return form_page(asked.tool, asked.params.message, form, given, errors)
            answer = Answer({"action": "accept", "content": content})
        # The answer restarts the time that the client has for its next request.
        until = self.calls.runtime.clock.now() + self.policy.expire_after
        if not await enter(self.policy.store, asked.journal, asked.step_id, answer, until):
            raise _answered()
        text = "Go back to your conversation and say that you have answered; it continues there."
        return notice_page("Thank you", text)


def _answered() -> _Refused:
    text = (
        "The question has an answer, or has been closed. Your conversation continues where you"
        " left it."
    )
    return _Refused("This question is closed", text, 410)
