"""Commands about saved prompts: say one, save one, delete one."""

from __future__ import annotations

from anyio import to_thread

from anabranch.chat._commands.command import Command, Outputs
from anabranch.chat._commands.conversation_commands import say
from anabranch.chat._session.session_output import Output, SessionError
from anabranch.chat._session.session_state import SessionState


async def _say_prompt(session: SessionState, name: str | None = None) -> Outputs:
    saved = await to_thread.run_sync(session.dependencies.prompts.read)
    if name is None:
        listed = [f"{each}: {' '.join(text.split())[:60]}" for each, text in sorted(saved.items())]
        return Output("system", "\n".join(listed) or "No prompts are saved. /s NAME saves one.")
    if name not in saved:
        raise SessionError(f"There is no saved prompt {name!r}. /p lists them.")
    return await say(session, saved[name])


async def _save_prompt(session: SessionState, name: str, text: str | None = None) -> Outputs:
    if text is None:
        cursor = session.cursor
        path = (await cursor.walk()).path(cursor.node_id)
        messages = [node.text for node in path if node.kind == "user"]
        if not messages:
            raise SessionError("Nothing has been said here yet.")
        text = messages[-1]
    prompts = session.dependencies.prompts
    saved = await to_thread.run_sync(prompts.read)
    await to_thread.run_sync(prompts.write, {**saved, name: text})
    return Output("system", f"Saved; /p {name} says it.")


async def _delete_prompt(session: SessionState, name: str) -> Outputs:
    prompts = session.dependencies.prompts
    saved = await to_thread.run_sync(prompts.read)
    if saved.pop(name, None) is None:
        raise SessionError(f"There is no saved prompt {name!r}. /p lists them.")
    await to_thread.run_sync(prompts.write, saved)
    return Output("system", f"The prompt {name!r} is deleted.")


PROMPT_COMMANDS = (
    Command("p", "[NAME]", "Say a saved prompt; without a name, list them.", _say_prompt),
    Command(
        "s", "NAME [TEXT…]", "Save a prompt; without a text, what you said last.", _save_prompt
    ),
    Command("d", "NAME", "Delete a saved prompt.", _delete_prompt),
)
