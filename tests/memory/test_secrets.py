"""Secrets in texts: the detected kinds, unchanged text, and a failing search."""

import logging
import random
import string
import sys
from collections.abc import Iterable

import pytest
from mcp.server.mcpserver import AESGCMRequestStateCodec

from anabranch._durable import SagaClaims, Sealer
from anabranch.memory import WITHHELD, Scrubbed, Scrubber
from anabranch.memory._secrets import _plugins
from anabranch.testing import ManualClock

REDACTED = "[REDACTED]"

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
_source = random.Random(7)


def some(number: int, of: str = LETTERS) -> str:
    return "".join(_source.choice(of) for _ in range(number))


KEY = some(40)


def sealed(purpose: str) -> str:
    sealer = Sealer([KEY], audience="test", ttl=60, clock=ManualClock(), purpose=purpose)
    return sealer.seal(SagaClaims(tool="book", state="{}"), "")


# Built at run time, so that no scanner of repositories finds a secret in this file.
SECRETS: dict[str, tuple[str, str]] = {
    "aws-access-key-id": ("{}", "AKIA" + some(16, string.ascii_uppercase + string.digits)),
    "aws-secret-access-key": ("aws_secret_access_key = {}", some(40)),
    "generic-api-key": ('"api_key": "{}"', some(24)),
    "generic-secret": ("CLIENT_SECRET={}", some(20)),
    "private-key": (
        "{}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{some(64)}\n{some(64)}\n-----END RSA PRIVATE KEY-----",
    ),
    "github-token": ("{}", f"ghp_{some(36)}"),
    "github-oauth": ("{}", f"gho_{some(36)}"),
    "github-app": ("{}", f"ghs_{some(36)}"),
    "github-fine-grained": ("{}", f"github_pat_{some(22)}_{some(59)}"),
    "gitlab-token": ("{}", f"glpat-{some(20)}"),
    "slack-token": ("{}", f"xoxb-123456789012-123456789012-{some(24)}"),
    "stripe-key": ("{}", f"sk_live_{some(24)}"),
    "database-url": ("postgres://{}@db.example/main", "app:s3cr3t"),
    "jwt": ("{}", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"),
    "google-api-key": ("{}", f"AIza{some(35)}"),
    "google-oauth": ("{}", f"ya29.{some(40)}"),
    "azure-storage-key": ("AccountKey={}", f"{some(86)}=="),
    "anthropic-api-key": ("{}", f"sk-ant-api03-{some(60)}"),
    "openai-api-key": ("{}", f"sk-proj-{some(40)}"),
    "sendgrid-api-key": ("{}", f"SG.{some(22)}.{some(43)}"),
    "twilio-api-key": ("{}", f"SK{some(32, HEX)}"),
    "npm-token": ("{}", f"npm_{some(36)}"),
    "heroku-api-key": ("HEROKU_API_KEY={}", "12345678-1234-1234-1234-123456789abc"),
    "bearer-token": ("Authorization: Bearer {}", some(40)),
    "ssh-key": ("{}", f"-----BEGIN OPENSSH PRIVATE KEY-----\n{some(70)}"),
    "env-credential": ("export DB_PASSWORD={}", "hunter2x"),
    "pass-of-something": ("DB_PASS={}", "correcthorse"),
    "pass-of-digits": ("export SMTP_PASS={}", "271828"),
    "pass-in-one-word": ("PGPASS={}", "correcthorse"),
    "pass-alone": ("user=app pass={}", "correcthorse"),
    "passphrase": ("passphrase={}", "correcthorse"),
    "passphrase-with-blanks": ('passphrase = "{}"', "correct horse battery staple"),
    "passphrase-in-json": ('{{"passphrase": "{}"}}', "correct horse battery staple"),
    "password-in-yaml": ("password: '{}'", "let me in, please"),
    "password-option": ("mytool --password {} run", "hunter2x"),
    "curl-user": ("curl -u app:{} https://db.example/", "letmein"),
    "curl-user-with-blanks": ("curl -sS \\\n  --user 'app:{}' https://db.example/", "let me in"),
    "curl-user-among-options": ("curl -sSu app:{} https://db.example/", "letmein"),
    "curl-cookie-among-options": ("curl -sb session={} https://db.example/", some(20)),
    "httpie-auth-among-options": ("http -va app:{} GET db.example", "letmein"),
    "curl-proxy-user": ("curl -x proxy:1 --proxy-user=app:{} https://db.example/", "letmein"),
    "httpie-auth": ("http -a app:{} GET db.example", "letmein"),
    "set-cookie": ("Set-Cookie: session={}; Path=/; HttpOnly", some(20)),
    "set-cookie-in-a-dict": ("{{'set-cookie': 'sid={}; Path=/'}}", some(20)),
    "cookie": ("GET / HTTP/1.1\nCookie: theme=dark; session={}\nAccept: text/html", some(20)),
    "curl-cookie": ("curl -b 'session={}' https://db.example/", some(20)),
    "api-key-header": ("X-API-Key: {}", f"{some(20)}7"),
    "authorization-without-a-scheme": ("Authorization: {}", some(30)),
    "netrc": ("machine api.example login app password {}", "letmein"),
    "netrc-on-lines": ("machine api.example\n  login app\n  password {}\n", "letmein"),
    "netrc-of-all": ("default login anonymous password {}", "letmein"),
    "pgpass": ("db.example:5432:main:app:{}", "letmein"),
    "pgpass-of-all": ("echo '*:*:*:app:{}' >> ~/.pgpass", r"let\:me"),
    "sshpass": ("sshpass -p {} ssh app@db.example -p 2222", "letmein"),
    "sshpass-attached": ("sshpass -p'{}' ssh app@db.example", "let me in"),
    "mysql": ("mysql -u root -p{} main", "letmein"),
    "mysqldump": ("mysqldump -h db -P 3306 -p'{}' main > a.sql", "let me in"),
    "redis": ("redis-cli -h cache -a {} ping", "letmein"),
    "redis-pass": ("redis-cli --pass {} ping", "letmein"),
    "docker-login": ("docker login -u app -p {} registry.example", "letmein"),
    "mongo": ('mongosh -u app -p "{}" main', "letmein"),
    "ldap": ("ldapsearch -D cn=app -w {} -b dc=example", "letmein"),
    "smb": ("smbclient //files/a -U app%{}", "letmein"),
    "openssl": ("openssl rsa -in key.pem -passin pass:{}", "letmein"),
    "signed-url": ("https://b.s3.example/a?X-Amz-Expires=60&X-Amz-Signature={}&x=1", some(64, HEX)),
    "signed-url-of-azure": ("https://a.blob.example/b?sv=2024&sig={}", f"{some(43)}%3D"),
    "german": ("Das Passwort lautet {}", "letmein"),
    "german-of-something": ("Das Passwort für den Server lautet: {}", "letmein"),
    "german-is": ("Das Kennwort ist {}", "hunter2x"),
    "german-name": ("Passwort: {}", "hunter2x"),
    "english-is": ("The password for staging is {}", "hunter2x"),
    "english-quoted": ('The password is "{}"', "open sesame"),
    "french": ("Le mot de passe du serveur est {}", "hunter2x"),
    "french-quoted": ("Le mot de passe est «{}»", "sésame"),
    "spanish": ("La contraseña es {}", "hunter2x"),
    "portuguese": ("A senha é {}", "hunter2x"),
    "italian": ("La password è {}", "hunter2x"),
    "dutch": ("Het wachtwoord luidt {}", "letmein"),
    "polish": ("Hasło to {}", "hunter2x"),
    "russian": ("Пароль — {}", "hunter2x"),
    "chinese": ("密码是{}。", "hunter2x"),
    "chinese-name": ("数据库密码\uff1a{}", "hunter2x"),
    "japanese": ("パスワードは「{}」です", "hunter2x"),
    "korean": ("비밀번호는 {}", "hunter2x"),
    "request-state": ('{{"requestState": "{}"}}', AESGCMRequestStateCodec([KEY]).seal(b"state")),
    "saga-token": ("Go on with {} then.", sealed("anabranch/saga/v1")),
    "call-handle": ("continue_call(call={})", sealed("anabranch/handle/v1")),
    "question-link": ("Answer at https://app.example/ask/{}", sealed("anabranch/ask/v1")),
}


@pytest.mark.parametrize("kind", SECRETS)
async def test_a_secret_of_each_kind_is_replaced(kind: str) -> None:
    form, secret = SECRETS[kind]
    text = f"It was\n{form.format(secret)}\n"

    scrubbed = await Scrubber().scrub(text)

    assert secret not in scrubbed.text
    assert scrubbed.text.startswith("It was\n")
    assert REDACTED in scrubbed.text
    assert scrubbed.found == 1


@pytest.mark.parametrize(
    "form",
    [
        "password={}hunter2",
        "password: {}hunter2",
        "password='{} let me hunter2'",
        "user=app pass={}hunter2",
        "mytool --password {}hunter2",
        "Cookie: sid={}hunter2",
        "Cookie: theme={}; sid=hunter2",
        "Set-Cookie: sid={}hunter2; Path=/",
        "curl -u app:{}hunter2 https://db.example/",
        "curl --user 'app:{} hunter2' https://db.example/",
    ],
)
async def test_a_placeholder_in_the_text_does_not_hide_the_secret_after_it(form: str) -> None:
    """A user may write the placeholder as well."""
    assert "hunter2" not in (await Scrubber().scrub(form.format(REDACTED))).text


@pytest.mark.parametrize(
    "text",
    [
        "The password handling lives in auth.py; rotate the secret before release.",
        "Use max_tokens = 500, and tokens=4096.",
        "Commit 144ae36f0e3b of https://example.org/a?b=c, seen at http://localhost:8000/mcp.",
        "sha256:78625e48e544eb9c7369237caf3511061fea83537c7fec5779ec6e8af362100f",
        "The token: see the docs. def scrub(text: str) -> str: return text",
        "task-runner and ask-questions-later-with-a-very-long-name",
        "192.0.2.1 answered",
        "12 tests: pass=1200 fail=3; bypass = True, compass=north, passed=1234, passes: 123456",
        "docker run -u 1000:1000 image; curl is a tool. The user: see -u in its manual.",
        "The cookie: a small file. Use cookies=True, or Set-Cookie headers.",
        "See v1.2.3 and v1.some-page of the docs.",
        "--password is asked for, --token too",
        "ssh -p 2222 app@db.example; mkdir -p build/a; docker login a && docker run -p 8080:80 image; cp -p a b",
        "mysql -u root -p main asks for it; redis-cli -h cache -p 6379 ping; mysql --protocol tcp",
        "the password policy is 12 characters, the password is rotated every 90 days",
        "The password is required, and is base64-encoded. The password of a user is never sent.",
        "Das Passwort ist abgelaufen. Die Passwortregel lautet: mindestens zwölf Zeichen.",
        "Le mot de passe est obligatoire. 密码是必填项。パスワードは必須です。La contraseña es obligatoria.",
        "a.py:12:5: E501, MD5:16:27:ac:a5:76:28:2d:36:63:1b:56:4d:eb:df:a6:48, at 12:30:45, [2001:db8::1]:80",
        "the machine is down, the default login page asks for a password first",
        "https://example.org/?signature=v4&sign=1&page=2 and org.example:lib:jar:linux:1.0",
        "curl -sSL -o out.json https://db.example:8080/a?b=c",
        "",
    ],
)
async def test_text_without_a_secret_stays_unchanged(text: str) -> None:
    assert await Scrubber().scrub(text) == Scrubbed(text)


async def test_all_secrets_of_a_line_are_replaced_and_the_rest_stays() -> None:
    one, two = f"ghp_{some(36)}", some(24)

    scrubbed = await Scrubber().scrub(f'a {one} b password = "{two}" c secret = "{two}!" d')

    assert scrubbed == Scrubbed(
        f'a {REDACTED} b password = "{REDACTED}" c secret = "{REDACTED}" d', 3
    )


async def test_a_secret_in_the_middle_of_a_long_line_is_found() -> None:
    secret = f"{some(32, HEX)}-us12"

    scrubbed = await Scrubber().scrub(f"{'word ' * 396}{secret}{' word' * 1000}")

    assert secret not in scrubbed.text


async def test_scrubbed_text_is_not_changed_again() -> None:
    scrubber = Scrubber()
    text = "\n".join(form.format(secret) for form, secret in SECRETS.values())

    once = (await scrubber.scrub(text)).text

    assert (await scrubber.scrub(once)).text == once


async def test_a_text_is_withheld_if_the_search_fails(caplog: pytest.LogCaptureFixture) -> None:
    def failing(text: str) -> Iterable[tuple[int, int]]:
        raise ValueError(f"cannot read {text}")

    with caplog.at_level(logging.ERROR, "anabranch"):
        scrubbed = await Scrubber(failing).scrub("harmless")

    assert scrubbed == Scrubbed(WITHHELD, withheld=True)
    assert "ValueError" in caplog.text
    assert "harmless" not in caplog.text


async def test_without_the_detector_library_every_text_is_withheld(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "detect_secrets.plugins", None)
    _plugins.cache_clear()

    with caplog.at_level(logging.ERROR, "anabranch"):
        scrubbed = await Scrubber().scrub("harmless")

    assert scrubbed.withheld
    assert "needs the package 'detect_secrets', which is not installed. Install it" in caplog.text


async def test_overlapping_secrets_become_one() -> None:
    scrubber = Scrubber(lambda _: [(4, 8), (0, 2), (6, 10), (5, 5)])

    assert await scrubber.scrub("0123456789abcdef") == Scrubbed(f"{REDACTED}23{REDACTED}abcdef", 2)
