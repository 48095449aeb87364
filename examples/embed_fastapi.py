"""A chat inside an existing FastAPI application with users, a login and routes.

In this folder, with the extra ``chat`` and the package ``fastapi``: ``uvicorn embed_fastapi:app``.
"""

from fastapi import FastAPI, Request
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch.chat import make_chat_app
from anabranch.models import ScriptedModel
from anabranch.stores import open_stores


class Table(BaseModel):
    """The question to the guest."""

    guests: int


@tool
async def reserve(ctx: BranchContext, day: str) -> str:
    """Reserve a table."""
    answer = await ctx.elicit(Table, f"For how many on {day}?")
    return f"A table for {answer.content.guests}" if isinstance(answer, Accepted) else "No table"


SESSIONS = {"cookie-of-ann": "ann", "cookie-of-bo": "bo"}


async def user_of(request: Request) -> str | None:
    """Return the signed-in user of a request; the chat calls this for each request."""
    return SESSIONS.get(request.cookies.get("session", ""))


calls, conversations = open_stores("memory:")
model = ScriptedModel([{"text": "Hello."}] * 9)  # or open_model("anthropic:…")
chat = make_chat_app(conversations, model, [reserve], calls=calls, authenticate=user_of)
app = FastAPI()
app.mount("/chat", chat)
app.router.lifespan_context = chat.router.lifespan_context  # the application has no other lifespan


@app.get("/")
async def home(request: Request) -> str:
    """Greet the user. The application had this route before the chat."""
    return f"Hello, {await user_of(request) or 'stranger'}."
