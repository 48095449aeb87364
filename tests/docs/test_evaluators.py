"""The evaluators behind ``docs/test_pages.py``: a false page must fail."""

from pathlib import Path

import pytest
from sybil.example import SybilFailure

from tests.docs.pages import parse, workplace


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(workplace(tmp_path))
    return tmp_path


def run(text: str) -> None:
    for example in parse(text).examples():
        example.evaluate()


def test_python_blocks_of_a_page_share_their_names() -> None:
    run("```python\nx = 1\n```\n\n```python\nassert x == 1\n```\n")


def test_a_python_block_may_await() -> None:
    run("```python\nimport asyncio\n\nassert await asyncio.sleep(0, 'done') == 'done'\n```\n")


def test_a_false_assertion_fails() -> None:
    with pytest.raises(AssertionError):
        run("```python\nassert await __import__('asyncio').sleep(0, 1) == 2\n```\n")


def test_an_error_is_reported_at_its_line_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run("A page.\n\n```python\nx = 1\n1 / 0\n```\n")
    assert caught.traceback[-1].lineno == 4  # counted from 0


def test_functions_of_a_page_can_be_found_by_name() -> None:
    run(
        "```python\nimport sys\n\n\ndef f(): ...\n\n\n"
        "assert getattr(sys.modules[f.__module__], 'f') is f\n```\n"
    )


@pytest.mark.usefixtures("folder")
def test_a_console_block_is_run_in_a_shell_with_its_continuations() -> None:
    run("```console\n$ cat <<END\n> one\n> two\n> END\none\ntwo\n$ false\n$ echo $?\n1\n```\n")


@pytest.mark.usefixtures("folder")
def test_other_output_than_the_page_says_fails() -> None:
    with pytest.raises(SybilFailure, match="expected:\nno\n\nwritten:\nyes\n"):
        run("```console\n$ echo yes\nno\n```\n")


@pytest.mark.usefixtures("folder")
def test_output_that_the_page_leaves_out_fails() -> None:
    with pytest.raises(SybilFailure):
        run("```console\n$ echo yes\n$ true\n```\n")


@pytest.mark.usefixtures("folder")
def test_a_shell_that_ends_early_fails() -> None:
    with pytest.raises(SybilFailure):
        run("```console\n$ exit 0\n$ true\n```\n")


def test_broken_json_fails() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        run("```json\n{]\n```\n")


def test_a_titled_block_is_that_file_and_is_run(folder: Path) -> None:
    run('```python title="sub/one.py"\nx = 1\n```\n\n```python\nassert x == 1\n```\n')
    assert (folder / "sub" / "one.py").read_text(encoding="utf-8") == "x = 1\n"


@pytest.mark.usefixtures("folder")
def test_a_titled_block_that_is_broken_fails() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        run('```json title="a.json"\n{]\n```\n')


def test_a_workplace_has_the_example_tools(folder: Path) -> None:
    assert (folder / "wizard.py").is_file()
    assert (folder / "bin" / "anabranch").is_file()
