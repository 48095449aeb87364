"""Commands about the session itself: clear, exit, verbose, quiet, config, models and switch."""

from __future__ import annotations

from anabranch.chat._commands.command import Command, Outputs
from anabranch.chat._session.session_output import Output, SessionError
from anabranch.chat._session.session_state import SessionState

MAX_LISTED = 60


async def _clear(session: SessionState) -> Outputs:
    del session
    return Output("system", "", action="clear")


async def _exit(session: SessionState) -> Outputs:
    del session
    return Output("system", "", action="exit")


async def _verbose(session: SessionState) -> Outputs:
    session.settings.verbose = True
    return Output("system", "The chat now shows the work of tools and branches.")


async def _quiet(session: SessionState) -> Outputs:
    session.settings.verbose = False
    return Output("system", "The chat now shows answers only.")


async def _config(session: SessionState, *words: str) -> Outputs:
    match words:
        case ():
            return Output("system", session.settings.listing())
        case ("set", name, value):
            session.settings.change(name, value)
            return Output("system", f"{name} = {value}")
        case _:
            raise SessionError("Write /config, or /config set NAME VALUE.")


async def _models(session: SessionState, part: str = "") -> Outputs:
    models = session.dependencies.models
    found = [name for name in models.names() if part in name] if models is not None else []
    listed = found[:MAX_LISTED]
    if len(found) > MAX_LISTED:
        listed.append(f"… and {len(found) - MAX_LISTED} more; /models TEXT filters them.")
    current = f"Now answering: {session.model_name}. /switch MODEL changes that."
    return Output("system", "\n".join([current, *listed]))


async def _switch(session: SessionState, name: str) -> Outputs:
    models = session.dependencies.models
    if models is None:
        raise SessionError(f"This session cannot switch to {name!r}: it has no other models.")
    session.model = models.open(name)
    session.model_name = name
    lines = [f"{name} answers from now on.", session.agent.tools.excess(session.model)]
    return Output("system", "\n".join(filter(None, lines)))


SETTINGS_COMMANDS = (
    Command("clear", "", "Clear the screen; the conversation stays.", _clear),
    Command("exit", "", "Leave. The conversation is stored.", _exit),
    Command("verbose", "", "Show the work of tools and branches.", _verbose),
    Command("quiet", "", "Show only answers.", _quiet),
    Command("config", "[set] [NAME] [VALUE…]", "Show the settings, or change one.", _config),
    Command(
        "models", "[TEXT]", "Show the current model, and the names that contain TEXT.", _models
    ),
    Command("switch", "MODEL", "Let another model answer from now on.", _switch),
)
