"""Texts: made encodable for a wire, made printable for a terminal, read as JSON, checked as names."""

from anabranch._text.foreign_text import (
    MARKS,
    LogFormat,
    PrintableFormatter,
    checked_name,
    encodable,
    json_line,
    printable,
    printable_json,
    printable_line,
)
from anabranch._text.json_text import (
    DEEPEST,
    TooDeepError,
    answer_in,
    number_problem,
    read_json,
    read_json_at,
    read_json_list,
    require_shallow,
)
