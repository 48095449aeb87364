"""Forms at the terminal: show a tool's questions field by field.

Esc cancels a form, Ctrl-D declines it, and Ctrl-C ends the command or turn. Keys typed before a
question is on the screen do not answer it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Literal, TypeVar, cast

import questionary
from prompt_toolkit.filters import Always
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from pydantic import JsonValue, ValidationError
from questionary import Choice, Question

from anabranch._asking import AnswerError, describe
from anabranch._schemas import LEAVE_OUT, Field, Form, LeaveOut, Value
from anabranch._terminal.interrupts import interrupt, signals_restored
from anabranch._text import printable
from anabranch.messages import ElicitReply, ElicitRequest

if sys.platform != "win32":
    import termios

T = TypeVar("T")

HINT = "(Esc cancels, Ctrl-D declines)"

MANY = 10
"""More choices than this get a filter that the user types into."""

YES_OR_NO = {"y": True, "yes": True, "n": False, "no": False}


class DismissedError(Exception):
    def __init__(self, action: Literal["decline", "cancel"]) -> None:
        super().__init__(action)
        self.action: Literal["decline", "cancel"] = action


async def ask_form(
    request: ElicitRequest, typed: Mapping[str, JsonValue] | None = None, only: Collection[str] = ()
) -> ElicitReply:
    """Ask for the fields ``only``, or all, with the values ``typed`` in a previous attempt."""
    try:
        form = Form.model_validate(request.requested_schema)
    except ValidationError as error:
        raise AnswerError(f"this client cannot show the form: {describe(error)}") from error
    content = {} if typed is None or not only else dict(typed)
    begins = True
    try:
        for name, field in form.properties.items():
            if only and name not in only:
                continue
            if typed is not None:
                field = field.model_copy(update={"default": typed.get(name)})  # noqa: PLW2901
            content.pop(name, None)
            required = name in form.required
            value = await _ask_field(field, name, required=required, begins=begins)
            begins = False
            if not isinstance(value, LeaveOut):
                content[name] = value
        if not form.properties:
            await _confirm("Accept?")
    except DismissedError as dismissed:
        return ElicitReply(action=dismissed.action)
    return ElicitReply(action="accept", content=content)


async def ask_consent(question: str = "Will you open it?") -> ElicitReply:
    try:
        await _confirm(question)
    except DismissedError as dismissed:
        return ElicitReply(action=dismissed.action)
    return ElicitReply(action="accept")


async def ask_text(message: str) -> str:
    return cast("str", await _run(questionary.text(printable(message)), begins=True))


async def _confirm(message: str) -> None:
    if not await _ask_yes_or_no(message):
        raise DismissedError("decline")


async def _ask_yes_or_no(message: str, *, default: bool = False) -> bool:
    """Ask for yes or no and Enter, so that the first letter of another word is no answer."""

    def verdict(typed: str) -> bool | str:
        return not typed.strip() or typed.strip().lower() in YES_OR_NO or "Type y or n, and Enter"

    question = questionary.text(
        printable(f"{message} {'(Y/n)' if default else '(y/N)'}"),
        validate=verdict,
        validate_while_typing=False,
    )
    typed = cast("str", await _run(question, begins=True))
    return YES_OR_NO.get(typed.strip().lower(), default)


async def _ask_field(
    field: Field, name: str, *, required: bool, begins: bool
) -> JsonValue | LeaveOut:
    label = printable(field.label(name, required=required))
    if field.is_typed_list:
        return await _ask_list(field, label, required=required, begins=begins)
    if field.type == "array":
        ticked = await _run(_checkbox(field, label, required=required), begins=begins)
        return field.chosen(cast("list[Value]", ticked), required=required)
    if field.type == "boolean" and (required or field.default is not None):
        # Without a default, Enter means no, so that no user agrees by accident.
        return await _ask_yes_or_no(label, default=field.default is True)
    choices = [Choice(printable(option.label), option.const) for option in field.options]
    if field.type == "boolean":
        choices = [Choice("yes", value=True), Choice("no", value=False)]
    if choices:
        if not required:
            choices.append(Choice("(leave out)", LEAVE_OUT))
        many = len(choices) > MANY
        chosen = next((each for each in choices if each.value == field.default), None)
        question = questionary.select(
            label, choices, chosen, use_search_filter=many, use_jk_keys=not many
        )
        return await _run(question, begins=begins or field.type == "boolean")

    read = partial(field.read, required=required)
    prefilled = "" if field.default is None else printable(str(field.default))
    typed = await _run(questionary.text(label, prefilled, validate=_verdict(read)), begins=begins)
    return read(cast("str", typed))


def _verdict(read: Callable[[T], object]) -> Callable[[T], bool | str]:
    def verdict(given: T) -> bool | str:
        try:
            read(given)
        except ValueError as error:
            return printable(str(error))
        return True

    return verdict


async def _ask_list(
    field: Field, label: str, *, required: bool, begins: bool
) -> JsonValue | LeaveOut:
    def read(typed: str) -> JsonValue | LeaveOut:
        return field.listed(typed.split(","), required=required)

    given = field.default if isinstance(field.default, list) else []
    prefilled = printable(", ".join(map(str, given)))
    question = questionary.text(
        printable(f"{label} separated by commas:"), prefilled, validate=_verdict(read)
    )
    return read(cast("str", await _run(question, begins=begins)))


def _checkbox(field: Field, label: str, *, required: bool) -> Question:
    chosen = field.default if isinstance(field.default, list) else []
    choices = [
        Choice(printable(option.label), option.const, checked=option.const in chosen)
        for option in field.items.options
    ]
    many = len(choices) > MANY
    return questionary.checkbox(
        label,
        choices,
        validate=_verdict(partial(field.chosen, required=required)),
        use_search_filter=many,
        use_jk_keys=not many,
    )


async def _run(question: Question, *, begins: bool) -> JsonValue | LeaveOut:
    """Draw a prompt and return its answer, or raise ``DismissedError``.

    Discard the keys typed before the prompt if a question ``begins`` or asks for consent.
    """
    dismissing = KeyBindings()

    @dismissing.add("escape", eager=True)
    def cancel(event: KeyPressEvent) -> None:
        event.app.exit(exception=DismissedError("cancel"))

    @dismissing.add("c-d", eager=True)
    def decline(event: KeyPressEvent) -> None:
        event.app.exit(exception=DismissedError("decline"))

    @dismissing.add("c-c", eager=True)
    def leave(event: KeyPressEvent) -> None:
        del event
        interrupt()

    application = question.application
    application.ttimeoutlen = 0.1  # seconds: arrow keys also start with Esc
    drop = partial(_drop_typed, application.input)
    for window in application.layout.find_all_windows():
        window.dont_extend_height = Always()  # a filtered list leaves no gap
    own = application.key_bindings
    application.key_bindings = merge_key_bindings([*([own] if own else []), dismissing])
    try:
        # The runner handles the signal, because the signal may end more than a form.
        with signals_restored():
            answer = await application.run_async(drop if begins else None, handle_sigint=False)
    except (KeyboardInterrupt, EOFError):  # Ctrl-Q in a list; the terminal closed
        raise DismissedError("cancel") from None
    return cast("JsonValue | LeaveOut", answer)


def _drop_typed(typed_at: Input) -> None:
    clear_typeahead(typed_at)
    if sys.platform != "win32" and os.isatty(typed_at.fileno()):
        termios.tcflush(typed_at.fileno(), termios.TCIFLUSH)
