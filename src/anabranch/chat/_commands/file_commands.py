"""The command that attaches files to the next message."""

from __future__ import annotations

from anyio import to_thread

from anabranch._media_types import size_of
from anabranch.chat._commands.command import Command, Outputs
from anabranch.chat._session.session_output import Output, SessionError
from anabranch.chat._session.session_state import SessionState
from anabranch.chat._session.typed_paths import typed_paths
from anabranch.messages import FileBlock
from anabranch.tree import MOST_BYTES, file_block


async def _attach(session: SessionState, typed: str | None = None) -> Outputs:
    """Attach files to the next message; without a name, remove the attached files."""
    if typed is None:
        removed, session.attached = len(session.attached), []
        return Output("system", f"Removed {removed}." if removed else "No file is attached.")
    files = await to_thread.run_sync(_read, typed)
    takes: object = getattr(session.model, "takes", None)
    for block, _ in files:
        if callable(takes) and not takes(block.mime_type):
            raise SessionError(
                f"{session.model_name} does not take {block.mime_type}. Try /switch MODEL."
            )
    session.attached += files
    about = ", ".join(f"{each.name} ({each.mime_type}, {size_of(each.size)})" for each, _ in files)
    them = "it" if len(files) == 1 else "them"
    return Output("system", f"Attached {about}. Your next message sends {them}.")


def _read(typed: str) -> list[tuple[FileBlock, bytes]]:
    """Return references to the files that a line names, each with the file's bytes.

    Raises:
        SessionError: if a file cannot be read.
        ToolError: if a file is empty or too large, or no model takes its type.
    """
    files: list[tuple[FileBlock, bytes]] = []
    for path in typed_paths(typed):
        try:
            if path.exists() and not path.is_file():  # reading a pipe may never end
                raise SessionError(f"{path} is not a file. Attach a file.")
            with path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise SessionError(f"Cannot read {path}: {error.strerror}.") from None
        files.append((file_block(data, path.name), data))
    return files


FILE_COMMANDS = (
    Command(
        "attach",
        "[FILE…]",
        "Attach files to your next message; without a name, remove attached files.",
        _attach,
    ),
)
