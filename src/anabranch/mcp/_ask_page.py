"""The page of a question: its form as HTML without script, and what a browser has sent, read.

All text in it is foreign, so all of it is escaped. The page loads nothing, runs nothing, is shown in
no frame, and sends its form to where it came from.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Final

from pydantic import JsonValue
from starlette.responses import HTMLResponse

from anabranch._schemas import LEAVE_OUT, Field, Form, LeaveOut, Option
from anabranch._text import printable

PREFIX: Final = "field:"
"""Before the names of fields, so that none of them is taken for the button's."""

_STYLE = """
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; padding: 0 1rem; }
.message { white-space: pre-wrap; overflow-wrap: anywhere; }
.field { margin: 1rem 0; }
fieldset.field { padding: .5rem 1rem; }
label.name, legend { font-weight: bold; }
.message, legend, label, .hint, .error { unicode-bidi: plaintext; }
label.name { display: block; }
input:not([type=checkbox]), select { display: block; width: 100%; box-sizing: border-box; font: inherit; padding: .4rem; }
.hint { color: #555; }
.error { color: #a00; font-weight: bold; }
button { font: inherit; padding: .4rem 1rem; margin-right: .5rem; }
"""

_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()

HEADERS: Final = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self';"
    " frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # the address is a capability
    "Cache-Control": "no-store",
}

Given = Mapping[str, Sequence[str]]


def notice_page(title: str, text: str, status: int = 200) -> HTMLResponse:
    """Return a page that says something."""
    return _page(title, f'<p class="message" dir="auto">{_text(text)}</p>', status)


def form_page(
    tool: str, message: str, form: Form, given: Given | None = None, errors: Mapping[str, str] = {}
) -> HTMLResponse:
    """Return the page of a question; with what was entered before, and what is wrong with it."""
    fields = [
        _field(name, field, given, errors.get(name), required=name in form.required)
        for name, field in form.properties.items()
    ]
    wrong = '<p class="error" role="alert">Please correct the fields below.</p>' if errors else ""
    body = (
        f'<p class="message" dir="auto">{_text(message)}</p>{wrong}<form method="post" accept-charset="utf-8">'
        f"{''.join(fields)}"
        '<button name="action" value="accept">Send</button>'
        '<button name="action" value="decline" formnovalidate>Decline</button>'
        '<button name="action" value="cancel" formnovalidate>Cancel</button></form>'
    )
    return _page(f"A question of {tool}", body, 422 if errors else 200)


def read_form(form: Form, given: Given) -> tuple[dict[str, JsonValue], dict[str, str]]:
    """Return the values that were entered, and by field what is wrong with the others."""
    content: dict[str, JsonValue] = {}
    errors: dict[str, str] = {}
    for name, field in form.properties.items():
        try:
            value = _value(field, given.get(PREFIX + name, ()), required=name in form.required)
        except ValueError as error:
            errors[name] = str(error)
        else:
            if not isinstance(value, LeaveOut):
                content[name] = value
    return content, errors


def _value(field: Field, given: Sequence[str], *, required: bool) -> JsonValue | LeaveOut:
    choices = _choices(field)
    if field.type == "array":
        if not {*given} <= {*choices}:
            raise ValueError("choose from these")
        return field.chosen([choices[each].const for each in given], required=required)
    text = given[0].strip() if given else ""
    if not text and not required:
        return LEAVE_OUT
    if not text:
        raise ValueError("choose one" if choices else "fill this in")
    if choices and text not in choices:
        raise ValueError("choose one of these")
    return choices[text].const if choices else field.read(text, required=required)


def _choices(field: Field) -> dict[str, Option]:
    """Return by its text what can be chosen; empty for a field that is typed."""
    if field.type == "boolean":
        return {"yes": Option(const=True, title="yes"), "no": Option(const=False, title="no")}
    return {option.text: option for option in field.options or field.items.options}


def _field(
    name: str, field: Field, given: Given | None, error: str | None, *, required: bool
) -> str:
    sent, hint = PREFIX + name, field.in_words(required=required, titled=False)
    values = _defaults(field) if given is None else list(given.get(sent, ()))
    described = f' aria-describedby="{_text(sent)}:hint"' + (
        ' aria-invalid="true"' if error else ""
    )
    title = f"{_text(field.title or name)}{'' if required else ' (optional)'}"
    notes = f'<div class="hint" id="{_text(sent)}:hint">{_text(hint)}'
    notes += f'<div class="error">{_text(error)}</div></div>' if error else "</div>"
    if field.type == "array":
        boxes = "".join(
            f'<div dir="auto"><label><input type="checkbox" name="{_text(sent)}" value="{_text(value)}"'
            f"{' checked' if value in values else ''}> {_text(option.label)}</label></div>"
            for value, option in _choices(field).items()
        )
        return f'<fieldset class="field" dir="auto"{described}><legend>{title}</legend>{boxes}{notes}</fieldset>'
    attributes = f'id="{_text(sent)}" name="{_text(sent)}" dir="auto"{described}{" required" if required else ""}'
    value = values[0] if values else ""
    if choices := _choices(field):
        options = {"": "", **{each: option.label for each, option in choices.items()}}
        control = "".join(
            f'<option value="{_text(each)}"{" selected" if each == value else ""}>{_text(label)}</option>'
            for each, label in options.items()
        )
        control = f"<select {attributes}>{control}</select>"
    else:
        control = f'<input {attributes} {_TYPED.get(field.format or field.type, "")} value="{_text(value)}">'
    label = f'<label class="name" for="{_text(sent)}">{title}</label>'
    return f'<div class="field">{label}{control}{notes}</div>'


_TYPED = {
    "integer": 'inputmode="numeric"',  # a number field would drop what it does not accept
    "number": 'inputmode="decimal"',
    "email": 'type="email"',
    "uri": 'type="url"',
    "date": 'placeholder="YYYY-MM-DD"',
    "date-time": 'placeholder="YYYY-MM-DDTHH:MM"',
}


def _defaults(field: Field) -> list[str]:
    default = field.default
    if isinstance(default, list):
        return [str(each) for each in default]
    if isinstance(default, bool):
        return ["yes" if default else "no"]
    return [] if default is None else [str(default)]


def _page(title: str, body: str, status: int) -> HTMLResponse:
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{_text(title)}</h1>{body}</main></body></html>"
    )
    return HTMLResponse(html, status, HEADERS)


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
