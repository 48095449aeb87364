import stat
from pathlib import Path

import pytest

from anabranch._terminal import UsageError
from anabranch.cli._stores import read_keys


def never(line: str) -> None:
    """Fail if a message is shown."""
    raise AssertionError(line)


OLD, NEW = "o" * 32, "n" * 40


def test_keys_come_from_the_environment_newest_first(tmp_path: Path) -> None:
    assert read_keys({"ANABRANCH_KEYS": f"{NEW}, {OLD},"}, never, tmp_path) == [NEW, OLD]


def test_the_server_of_one_call_has_a_new_key_unless_keys_are_set(tmp_path: Path) -> None:
    of_call = {"ANABRANCH_CALL_KEY": OLD}
    assert read_keys(of_call, never, tmp_path) == [OLD]
    assert read_keys({"ANABRANCH_KEYS": NEW, **of_call}, never, tmp_path) == [NEW]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", ["", "short", f"{OLD},short", ","])
def test_a_key_that_is_too_short_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(UsageError, match="ANABRANCH_KEYS must hold keys of at least 32"):
        read_keys({"ANABRANCH_KEYS": given}, never, tmp_path)


def test_without_any_a_key_is_made_and_stored_for_its_user_alone(tmp_path: Path) -> None:
    data = tmp_path / "not" / "there"
    first = read_keys({}, never, data)
    assert len(first[0]) >= 32
    assert read_keys({}, never, data) == first
    [file] = data.iterdir()
    assert (file.name, stat.S_IMODE(file.stat().st_mode)) == ("keys", 0o600)


def test_a_key_of_the_file_can_be_replaced_by_hand(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{OLD}\n")
    (before,) = read_keys({}, never, tmp_path)
    (tmp_path / "keys").write_text(f"{NEW},{OLD}\n")
    newest, oldest = read_keys({}, never, tmp_path)
    assert oldest == before != newest


def test_each_server_derives_separate_keys_from_the_file(tmp_path: Path) -> None:
    staging, production = (read_keys({}, never, tmp_path, audience=a) for a in ("s", "p"))
    assert staging != production
    assert (tmp_path / "keys").read_text() not in staging + production


def test_where_no_file_can_be_made_a_key_is_used_that_is_stored_nowhere(tmp_path: Path) -> None:
    occupied, shown = tmp_path / "file", list[str]()
    occupied.write_text("")
    keys = [read_keys({}, shown.append, occupied) for _ in range(2)]
    assert keys[0] != keys[1]
    assert shown[0].startswith(f"Cannot store a key in {occupied / 'keys'} (")
    assert shown[0].endswith("will not survive a restart. Set ANABRANCH_KEYS to change that.")
