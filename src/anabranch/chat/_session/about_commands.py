"""Commands about the session itself: help, settings, models, the end."""

from __future__ import annotations

from anabranch.chat._session.command_table import Outputs, command, help_text
from anabranch.chat._session.output import Output, SessionError
from anabranch.chat._session.session import Session

__all__: list[str] = []

LISTED = 60
"""Models that are listed at the most."""


@command("help", "[COMMAND]", "Tell what commands there are, or what one of them does.")
async def help_(session: Session, name: str | None = None) -> Outputs:
    """Return help."""
    return Output("system", help_text(name, session.agent.tools))


@command("clear", "", "Clear the screen; the conversation stays as it is.")
async def clear(session: Session) -> Outputs:
    """Have the screen cleared."""
    del session
    return Output("system", "", action="clear")


@command("exit", "", "Leave. All that was said is kept.")
async def exit_(session: Session) -> Outputs:
    """Have the front end leave."""
    del session
    return Output("system", "", action="exit")


@command("verbose", "", "Show what tools and branches do.")
async def verbose(session: Session) -> Outputs:
    """Turn details on."""
    session.settings.verbose = True
    return Output("system", "What tools and branches do is shown.")


@command("quiet", "", "Show answers alone.")
async def quiet(session: Session) -> Outputs:
    """Turn details off."""
    session.settings.verbose = False
    return Output("system", "Answers alone are shown.")


@command(
    "config", "[set] [NAME] [VALUE…]", "Show the settings; /config set NAME VALUE changes one."
)
async def config(session: Session, *words: str) -> Outputs:
    """Show the settings, or change one."""
    match words:
        case ():
            return Output("system", session.settings.told())
        case ("set", name, value):
            session.settings.change(name, value)
            return Output("system", f"{name} = {value}")
        case _:
            raise SessionError("Write /config, or /config set NAME VALUE.")


@command("models", "[TEXT]", "Tell which model answers, and list those whose names contain TEXT.")
async def models(session: Session, part: str = "") -> Outputs:
    """List models."""
    fitting = [name for name in session.world.models.names() if part in name]
    more = f"\n… and {len(fitting) - LISTED} more; /models TEXT narrows them down."
    listed = "\n".join(fitting[:LISTED]) + (more if len(fitting) > LISTED else "")
    here = f"Now answering: {session.model_name}. /switch MODEL changes that."
    return Output("system", "\n".join(filter(None, [here, listed])))


@command("switch", "MODEL", "Have another model answer from now on.")
async def switch(session: Session, name: str) -> Outputs:
    """Change the model."""
    session.model = session.world.models.open(name)
    session.model_name = name
    return Output("system", f"{name} answers from now on.")
