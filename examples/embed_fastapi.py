"""A chat inside a FastAPI application that was there before: its users, its login, its routes."""

from fastapi import FastAPI, Request

from anabranch.chat import make_chat_app
from anabranch.models import ScriptedModel
from anabranch.stores import open_stores
from examples.pick_card import pick_card

SESSIONS = {"cookie-of-ann": "ann", "cookie-of-bo": "bo"}


async def user_of(request: Request) -> str | None:
    """Return who has signed in; the chat asks this for every request."""
    return SESSIONS.get(request.cookies.get("session", ""))


calls, conversations = open_stores("memory:")
model = ScriptedModel([{"text": "Hello."}] * 9)  # or open_model("anthropic:…")
chat = make_chat_app(conversations, model, [pick_card], calls=calls, authenticate=user_of)
app = FastAPI()
app.mount("/chat", chat)
app.router.lifespan_context = chat.router.lifespan_context  # the application has none of its own


@app.get("/")
async def home(request: Request) -> str:
    """Answer as it always has."""
    return f"Hello, {await user_of(request) or 'stranger'}."
