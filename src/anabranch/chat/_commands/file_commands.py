"""The command that attaches a file to the next message."""

from __future__ import annotations

from pathlib import Path

from anyio import to_thread

from anabranch._media_types import size_of
from anabranch.chat._commands.command import Command, Outputs
from anabranch.chat._session.session_output import Output, SessionError
from anabranch.chat._session.session_state import SessionState
from anabranch.tree import MOST_BYTES, file_block


async def _attach(session: SessionState, name: str | None = None) -> Outputs:
    """Attach a file to the next message; without a name, remove what is attached."""
    if name is None:
        removed, session.attached = len(session.attached), []
        return Output("system", f"Removed {removed}." if removed else "No file is attached.")
    path = Path(name.strip("\"'"))
    try:
        data = await to_thread.run_sync(_read, path)
    except OSError as error:
        raise SessionError(f"Cannot read {name}: {error.strerror}.") from None
    block = file_block(data, path.name)
    takes: object = getattr(session.model, "takes", None)
    if callable(takes) and not takes(block.mime_type):
        raise SessionError(
            f"{session.model_name} does not take {block.mime_type}. Try /switch MODEL."
        )
    session.attached.append((block, data))
    about = f"{block.name} ({block.mime_type}, {size_of(block.size)})"
    return Output("system", f"Attached {about}. Your next message has it.")


def _read(path: Path) -> bytes:
    """Return the bytes of a file, of one that is too large only the first ones that are too many."""
    with path.expanduser().open("rb") as file:
        return file.read(MOST_BYTES + 1)


FILE_COMMANDS = (
    Command(
        "attach",
        "[FILE…]",
        "Attach a file to your next message; without a name, remove what is attached.",
        _attach,
    ),
)
