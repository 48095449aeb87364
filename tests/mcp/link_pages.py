"""Read and submit the page of a question's link."""

from anabranch._schemas import Form
from anabranch.mcp._ask_page import form_page


def page_of(message: str, form: Form) -> str:
    return bytes(form_page("t", message, form).body).decode()
