"""``anabranch chat``, led by scripts and pipes."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from anabranch._terminal import STILL_RUNNING
from anabranch.cli._chatting import ChatOptions, command_to_continue
from anabranch.cli._option_groups import AgentOptions, TurnOptions
from tests.cli.chats import TARGET, Desk
from tests.patience import PATIENCE


def test_a_script_leads_a_conversation_and_stdout_carries_it_alone(desk: Desk) -> None:
    done = desk.chat("hello", "", "fork", "/fork b2", "more /label west")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "All right.",
        "I fork.",
        "All right.",
        "b2 · assistant · 2 of 3 (/left, /right)",
        "Sunset.",
        "All right.",
        "This node now has the label 'west'; /label west returns here.",
    ]
    shown = done.stderr.splitlines()
    assert shown[0] == "A new thread, t. /help lists the commands."
    assert shown[-1].startswith("To continue: anabranch chat ")
    assert {"[b1] Sunrise.", "[b2] Sunset."} <= set(shown)


def test_a_conversation_continues_at_its_last_node(desk: Desk) -> None:
    desk.chat("hello", "fork", "/fork b1")
    done = desk.lead("--thread", "t", *desk.model, lines="more\n/up\n")
    assert done.stderr.splitlines()[1:3] == ["b1 · assistant · 1 of 3 (/left, /right)", "Sunrise."]
    assert done.stdout.splitlines()[0] == "All right."
    done = desk.lead("--thread", "last", "--at", "b2", *desk.model)
    assert "Sunset." in done.stderr


def test_lines_are_read_from_a_pipe_and_exit_ends_it(desk: Desk) -> None:
    with desk.begin("chat", *desk.model) as process:
        out, shown = process.communicate("hello\nexit\nhello\n", timeout=PATIENCE)
    assert (process.returncode, out) == (0, "All right.\n")
    assert shown.splitlines()[1:3] == ["> hello", "> exit"]


def test_a_script_answers_questions_with_its_next_line(desk: Desk) -> None:
    done = desk.chat(
        "/book place=Ulm", '/answer {"ok": true}', "/book place=Bonn", "/answer cancel"
    )
    assert (done.returncode, done.stdout) == (0, "Ulm: accept\nBonn: cancel\n")
    assert '? Book Ulm?\n> accept {"ok": true}\n' in done.stderr


def test_a_question_that_a_script_does_not_answer_is_declined_and_reported(desk: Desk) -> None:
    done = desk.chat("/book place=Ulm", "/answer nonsense", "/book place=Bonn", "hello")
    assert done.stdout == "Ulm: decline\nBonn: decline\nAll right.\n"
    assert "Declined: 'nonsense' is no argument." in done.stderr
    assert "Declined: there is no terminal to ask at, and the next line is not /answer." in (
        done.stderr
    )


def test_a_line_that_fails_is_reported_on_stderr_and_by_the_exit_status(desk: Desk) -> None:
    done = desk.chat("/fail", "/nothing", "hello")
    assert (done.returncode, done.stdout) == (1, "All right.\n")
    assert "error: It is closed.\n" in done.stderr
    assert done.stderr.endswith("anabranch: 2 of the lines failed.\n")


def test_without_a_model_tools_run_and_a_message_is_stored(desk: Desk) -> None:
    done = desk.lead(TARGET, "--thread", "t", lines="/book place=Ulm\n/answer ok=true\nhello")
    assert (done.returncode, done.stdout) == (1, "Ulm: accept\n")
    assert "error: No model is configured: give --model NAME or set ANABRANCH_MODEL" in done.stderr
    done = desk.lead("--thread", "t", *desk.model, lines="/auto")
    assert done.stdout == "All right.\n"


def test_an_empty_name_of_a_model_is_no_model(desk: Desk) -> None:
    done = desk.lead(TARGET, "--model", "", lines="/book place=Ulm\n/answer ok=true")
    assert (done.returncode, done.stdout) == (0, "Ulm: accept\n")


def test_a_tool_that_samples_without_a_model_and_without_a_terminal_fails(desk: Desk) -> None:
    for line in ("/think about=rivers", "/ponder"):
        done = desk.lead(TARGET, lines=line)
        assert done.returncode == 1
        assert "needs 'sampling'" in done.stderr
        assert "--model NAME" in done.stderr
        assert "pondering" not in done.stderr


def test_a_chat_switches_to_a_model_by_name(desk: Desk) -> None:
    name = desk.model[1]
    done = desk.lead(lines=f"/switch {name}\nWhy?\n/switch nonsense\n/models anthropic")
    assert done.stdout.splitlines()[:2] == [f"{name} answers from now on.", "Because."]
    assert "error: Unknown model 'nonsense'." in done.stderr
    assert "anthropic:" in done.stdout


def test_limits_hold_for_the_turns_of_a_chat(desk: Desk) -> None:
    arguments = [TARGET, "--thread", "t", *desk.model]
    done = desk.lead(*arguments, "--max-tokens", "5", lines="hello")
    assert "The turn stopped: it has used 0 of 5 tokens, and its next request needs" in done.stderr
    done = desk.lead(*arguments, "--max-depth", "0", lines="fork")
    assert "branches may be nested 0 deep" in json.dumps(desk.messages())


def test_two_tools_of_one_name_are_refused(desk: Desk, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(Path(TARGET).read_text())
    done = desk.lead(TARGET, str(other))
    assert (done.returncode, "Two tools, or plugins, are called book." in done.stderr) == (2, True)


def test_the_screen_reports_more_tools_than_the_model_takes(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    many = tmp_path / "many.py"
    many.write_text(
        "from anabranch import tool\n"
        "async def act(ctx) -> str:\n    return ''\n"
        "tools = [tool(name=f'act_{n}')(act) for n in range(128)]\n"
        "globals().update({each.name: each for each in tools})\n"
    )
    chat = (str(many), "--model", "openai:gpt-4o")
    told = "The model takes at most 128 tools, got 129. Choose some: --tools and --without"
    assert told in desk.lead(*chat, lines="/exit").stderr
    assert told not in desk.lead(*chat, "--without", "act_1*", lines="/exit").stderr


def test_a_script_that_is_not_text_and_a_store_that_is_none_are_reported(desk: Desk) -> None:
    (desk.folder / "binary").write_bytes(b"\xff\xfe\xff")
    done = desk.run("chat", "--script", str(desk.folder / "binary"))
    assert (done.returncode, "is not text in UTF-8" in done.stderr) == (2, True)
    done = desk.lead("--store", f"sqlite:///{desk.folder / 'binary'}", lines="hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert (desk.folder / "binary").read_bytes() == b"\xff\xfe\xff"


def begin(desk: Desk, line: str, until: str) -> "subprocess.Popen[str]":
    """Start a chat in `t` with one line, and wait until stderr has shown the expected text."""
    process = desk.begin("chat", TARGET, "--thread", "t", *desk.model)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    shown = ""
    while until not in shown:
        read = process.stderr.readline()
        assert read, f"{until!r} never came: {shown!r}"
        shown += read
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_thread_is_valid_after_any_end_of_a_chat_during_a_turn(
    desk: Desk, number: signal.Signals
) -> None:
    with begin(desk, "hang", "[hang] waiting") as process:
        process.send_signal(number)
        out, shown = process.communicate(timeout=PATIENCE)
    assert out == "I wait.\n"
    if number == signal.SIGINT:
        assert process.returncode == 130
        shown = shown.replace(STILL_RUNNING, "")  # the shutdown can take longer than a second
        stopped, command, cancelled = shown.splitlines()[-3:]
        assert stopped == "Stopped by you. The received part is stored."
        assert command.startswith("To continue: anabranch chat ")
        assert cancelled == "anabranch: cancelled"
    assert [node["kind"] for node in desk.exported()["nodes"]] == ["user", "assistant"]
    assert desk.messages()[-1]["content"][0]["type"] == "tool_result"
    assert desk.chat("go on").stdout == "All right.\n"
    roles = [message["role"] for message in desk.messages()]
    assert roles[:3] == ["user", "assistant", "user"]


def test_a_prompt_is_answered_alone(desk: Desk) -> None:
    done = desk.run("chat", TARGET, *desk.model, "--thread", "t", "-p", "/not a command")
    assert (done.returncode, done.stdout, done.stderr) == (0, "All right.\n", "")
    done = desk.run("chat", *desk.model, "--thread", "last", "-p", "fork")
    assert (done.returncode, done.stdout, done.stderr) == (0, "All right.\n", "")
    assert [node["kind"] for node in desk.exported()["nodes"]][:3] == ["user", "assistant", "user"]


def test_a_blank_answer_to_a_prompt_says_so_on_stderr(desk: Desk) -> None:
    script = desk.folder / "blank.json"
    script.write_text('[{"text": ""}]')
    done = desk.run("chat", "--model", f"script:{script}", "--thread", "t", "-p", "hello")
    assert (done.returncode, done.stdout.strip()) == (0, "")
    assert done.stderr == "(the model wrote no text)\n"


def test_a_prompt_without_an_answer_is_a_failure(desk: Desk) -> None:
    done = desk.run("chat", "--thread", "t", "--prompt", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("anabranch: No model is configured")


def test_a_system_prompt_is_that_of_the_conversation_that_is_begun(desk: Desk) -> None:
    options = [*desk.model, "--thread", "t", "--system", "Be brief.", "-p", "hello"]
    assert desk.run("chat", *options).returncode == 0
    done = desk.run("chat", *options)
    assert (done.returncode, done.stderr) == (
        2,
        "anabranch: The conversation t already exists. Leave out --system.\n",
    )


def test_a_broadcast_message_is_answered_once_on_the_screen(desk: Desk) -> None:
    done = desk.chat("fork", "/up", "/broadcast Why?")
    assert done.stdout.count("Because.") == 1
    assert "Because." not in done.stderr


def test_the_command_to_continue_repeats_the_given_options() -> None:
    options = ChatOptions(
        ["a b.py"],
        agent=AgentOptions(
            store="sqlite:///x.db",
            model="script:m.json",
            turn=TurnOptions(
                max_depth=2,
                folding=True,
                header=["Authorization: secret"],
                env=["MAPS_KEY", "MAPS_URL=secret"],
            ),
        ),
    )
    assert command_to_continue(options, "t") == (
        "anabranch chat 'a b.py' --thread t --store sqlite:///x.db --model script:m.json"
        " --header 'Authorization: …' --env MAPS_KEY --env 'MAPS_URL=…' --max-depth 2 --folding"
    )
    assert command_to_continue(ChatOptions(agent=AgentOptions(store="memory:")), "t") is None
