"""The page that a link of a question leads to."""

from anabranch._schemas import Form
from anabranch.mcp._ask_page import form_page


def page_of(message: str, form: Form) -> str:
    return bytes(form_page("t", message, form).body).decode()
