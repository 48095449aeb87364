"""A saga's token: who can open it, what it belongs to, and that it is spelt in one way only.

Source: design, "What a client sends is hostile".
"""

import base64
import json
import logging
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.mcpserver import AESGCMRequestStateCodec

from anabranch.edges.mcp.cipher import Cipher
from anabranch.edges.mcp.sealing import SagaClaims, Sealer
from anabranch.errors import InvalidTokenError
from anabranch.testing import ManualClock

OLD, NEW = "the old secret, long enough for a key", "the new secret, long enough for a key"
CLAIMS = SagaClaims("book", {"b": [1, "é", "\ud800"], "a": {"z": None}}, "state\nof it", {"s": "d"})
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def sealer(*keys: str, audience: str = "here", clock: ManualClock | None = None) -> Sealer:
    return Sealer(keys or [OLD], audience=audience, ttl=60, clock=clock or ManualClock())


def test_what_was_sealed_comes_back_with_arguments_in_their_order() -> None:
    opened = sealer().open(sealer().seal(CLAIMS, "Ida"), "Ida")
    assert opened == CLAIMS
    assert json.dumps(opened.arguments) == json.dumps(CLAIMS.arguments)


def test_every_key_opens_and_the_first_seals() -> None:
    before, after = sealer(OLD), sealer(NEW, OLD)
    assert after.open(before.seal(CLAIMS, ""), "") == CLAIMS
    with pytest.raises(InvalidTokenError):
        before.open(after.seal(CLAIMS, ""), "")


REFUSED: dict[str, Callable[[ManualClock], tuple[Sealer, str]]] = {
    "principal": lambda clock: (sealer(clock=clock), "Ida"),
    "audience": lambda clock: (sealer(audience="there", clock=clock), ""),
    "sealed with an unknown key": lambda clock: (sealer(NEW, clock=clock), ""),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_token_is_for_one_caller_of_one_server(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    token = sealer(clock=clock).seal(CLAIMS, "")
    other, caller = REFUSED[reason](clock)
    with caplog.at_level(logging.WARNING), pytest.raises(InvalidTokenError):
        other.open(token, caller)
    assert caplog.messages == [f"a saga token was refused: {reason}"]


def test_a_token_is_good_for_its_time_and_a_clock_may_be_a_little_ahead() -> None:
    clock = ManualClock()
    token = sealer(clock=clock).seal(CLAIMS, "")
    clock.advance(59)
    assert sealer(clock=clock).open(token, "") == CLAIMS
    clock.advance(1)
    with pytest.raises(InvalidTokenError):
        sealer(clock=clock).open(token, "")
    behind, ahead = ManualClock(), ManualClock()
    ahead.advance(59)
    assert sealer(clock=behind).open(sealer(clock=ahead).seal(CLAIMS, ""), "") == CLAIMS
    ahead.advance(2)
    with pytest.raises(InvalidTokenError):
        sealer(clock=behind).open(sealer(clock=ahead).seal(CLAIMS, ""), "")


def test_a_token_of_the_same_keys_for_another_purpose_is_refused() -> None:
    for other in (AESGCMRequestStateCodec([OLD]).seal(b"{}"), Cipher([OLD], "else").seal(b"[]")):
        with pytest.raises(InvalidTokenError):
            sealer().open(other, "")


@given(st.binary(max_size=300))
def test_a_cipher_gives_back_all_bytes(plain: bytes) -> None:
    token = Cipher([OLD], "test").seal(plain)
    assert Cipher([OLD], "test").open(token) == plain
    assert set(token) <= {*ALPHABET, ".", "="}


@given(st.binary(max_size=40), st.data())
def test_a_token_that_is_spelt_otherwise_is_refused(plain: bytes, data: st.DataObject) -> None:
    cipher = Cipher([OLD], "test")
    token = cipher.seal(plain)
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from([*ALPHABET, *'+/=."\\ \n\té', ""]))
    spoiled = token[:place] + letter + token[place + 1 :]
    if spoiled != token:
        with pytest.raises(ValueError, match=r"malformed|unknown key|as it was sealed"):
            cipher.open(spoiled)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "padded": lambda text: text + "=",
    "not padded": lambda text: text.rstrip("="),
    "the other alphabet": lambda text: text.replace("-", "+").replace("_", "/"),
    "escaped": lambda text: f"\\u{ord(text[0]):04x}{text[1:]}",
    "with a line break": lambda text: text[:8] + "\n" + text[8:],
    "with space around": lambda text: f" {text} ",
    "quoted": lambda text: f'"{text}"',
    "trailing bits": lambda text: text.replace("A==", "B=="),
    "empty": lambda text: "",
    "short": lambda text: base64.urlsafe_b64encode(b"short").decode(),
}


@pytest.mark.parametrize("how", SPELLINGS)
def test_the_same_bytes_in_another_spelling_are_refused(how: str) -> None:
    cipher = Cipher([OLD], "test")
    tokens = (cipher.seal(b"xx") for _ in range(10_000))  # 34 bytes: two letters of padding
    token = next(t for t in tokens if "-" in t and "_" in t and t.endswith("A=="))
    spoiled = "v1." + SPELLINGS[how](token.removeprefix("v1."))
    assert spoiled != token
    with pytest.raises(ValueError, match="malformed"):
        cipher.open(spoiled)
    assert cipher.open(token) == b"xx"


@pytest.mark.parametrize("token", ["", "v1", "v2.AAAA", "AAAA"])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        Cipher([OLD], "test").open(token)


def test_keys_are_long_different_and_there() -> None:
    with pytest.raises(ValueError, match=r"at least 32 bytes; keys\[1\] has 5"):
        Cipher([OLD, "short"], "test")
    with pytest.raises(ValueError, match=r"keys\[1\] is there twice"):
        Cipher([OLD, OLD.encode()], "test")
    with pytest.raises(ValueError, match="at least one key"):
        Cipher([], "test")
