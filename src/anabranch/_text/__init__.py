"""Texts: made encodable for a wire, made printable for a terminal, read as JSON, read from files."""

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
from anabranch._text.media_types import (
    AUDIO,
    IMAGES,
    PDF,
    TEXT,
    decoded,
    file_type,
    is_other_text,
    media_type,
    read_base64,
    read_text,
    size_of,
)
