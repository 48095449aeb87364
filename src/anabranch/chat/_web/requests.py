"""Reads the bodies of requests, refuses a body that does not fit its model, and makes JSON responses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from anabranch._asking import describe
from anabranch._text import encodable
from anabranch.messages import ElicitReply

PATIENCE = 30.0
"""Seconds within which the body of a request must arrive."""

B = TypeVar("B", bound=BaseModel)

LONGEST_NAME = 200
_NAME = re.compile(rf"[^\x00-\x1f\x7f-\x9f]{{1,{LONGEST_NAME}}}")


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ThreadBody(Body):
    id: str | None = Field(default=None, min_length=1, max_length=200, pattern=r"^[\w.:-]+$")
    title: str = Field(default="", max_length=500)
    system_prompt: str | None = Field(default=None, max_length=100_000)


class ReplyBody(Body):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, JsonValue] | None = None

    def reply(self) -> ElicitReply:
        accepted = self.action == "accept"
        return ElicitReply(action=self.action, content=self.content if accepted else None)


class AnswerBody(ReplyBody):
    interrupt_id: str


class CallAnswerBody(ReplyBody):
    step_id: str = Field(min_length=1, max_length=2_000)


class RetryBody(Body):
    node_id: str


class LabelBody(Body):
    node_id: str
    label: str = Field(min_length=1, max_length=200)


def check_name(what: str, name: str) -> None:
    """Refuse a name that some databases refuse, or a long one."""
    if _NAME.fullmatch(name) is None:
        raise HTTPException(
            422, f"{what} has 1 to {LONGEST_NAME} characters; none is a control character."
        )


async def read_body(request: Request, model: type[B]) -> B:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "Send JSON, with Content-Type: application/json.")
    try:
        async with asyncio.timeout(PATIENCE):
            body = await request.body()
    except TimeoutError:
        raise HTTPException(408, f"The body did not arrive within {PATIENCE:g} s.") from None
    try:
        return model.model_validate_json(body)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            why = first.get("ctx", {}).get("error", "")
            raise HTTPException(400, f"The body is not JSON: {why}.") from None
        raise HTTPException(
            422, f"The request does not fit: {describe(problem, 'body')}."
        ) from None


def json_response(
    content: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(
        encodable(content), status, {"Cache-Control": "no-store", **(headers or {})}
    )
