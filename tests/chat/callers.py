"""Two users of a chat, whom the application recognises by a header."""

from starlette.requests import Request

ANN, BO = {"X-User": "ann"}, {"X-User": "bo"}


async def known(request: Request) -> str | None:
    return request.headers.get("x-user")
