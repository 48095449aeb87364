"""The accepted URLs of stores, and the errors for wrong ones."""

import sys
from pathlib import Path

import pytest

from anabranch.errors import StoreError
from anabranch.stores import open_store
from anabranch.stores._engines import read_url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "is invalid"),
        ("calls.db", "is invalid"),
        ("postgresql://host:port/name", "is invalid"),
        ("mysql://host/name", "no store for 'mysql' URLs"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "URL sqlite:///:memory: names no file. Write memory: for"),
        ("sqlite:///my calls.db?mode=ro", "sqlite:///my calls.db has no option 'mode'"),
        ("sqlite://calls.db", "three slashes"),
        ("sqlite:///calls.db?synchronous=off", "neither full nor normal"),
        ("sqlite:///calls.db?mode=ro", "no option 'mode'"),
        ("sqlite:///calls.db?timeout=soon", "not a number of seconds"),
        ("sqlite:///calls.db?timeout=nan", "not a number of seconds"),
        ("postgresql://host/name?timeout=0", "not a number of seconds"),
        ("sqlite:///calls.db?timeout=1&timeout=2", "not a number of seconds"),
    ],
)
def test_a_bad_url_is_refused_in_one_sentence(url: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        open_store(url)

    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_a_password_is_never_shown() -> None:
    with pytest.raises(StoreError) as caught:
        open_store("postgresql://me:secret@host:port/name")

    assert "secret" not in str(caught.value)
    assert "secret" not in read_url("postgresql://me:secret@host/name?password=secret").label


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(StoreError, match=r"'psycopg'.*\[postgres\]"):
        open_store("postgresql://host/name")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgres_urls_accept_the_usual_schemes(scheme: str) -> None:
    target = read_url(f"{scheme}://me@host/name?sslmode=require&timeout=30")

    assert target.kind == "postgresql"
    assert target.url.drivername == "postgresql+psycopg"
    assert target.url.query["sslmode"] == "require"
    assert target.url.query["connect_timeout"] == "30"


def test_a_sqlite_path_is_relative_absolute_or_in_the_home_directory() -> None:
    assert read_url("sqlite:///calls.db").url.database == "calls.db"
    assert read_url("sqlite:////srv/calls.db").url.database == str(Path("/srv/calls.db"))
    assert read_url("sqlite:///~/calls.db").url.database == str(Path.home() / "calls.db")


async def test_a_store_opens_its_database_at_the_first_use(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/calls.db")
    await store.close()

    assert not (tmp_path / "calls.db").exists()
