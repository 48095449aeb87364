"""The token estimator: near the real count, never less for more text, and fast on any text."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch._asking.tokens import (
    ADMISSION_MARGIN,
    estimate_tokens,
    picture_size,
    prompt_tokens,
    usage_tokens,
)
from anabranch.messages import (
    AudioBlock,
    ImageBlock,
    Message,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from tests.randomised import examples

# Counts of the o200k vocabulary.
COUNTED = [
    ("The quick brown fox jumps over the lazy dog.", 10),
    ("def add(a: int, b: int) -> int:\n    return a + b\n", 18),
    ('{"name": "Ada", "born": 1815, "tags": ["math", "first"]}', 21),
    ("Internationalization considerations notwithstanding", 5),
    ("こんにちは、世界", 4),
]


@pytest.mark.parametrize(("text", "tokens"), COUNTED)
def test_an_estimate_is_of_the_right_size(text: str, tokens: int) -> None:
    assert tokens * 0.6 <= estimate_tokens(text) <= tokens * 2.2


def test_an_empty_text_is_free_and_any_other_text_costs_tokens() -> None:
    """A prompt is never free."""
    assert estimate_tokens("") == 0
    assert estimate_tokens(" ") == 1
    assert ADMISSION_MARGIN > 1


@given(st.text(max_size=200), st.text(max_size=200))
def test_more_text_never_costs_less(text: str, more: str) -> None:
    """Otherwise additional words could lower the count and evade a budget."""
    assert estimate_tokens(f"{text} {more}") >= max(estimate_tokens(text), estimate_tokens(more))


PROMPTS = json.loads(Path(__file__).with_name("prompts_by_language.json").read_text("utf-8"))
"""One request in the most spoken languages, each with its tokens in the o200k vocabulary."""


@pytest.mark.parametrize("language", PROMPTS)
def test_a_prompt_counts_about_the_same_in_the_most_spoken_languages(language: str) -> None:
    """Otherwise users who do not write English would get half the budget."""
    tokens, prompt = PROMPTS[language]["tokens"], PROMPTS[language]["prompt"]
    assert tokens / 1.5 <= estimate_tokens(prompt) <= tokens * 1.5


def test_arguments_in_another_script_count_as_the_same_text_does() -> None:
    prompt = PROMPTS["Russian"]["prompt"]
    use = ToolUseBlock(id="u1", name="note", input={"text": prompt})
    assert usage_tokens(0, SampleReply(content=(use,))) < 1.2 * estimate_tokens(prompt)


def png(width: int, height: int) -> bytes:
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
    return head + width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x06\x00\x00\x00"


def jpeg(width: int, height: int, *before: bytes) -> bytes:
    segments = b"".join(b"\xff\xe1" + (2 + len(each)).to_bytes(2, "big") + each for each in before)
    size = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return b"\xff\xd8" + segments + b"\xff\xff\xc2\x00\x11\x08" + size + b"\x03"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\xf7"


def webp(kind: bytes, rest: bytes) -> bytes:
    return b"RIFF\x00\x10\x00\x00WEBP" + kind + b"\x00\x08\x00\x00" + rest


def lossy(width: int, height: int) -> bytes:
    size = width.to_bytes(2, "little") + (height | 0x4000).to_bytes(2, "little")
    return webp(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + size)


def lossless(width: int, height: int) -> bytes:
    bits = (width - 1) | (height - 1) << 14 | 1 << 28
    return webp(b"VP8L", b"\x2f" + bits.to_bytes(4, "little"))


def extended(width: int, height: int) -> bytes:
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", b"\x10\x00\x00\x00" + size)


KINDS: list[Any] = [png, jpeg, gif, lossy, lossless, extended]


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_says_its_size_in_its_head(kind: Any) -> None:
    assert picture_size(kind(1440, 900) + bytes(99)) == (1440, 900)


def test_a_jpeg_has_its_size_after_the_segments_of_a_camera() -> None:
    photo = jpeg(
        4000, 3000, jpeg(160, 120), bytes(60_000), b""
    )  # an embedded thumbnail has a size as well
    assert picture_size(photo) == (4000, 3000)


@examples(500, gate=50)
@given(st.sampled_from([kind(1440, 900) for kind in KINDS]), st.binary(max_size=40), st.data())
def test_bytes_that_are_no_picture_have_no_size(
    whole: bytes, more: bytes, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(whole)))
    assert picture_size(whole[:cut]) in (None, (1440, 900))
    size = picture_size(whole[: cut // 2] + more)
    assert size is None or min(size) >= 0


def tokens_of(*blocks: Any) -> int:
    return prompt_tokens(
        SampleRequest(messages=(Message(role="user", content=blocks),), max_tokens=9)
    )


def picture(content: bytes, size: int = 0) -> ImageBlock:
    data = b64encode(content + bytes(max(0, size - len(content)))).decode()
    return ImageBlock(data=data, mime_type="image/png")


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        (png(1440, 900), range(1500, 1601)),  # a screenshot
        (png(200, 200), range(85, 90)),
        (png(0, 0), range(85, 86)),
        (png(8000, 6000), range(1600, 1601)),
        (png(2**31, 2**31), range(1600, 1601)),
        (jpeg(750, 1000), range(1000, 1001)),
        (b"<svg/>", range(1600, 1601)),
    ],
)
def test_a_picture_counts_by_its_pixels_in_every_kind_of_block(
    content: bytes, tokens: range
) -> None:
    shown = picture(content, 400_000)
    assert tokens_of(shown) in tokens
    result = ToolResultBlock(tool_use_id="u1", content=(TextBlock(text="Here."), shown))
    without = result.model_copy(update={"content": result.content[:1]})
    assert tokens_of(result) - tokens_of(without) in tokens
    assert tokens_of(result, TextBlock(text="?")) > tokens_of(without, TextBlock(text="?"))


def test_a_picture_without_valid_base64_counts_a_fixed_number() -> None:
    for data in ("", "no base64!", "日本", "A", "\udce9"):
        assert tokens_of(ImageBlock(data=data, mime_type="image/png")) == 1600


def test_sound_counts_by_its_length() -> None:
    minute = AudioBlock(data=b64encode(bytes(960_000)).decode(), mime_type="audio/mpeg")
    assert 1500 < tokens_of(minute) < 2500
    assert tokens_of(TextBlock(text="Listen."), minute) > tokens_of(minute)
