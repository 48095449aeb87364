"""Questions as terminal forms: every field that an MCP form may have.

Owns the drawing of one form and the reading of what is typed. The server checks the answer again;
what is checked here is checked so that the person hears of a slip at once. Esc or Ctrl-C cancels
a form, Ctrl-D declines it. Only one form may be drawn at a time (``Console.question``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import questionary
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from pydantic import JsonValue
from questionary import Choice, Question

from anabranch.messages import ElicitReply, ElicitRequest

__all__ = ["HINT", "LeftError", "ask_consent", "ask_form", "ask_text"]

HINT = "(Esc cancels, Ctrl-D declines)"
Schema: TypeAlias = Mapping[str, Any]


class LeftError(Exception):
    """The person left the form; ``action`` tells how."""

    def __init__(self, action: Literal["decline", "cancel"]) -> None:
        super().__init__(action)
        self.action = action


class _LeaveOut:
    """The person gives no value for a field that is not required."""


LEAVE_OUT = _LeaveOut()


async def ask_form(request: ElicitRequest) -> ElicitReply:
    """Ask for one field after the other and return what the person did."""
    schema: Schema = request.requested_schema
    required: list[str] = schema.get("required", [])
    content: dict[str, JsonValue] = {}
    try:
        for name, field_schema in schema.get("properties", {}).items():
            field = Field(name, field_schema, name in required)
            value = await _ask_field(field)
            if value is not LEAVE_OUT:
                content[name] = value
        if not content and not schema.get("properties"):
            await _confirm("Accept?")
    except LeftError as left:
        return ElicitReply(action=left.action)
    return ElicitReply(action="accept", content=content)


async def ask_consent() -> ElicitReply:
    """Ask whether the person will go to the address that they have been shown."""
    try:
        await _confirm("Will you open it?")
    except LeftError as left:
        return ElicitReply(action=left.action)
    return ElicitReply(action="accept")


async def ask_text(message: str) -> str:
    """Ask for a line of text.

    Raises:
        LeftError: none is given.
    """
    answer: str = await _run(questionary.text(message))
    return answer


async def _confirm(message: str) -> None:
    if not await _run(questionary.confirm(message, default=False)):
        raise LeftError("decline")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form: its name, its schema, and whether it must have a value."""

    name: str
    schema: Schema
    required: bool

    @property
    def label(self) -> str:
        """What the person is asked."""
        notes = [self.schema.get("description"), _range(self.schema)]
        if not self.required:
            notes.append("optional")
        told = "; ".join(note for note in notes if note)
        title = self.schema.get("title") or self.name
        return f"{title} ({told}):" if told else f"{title}:"

    def read(self, text: str) -> JsonValue | _LeaveOut:
        """Return the value that was typed.

        Raises:
            ValueError: it is none; the message tells the person why.
        """
        if not text and not self.required:
            return LEAVE_OUT
        match self.schema.get("type"):
            case "integer":
                return _in_range(_number(text, int, "a whole number"), self.schema)
            case "number":
                return _in_range(_number(text, float, "a number"), self.schema)
            case _:
                return _checked_text(text, self.schema)


async def _ask_field(field: Field) -> Any:
    schema = field.schema
    if schema.get("type") == "array":
        return await _run(_checkbox(field))
    choices = _choices(schema)
    if schema.get("type") == "boolean":
        if field.required or "default" in schema:
            return await _run(
                questionary.confirm(field.label, default=schema.get("default", False))
            )
        choices = [Choice("yes", True), Choice("no", False)]
    if choices:
        if not field.required:
            choices.append(Choice("(leave out)", LEAVE_OUT))
        return await _run(questionary.select(field.label, choices, schema.get("default")))
    default: object = schema.get("default")
    prefilled = "" if default is None else str(default)
    text = questionary.text(field.label, prefilled, validate=lambda typed: _verdict(field, typed))
    return field.read(await _run(text))


def _verdict(field: Field, text: str) -> bool | str:
    try:
        field.read(text)
    except ValueError as error:
        return str(error)
    return True


def _checkbox(field: Field) -> Question:
    schema = field.schema
    chosen: list[object] = schema.get("default", [])
    choices = [
        Choice(choice.title, choice.value, checked=choice.value in chosen)
        for choice in _choices(schema.get("items", {}))
    ]
    least, most = schema.get("minItems", 0), schema.get("maxItems", len(choices))

    def verdict(values: list[str]) -> bool | str:
        return least <= len(values) <= most or f"choose {least} to {most}"

    return questionary.checkbox(field.label, choices, validate=verdict)


def _choices(schema: Schema) -> list[Choice]:
    titled: list[Schema] = schema.get("oneOf") or schema.get("anyOf") or []
    if titled:
        return [Choice(each.get("title") or each["const"], each["const"]) for each in titled]
    values: list[str] = schema.get("enum", [])
    names: list[str] = schema.get("enumNames", values)
    return [Choice(name, value) for name, value in zip(names, values, strict=False)]


def _range(schema: Schema) -> str | None:
    """Tell the limits of a field in words."""
    for least_key, most_key, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " choices"),
    ):
        least, most = schema.get(least_key), schema.get(most_key)
        if least is not None and most is not None:
            return f"{least} to {most}{unit}"
        if least is not None:
            return f"at least {least}{unit}"
        if most is not None:
            return f"at most {most}{unit}"
    return cast("str | None", schema.get("format"))


def _number(text: str, kind: type[int | float], words: str) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"not {words}") from None


def _in_range(number: float, schema: Schema) -> float:
    lowest, highest = schema.get("minimum", number), schema.get("maximum", number)
    if not lowest <= number <= highest:
        raise ValueError(f"must be {_range(schema)}")
    return number


def _checked_text(text: str, schema: Schema) -> str:
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", len(text))
    if not shortest <= len(text) <= longest:
        raise ValueError(f"must have {_range(schema)}")
    pattern: str | None = schema.get("pattern")
    if pattern is not None and not re.search(pattern, text):
        raise ValueError(f"must match {pattern}")
    kind: str | None = schema.get("format")
    if kind is not None and not _has_format(text, kind):
        raise ValueError(f"not a valid {kind}")
    return text


def _has_format(text: str, kind: str) -> bool:
    try:
        match kind:
            case "email":
                return re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None
            case "uri":
                return bool(urlsplit(text).scheme)
            case "date":
                return bool(date.fromisoformat(text))
            case "date-time":
                return bool(datetime.fromisoformat(text))
            case _:
                return True
    except ValueError:
        return False


async def _run(question: Question) -> Any:
    """Draw a prompt and return its answer.

    Raises:
        LeftError: the person left it.
    """
    leaving = KeyBindings()

    def leave(event: KeyPressEvent, action: Literal["decline", "cancel"]) -> None:
        event.app.exit(exception=LeftError(action))

    leaving.add("escape", eager=True)(lambda event: leave(event, "cancel"))
    leaving.add("c-d", eager=True)(lambda event: leave(event, "decline"))
    own = question.application.key_bindings
    question.application.key_bindings = merge_key_bindings([*([own] if own else []), leaving])
    try:
        return await question.unsafe_ask_async()
    except (KeyboardInterrupt, EOFError):
        raise LeftError("cancel") from None
