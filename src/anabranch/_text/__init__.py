"""Texts: made encodable for a wire, made printable for a terminal, read as JSON, checked as names."""

from anabranch._text.encodable import encodable
from anabranch._text.json_answer import answer_in
from anabranch._text.json_text import (
    DEEPEST,
    TooDeepError,
    number_problem,
    read_json,
    read_json_at,
    require_shallow,
)
from anabranch._text.names import MARKS, checked_name
from anabranch._text.printable import (
    LogFormat,
    PrintableFormatter,
    printable,
    printable_json,
    printable_line,
)

__all__ = [
    "DEEPEST",
    "MARKS",
    "LogFormat",
    "PrintableFormatter",
    "TooDeepError",
    "answer_in",
    "checked_name",
    "encodable",
    "number_problem",
    "printable",
    "printable_json",
    "printable_line",
    "read_json",
    "read_json_at",
    "require_shallow",
]
