"""Finds and replaces secrets in texts that leave a branch or enter the memory; fails closed.

Some patterns of ``detect-secrets`` take quadratic time, so it searches parts of long lines. Its
search by entropy or for IP addresses would match values that a branch has to report.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio.to_thread

from anabranch.errors import AnabranchError, MissingExtraError, needs_extra

if TYPE_CHECKING:
    from detect_secrets.plugins.base import BasePlugin  # an extra


_TOKENS = (
    r"sk-ant-[\w-]{16,}",  # Anthropic
    r"sk-[A-Za-z0-9_-]{20,}",  # OpenAI, and those who copy it
    r"AIza[\w-]{30,}",  # Google's keys
    r"ya29\.[\w.-]{20,}",  # Google's access tokens
    r"GOCSPX-[\w-]{20,}",  # Google's client secrets
    r"github_pat_\w{20,}",
    r"gh[opsur]_\w{30,}",
    r"glpat-[\w-]{16,}",
    r"hf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"npm_[A-Za-z0-9]{30,}",
    r"xox[a-z]-[\w-]{10,}",  # Slack
    r"[rs]k_(?:live|test)_\w{10,}",  # Stripe
    r"whsec_[\w+/=]{16,}",
    r"SG\.[\w-]{16,}\.[\w-]{16,}",  # SendGrid
    r"eyJ[\w-]{8,}\.[\w-]{8,}[\w.+/=-]*",  # a JSON Web Token, also one that is cut off
    r"v1\.[\w-]{43,}",  # our own: requestState, sagaToken, handles of calls, links to questions
)
# Words for a password in common languages, without words that have another meaning.
_NOUNS = (
    r"(?:passwor[dt]|passwd|passphrase|passcode|kennwort|mot[ _-]de[ _-]passe|contrase[ñn]a|senha"
    r"|palavra-passe|wachtwoord|lösenord(?:et)?|adgangskoden?|passordet|salasana|has[łl]o|heslo|şifre"
    r"|пароль|密码|密碼|口令|パスワード|비밀번호|รหัสผ่าน|mật khẩu|kata sandi|पासवर्ड|كلمة (?:المرور|السر)|סיסמ[הא])"
)
_NAMES = (
    rf"(?:(?:api|access|account|auth|private)[_-]?key|secret|token(?!s)|{_NOUNS}|pwd|rediscli_auth"
    r"|(?:(?<=[_-])|admin|db|ftp|key|mail|my|pg|root|smtp|sql|ssh|user)pass(?![a-z]))[\w-]{0,32}"
)


# All patterns take linear time, since a model may have written the text: a repetition is bounded, or
# has no alternatives that match the same character.
def _secret(characters: str, least: int, before: str = "") -> str:
    return rf"(?P<secret>(?!\[REDACTED\](?!{characters})){before}{characters}{{{least},}})"


_PLAIN = _secret(r"[^\s\"',;&()]", 4)
_WITH_DIGIT = _secret(r"[^\s\"',;()]", 6, r"(?=[^\s\"',;()]{0,64}\d)")


def _quoted(before: str) -> Iterator[re.Pattern[str]]:
    for quote in "\"'":
        secret = _secret(rf"[^{quote}\n]", 4)
        yield re.compile(f"{before % quote}{secret}", re.IGNORECASE)


# Commands, and the text before a secret in them; %s is the place of an optional quote.
_COMMANDS = (
    (
        r"curl|https?",
        r"[ \t](?:-[A-Za-z]{0,8}[uUa]|--user|--proxy-user|--auth)[ =]?%s[^\s:\"']{1,128}:",
        r"[ \t](?:-[A-Za-z]{0,8}b|--cookie)[ =]?%s[^\s=;,\"']{1,128}=",
    ),
    (r"sshpass", r"(?<=sshpass)[ \t]{1,4}-p[ \t]{0,4}%s"),
    (r"(?:mysql|mariadb)[\w-]{0,20}|7z[a-z]{0,2}", r"[ \t]-p%s"),  # after a blank it is no password
    (r"(?:redis|valkey)-cli", r"[ \t](?:-a|--pass)[ =]{1,4}%s"),
    (
        r"(?:docker|podman|registry|az|oras)[ \t]login|mongo\w{0,8}|twine",
        r"[ \t]-p[ =]{1,4}%s(?!\d{1,5}\b)",
    ),
    (r"sqlcmd|mosquitto_[ps]ub|unzip|zip", r"[ \t]-P[ \t]{0,4}%s"),
    (r"ldap[a-z]{1,8}", r"[ \t]-w[ \t]{0,4}%s"),
    (r"smbclient|lftp", r"[ \t]-[Uu][ \t]{1,4}%s[^\s%%,\"']{1,128}[%%,]"),
    (r"openssl", r"[ \t]%spass:"),
)


def _options(before: str) -> Iterator[re.Pattern[str]]:
    for quote in "\"'":
        yield re.compile(before % quote + _secret(rf"[^{quote}\n]", 2))
    yield re.compile(before % "" + _secret(r"[^\s\"'`<>]", 2))


# Each command up to the end of its lines, and its options with secrets.
_OPTIONS = tuple(
    (
        re.compile(rf"\b(?:{name})[ \t](?:[^\n|\\]|\\.)*", re.DOTALL),
        tuple(option for before in befores for option in _options(before)),
    )
    for name, *befores in _COMMANDS
)
# A password in a sentence: after a word that quotes it, any value; after "is", what looks like no word.
_OF = r"(?:[ \t](?:for|of|to|on|für|von|vom|zu[mr]?|pour|du|de|para|d[aeo]l?|per|van|voor|för|till?|dla|для|от)[ \t][^\n.;:?!]{1,48}?)?"
_SAYS = r"[ \t]{1,4}(?:lautet|lauten|heißt|heisst|luidt|lyder|reads|brzmi|гласит)[ \t:]{1,4}"
_IS = (
    r"[ \t]{0,4}(?:(?<=[ \t])(?:is|was|ist|war|est|es|era|é|è|är|er|on|to|jest|je|là|adalah|है|هي|هو|היא|—|-)[ \t:]{1,4}"
    r"|[是为為はが은는]|คือ)[ \t:\uff1a「『]{0,4}"
)
_NO_METHOD = r"(?!(?:base|sha|md|utf|bcrypt|argon|aes|rsa|oauth|pbkdf|ed)-?\d)"
_SAID = _secret(r"[^\s\"',;()。、」』]", 4)
_ODD = _secret(r"[^\s\"',;()。、」』]", 6, _NO_METHOD + r"(?=[^\s\"',;()。、」』]{0,64}\d)")
_SENTENCES = (
    rf"{_NOUNS}{_OF}{_SAYS}[\"'`„“«»]{{0,2}}{_SAID}",
    rf"(?:{_NOUNS}|api[ -]key){_OF}{_IS}[`„“«»]?{_ODD}",
    *(
        rf"{_NOUNS}{_OF}{_IS}{begin}{_secret(rf'[^{end}{chr(92)}n]', 4)}"
        for begin, end in ('""', "''", "``", "„“", "“”", "«»", "「」", "『』")
    ),
)
_PATTERNS = (
    re.compile(rf"(?<![\w-])(?P<secret>{'|'.join(_TOKENS)})"),
    # A whole key in PEM's form; to the end of the text if it has no end.
    re.compile(
        r"(?P<secret>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY.*?(?:-----END [^-]*-----|\Z))", re.DOTALL
    ),
    re.compile(r"\b(?:bearer|basic)[ \t]+(?P<secret>[\w.~+/=-]{16,})", re.IGNORECASE),
    # The password of a URL, with the user's name: postgres://user:password@host
    re.compile(r"(?<=://)(?P<secret>[^\s/:@]{0,256}:[^\s/@]{1,512})@"),
    # Set-Cookie has one cookie and its attributes, Cookie has several.
    re.compile(
        r"set-cookie[\"']?[ \t]*[:=][ \t]*[\"']?[^\s=;,\"']{1,128}=\"?" + _secret(r"[^\s;\"']", 4),
        re.IGNORECASE,
    ),
    re.compile(
        r"(?<![\w-])cookie[\"']?[ \t]*:[ \t]*[\"']?[^\s=;,\"']{1,128}=" + _secret(r"[^\r\n\"']", 4),
        re.IGNORECASE,
    ),
    re.compile(
        r"\bauthorization[\"']?[ \t]*:[ \t]*[\"']?(?P<secret>[\w.~+/=-]{16,})", re.IGNORECASE
    ),
    # .netrc: machine HOST login NAME password SECRET, on one line or several.
    re.compile(
        r"\b(?:machine\s{1,8}\S{1,256}|default)(?:\s{1,8}(?:login|account)\s{1,8}\S{1,256}){0,2}"
        r"\s{1,8}password\s{1,8}\"?" + _secret(r"[^\s\"]", 1)
    ),
    # .pgpass: host:port:database:user:secret, in which a colon of the secret has a backslash.
    re.compile(
        r"(?<![\w.*/:-])[\w.*/-]{1,256}:(?:\d{2,5}|\*):(?!\d+:)[\w.*$-]{1,128}:(?!\d+:)[\w.*@$-]{1,128}:"
        r"(?P<secret>(?:[^\s:\\\"'`]|\\.){2,512})(?![^\s\"'`])"
    ),
    # The signature of a URL, with which anyone may use it.
    re.compile(
        r"[?&](?:amp;)?(?:[\w-]{0,32}signature|sig|hmac)=" + _secret(r"[^\s&\"'<>#)]", 8),
        re.IGNORECASE,
    ),
    # password=x, API_KEY=x; after a colon, or an option's name, only what looks like no word.
    *_quoted(rf"{_NAMES}[\"']?[ \t]{{0,4}}[=:\uff1a][ \t]{{0,4}}%s"),
    re.compile(rf"{_NAMES}[\"']?[ \t]{{0,4}}=[ \t]{{0,4}}[\"']?{_PLAIN}", re.IGNORECASE),
    re.compile(
        rf"{_NAMES}[\"']?[ \t]{{0,4}}[:\uff1a][ \t]{{0,4}}[\"']?{_WITH_DIGIT}", re.IGNORECASE
    ),
    re.compile(rf"--(?:[\w-]{{0,32}}[_-])?{_NAMES}[ \t]{{1,4}}[\"']?{_WITH_DIGIT}", re.IGNORECASE),
    # A count of tests that pass is no password.
    re.compile(
        rf"(?<![\w-])pass[\"']?[ \t]{{0,4}}=[ \t]{{0,4}}[\"']?(?!\d+\b){_PLAIN}", re.IGNORECASE
    ),
    *(re.compile(rf"(?<![a-z]){sentence}", re.IGNORECASE) for sentence in _SENTENCES),
)


def pattern_spans(text: str) -> Iterator[tuple[int, int]]:
    for pattern in _PATTERNS:
        for match in pattern.finditer(text):
            yield match.span("secret")
    for command, options in _OPTIONS:
        for found in command.finditer(text):
            for option in options:
                for match in option.finditer(text, *found.span()):
                    yield match.span("secret")


logger: logging.Logger = logging.getLogger("anabranch")

REDACTED: Final = "[REDACTED]"

WITHHELD: Final = (
    "[Withheld: the search for secrets failed, so this text may contain some."
    " The reason is in the log.]"
)

Detector: TypeAlias = Callable[[str], Iterable[tuple[int, int]]]
"""Returns the start and end of each secret of a text; called in a thread. May raise any error."""

_NOT_USED = {"BasicAuthDetector", "IPPublicDetector"}
_LINE, _OVERLAP = 2_000, 500


class WithheldError(AnabranchError):
    """A text cannot be used, because the search for secrets in it failed."""

    def __init__(self) -> None:
        super().__init__(
            "A text was withheld: the search for secrets in it failed. The reason is in the server's log."
        )


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """A text without secrets, as :meth:`Scrubber.scrub` returns it.

    Attributes:
        text: the text to show.
        found: the number of replaced secrets.
        withheld: whether ``text`` is only a notice, because the search for secrets failed.
    """

    text: str
    found: int = 0
    withheld: bool = False


def find_secrets(text: str) -> Iterator[tuple[int, int]]:
    yield from pattern_spans(text)
    start = 0
    for line in text.splitlines(keepends=True):
        for at in range(0, max(len(line), 1), _LINE - _OVERLAP):
            part = line[at : at + _LINE]
            for plugin in _plugins():
                for begin, end in _spans(plugin, part):
                    yield start + at + begin, start + at + end
        start += len(line)


class Scrubber:
    """Replaces the secrets in texts by ``[REDACTED]``.

    Args:
        detector: a function that finds secrets.
    """

    def __init__(self, detector: Detector = find_secrets) -> None:
        self._detector = detector

    async def scrub(self, text: str) -> Scrubbed:
        """Return ``text`` without secrets, or a notice if the search for secrets fails."""
        if not text:
            return Scrubbed(text)
        try:
            spans = await anyio.to_thread.run_sync(lambda: list(self._detector(text)))
        except Exception as error:  # noqa: BLE001  # after any error, the text must not be shown
            # Do not log the message of the error: it may quote the text.
            why = str(error) if isinstance(error, MissingExtraError) else type(error).__name__
            logger.error("the search for secrets failed (%s); a text is withheld", why)  # noqa: TRY400
            return Scrubbed(WITHHELD, withheld=True)
        merged = _merged(spans)
        pieces: list[str] = []
        shown = 0
        for begin, end in merged:
            pieces += text[shown:begin], REDACTED
            shown = end
        return Scrubbed("".join([*pieces, text[shown:]]), len(merged))

    async def clean(self, text: str) -> str:
        """Return ``text`` without secrets; raise an error if the search for secrets fails.

        Raises:
            WithheldError: if the search fails.
        """
        scrubbed = await self.scrub(text)
        if scrubbed.withheld:
            raise WithheldError
        return scrubbed.text


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        elif end > begin:
            merged.append((begin, end))
    return merged


@cache
def _plugins() -> tuple[BasePlugin, ...]:
    with needs_extra("memory", "The search for secrets"):
        package = import_module("detect_secrets.plugins")
    modules = [
        import_module(f"{package.__name__}.{each.name}") for each in iter_modules(package.__path__)
    ]
    classes: set[Any] = {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.endswith("Detector") and inspect.isclass(value) and not inspect.isabstract(value)
    }
    return tuple(each() for each in classes if each.__name__ not in _NOT_USED)


def _spans(plugin: BasePlugin, text: str) -> Iterator[tuple[int, int]]:
    # The whole match of each pattern: the plugin may report only a part of the secret.
    patterns = getattr(plugin, "denylist", None)
    if patterns is None:
        yield from _reported(plugin, text)
        return
    for pattern in patterns:
        for match in pattern.finditer(text):
            if any(plugin.analyze_string(match[0])):
                yield match.span()


def _reported(plugin: BasePlugin, text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while found := [secret for secret in plugin.analyze_string(text[start:]) if secret]:
        places = [(text.index(secret, start), len(secret)) for secret in found]
        yield from ((at, at + length) for at, length in places)
        start = min(at + length for at, length in places)
