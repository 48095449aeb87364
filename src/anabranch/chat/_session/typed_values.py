"""Values as a person types them in a session: answers to questions, and arguments of tools."""

from __future__ import annotations

from typing import cast

from pydantic import JsonValue

from anabranch._text import read_json
from anabranch.agents import AgentTool, BranchSelf, CalledTool
from anabranch.chat._name_value import read_pairs, split_pairs
from anabranch.chat._session.session_output import SessionError
from anabranch.messages import ElicitReply, ElicitRequest, UrlRequest

HOW_TO_ANSWER = (
    'Write /answer with name=value …, or with {"name": value, …}; or /answer decline, or'
    " /answer cancel."
)


def read_answer(request: ElicitRequest | UrlRequest, text: str) -> ElicitReply:
    """Return the answer to ``request`` that was typed after ``/answer``.

    Raises:
        SessionError: the text is not an answer to it.
    """
    match text.strip():
        case "decline":
            return ElicitReply(action="decline")
        case "cancel":
            return ElicitReply(action="cancel")
        case typed if isinstance(request, UrlRequest):
            if typed == "accept":
                return ElicitReply(action="accept")
            raise SessionError("Write /answer accept, /answer decline or /answer cancel.")
        case typed:
            content = _read_values(typed, request.requested_schema, HOW_TO_ANSWER)
            return ElicitReply(action="accept", content=content)


def read_arguments(tool: AgentTool, text: str) -> dict[str, JsonValue]:
    """Return the arguments for ``tool`` that were typed.

    Raises:
        SessionError: the text cannot be read.
        InvalidArgumentsError: the arguments do not fit the parameters of an anabranch tool.
    """
    # branch_self reads the lists and words of a person as it reads those of a model.
    schema = tool.spec.input_schema
    names = ", ".join(cast("dict[str, JsonValue]", schema.get("properties", {})))
    usage = f"Write /{tool.name} name=value …; names: {names or 'none'}."
    typed = {} if isinstance(tool, BranchSelf) else schema
    arguments = _read_values(text or "{}", typed, usage)
    if isinstance(tool, CalledTool):
        # Tools ignore what hosts add; a name that a person has typed is meant.
        known = [parameter.name for parameter in tool.tool.parameters]
        if unknown := [name for name in arguments if name not in known]:
            raise SessionError(f"There is no parameter {unknown[0]!r}. {usage}")
        tool.tool.validate(arguments)
    return arguments


def number_in(text: str, count: int) -> int:
    """Return the index that was typed as a number from 1 to ``count``.

    Raises:
        SessionError: the text is not such a number.
    """
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= count:
        raise SessionError(f"{text!r} is not a number from 1 to {count}.")
    return int(text) - 1


def _read_values(text: str, schema: dict[str, JsonValue], usage: str) -> dict[str, JsonValue]:
    try:
        if text.startswith("{"):
            return cast("dict[str, JsonValue]", read_json(text))
        return read_pairs(split_pairs(text), schema)
    except ValueError as error:
        raise SessionError(f"{str(error).rstrip('.')}. {usage}") from None
