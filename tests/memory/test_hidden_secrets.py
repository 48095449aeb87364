"""Secrets among random lines are found, and the search takes linear time for any text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.memory._secrets import pattern_spans
from tests.randomised import examples

FORMS = [
    "DB_PASS={}",
    "export MAIL_PASSWORD={}",
    "passphrase={}",
    "curl -u app:{} https://db.example/",
    "curl -s --user 'app:{}' https://db.example/",
    "Set-Cookie: session={}; Path=/",
    "Cookie: theme=dark; session={}",
    "X-API-Key: {}",
    "mytool --token {}",
    "postgres://app:{}@db.example/main",
    '{{"client_secret": "{}"}}',
    "machine db.example login app password {}",
    "db.example:5432:main:app:{}",
    "sshpass -p {} ssh db.example",
    "mysql -u app -p{} main",
    "redis-cli -a {} ping",
    "https://db.example/a?sig={}",
    "Das Passwort für alle lautet {}",
    "密码是{}",
]
LINES = st.text(st.sampled_from("ab1 =:;'\"-_/.\\%{[üß\t"), max_size=60)
PASSWORDS = st.from_regex(r"[a-z]{4}[a-zA-Z0-9_.!+-]{2,20}[0-9][a-z]", fullmatch=True)


@examples(300, gate=60)
@given(st.lists(LINES), st.sampled_from(FORMS), PASSWORDS, st.lists(LINES))
def test_a_secret_among_other_lines_is_found(
    above: list[str], form: str, secret: str, below: list[str]
) -> None:
    line = form.format(secret)
    start = sum(len(each) + 1 for each in above) + line.index(secret)
    text = "\n".join([*above, line, *below])
    hidden = {at for begin, end in pattern_spans(text) for at in range(begin, end)}
    assert hidden >= set(range(start, start + len(secret)))


PIECES = [
    "curl ", "curl -u ", "curl -u a", "cookie: ", "cookie: a", "set-cookie: a=", "http ", "--token ",
    "token", "token=", "pass", "_pass", "password: '", "secret-", "v1.", "authorization: ", "bearer ",
    "mysql ", "mysql -p", "sshpass -p ", "redis-cli -a ", "a:5432:", "a:*:a:", "machine a ", "machine ",
    "password for ", "password is ", "passwort für a lautet ", "密码", "密码是", "?sig=", "&signature",
    "lftp -u a", "openssl pass:", "default login ", "mot de passe est ", "password is '", "*", "a.b/",
    "-----BEGIN PRIVATE KEY", "eyJaaaaaaaa.", "://", "://a:", "a@", "curl \\\n", '"', "'", " ", "\t",
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("piece", PIECES)
def test_the_time_of_the_search_is_linear_in_the_text(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        best = 9.0
        for _ in range(3):
            began = time.process_time()
            list(pattern_spans(text))
            best = min(best, time.process_time() - began)
        return best

    assert seconds(40_000) < 10 * seconds(10_000) + 0.05
