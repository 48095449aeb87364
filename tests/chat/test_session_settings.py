"""Help, settings, models, threads: the commands about the session and its files."""

from collections.abc import Sequence

import pytest

from anabranch.chat import COMMANDS, enter
from anabranch.models import ModelError
from anabranch.testing import MockModel
from anabranch.tree import local_time
from tests.chat.sessions import feed, session, shown, text_here


async def test_help_lists_every_command_with_its_purpose_and_the_tools() -> None:
    helped = await shown(session(), "/help")
    lines = helped.splitlines()
    assert len(lines) == len(COMMANDS) + 2
    for line, command in zip(lines, COMMANDS.values(), strict=False):
        assert line.startswith(f"/{command.name}")
        assert line.endswith(command.help)
    assert "/branch_self, /add, /book, /fail." in helped


async def test_help_of_a_terminal_fits_on_its_screen_by_groups() -> None:
    lines = (await shown(session(columns=lambda: 80), "/help")).splitlines()
    assert len(lines) <= 14
    assert (
        lines[0] == "move     /up  /down [N]  /left  /right  /root  /lastfork  /nextfork  /leaf [N]"
    )
    helped = " ".join(lines)
    assert all(command.call in helped for command in COMMANDS.values())
    lines = (await shown(session(), "/help threads")).splitlines()
    assert lines[0] == "/tree         Draw the whole conversation, with its branches and labels."
    assert len(lines) == 5


async def test_help_on_one_command_is_its_usage_and_its_sentence() -> None:
    assert await shown(session(), "/help down") == (
        "/down [N]: Go to the next answer; if there are several, to the Nth."
    )
    assert (
        await shown(session(), "/help /exit")
        == "/exit: End the chat; the conversation stays stored."
    )


async def test_all_familiar_commands_exist() -> None:
    familiar = (
        "help clear exit verbose quiet config save load up down left right root lastfork nextfork"
        " label leaf combine_leaves broadcast undo auto tree fork threads thread models switch"
    )
    assert set(familiar.split()) <= set(COMMANDS)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/dwon", "Unknown command /dwon. Did you mean /down? /help lists the commands."),
        ("/xyzzy", "Unknown command /xyzzy. /help lists the commands."),
        ("/", "Unknown command /. /help lists the commands."),
        ("/help nothing", "Unknown command /nothing. /help lists the commands."),
        (
            "/usr/bin is full",
            'Unknown command /usr/bin. To send text that starts with "/", type "//".',
        ),
    ],
)
async def test_an_unknown_command_is_reported(line: str, said: str) -> None:
    assert await shown(session(), line) == f"error: {said}"


@pytest.mark.parametrize("name", sorted(COMMANDS))
async def test_every_command_refuses_too_many_arguments_or_takes_the_rest(name: str) -> None:
    command = COMMANDS[name]
    [output] = await enter(session(), f"/{name} " + " ".join("x" * 20))
    if "…" not in command.usage:
        assert output.content == f"Write /{name} {command.usage}".rstrip() + "."
    assert output.type == "error" or name in {"s", "say"}


@pytest.mark.parametrize("name", sorted(n for n, each in COMMANDS.items() if each.min_arguments))
async def test_every_command_that_needs_arguments_says_which(name: str) -> None:
    [output] = await enter(session(), f"/{name}")
    assert (output.type, output.content) == ("error", f"Write /{name} {COMMANDS[name].usage}.")


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("/clear", "clear"),
        ("clear", "clear"),
        ("/exit", "exit"),
        ("exit", "exit"),
        ("quit", "exit"),
    ],
)
async def test_clear_and_exit_are_for_the_front_end(line: str, action: str) -> None:
    [output] = await enter(session(), line)
    assert (output.type, output.action) == ("system", action)


async def test_verbose_and_quiet_are_settings() -> None:
    chat = session()
    await feed(chat, "/quiet")
    assert chat.settings.verbose is False
    await feed(chat, "/verbose")
    assert chat.settings.verbose is True


async def test_config_shows_and_sets() -> None:
    chat = session()
    assert (
        "width                   = 60  (maximum characters of a message in /tree)"
        in await shown(chat, "/config")
    )
    assert await shown(chat, "/config set width 80") == "width = 80"
    await feed(chat, "/config set max_tokens 1000", "/config set verbose false")
    assert (chat.settings.width, chat.settings.max_tokens, chat.settings.verbose) == (
        80,
        1000,
        False,
    )
    await feed(chat, "/config set max_tokens none")
    assert chat.agent.dependencies.limits.max_tokens is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("set width", "Write /config, or /config set NAME VALUE."),
        ("width 80", "Write /config, or /config set NAME VALUE."),
        ("set colour red", "There is no setting 'colour'. Settings: verbose, width,"),
        ("set width 5", "width: Input should be greater than or equal to 10."),
        ("set width none", "width: Input should be a valid integer."),
        ("set verbose perhaps", "verbose: Input should be a valid boolean"),
    ],
)
async def test_config_refuses_a_value_that_a_setting_does_not_take(words: str, said: str) -> None:
    chat = session()
    before = chat.settings.model_copy()
    answer = await shown(chat, f"/config {words}")
    assert answer.startswith("error: ")
    assert said in answer
    assert chat.settings == before


async def test_a_limit_that_is_set_holds_from_the_next_turn_on() -> None:
    chat = session()
    assert "2/2 branches" in await shown(chat, '/branch_self {"prompts": ["a", "b"]}')
    answer = await shown(
        chat, "/config set max_branches_per_call 1", '/branch_self {"prompts": ["a", "b"]}'
    )
    assert answer.startswith("error: ")


class Narrow(MockModel):
    """A model that accepts one tool."""

    most_tools = 1


class Shelf:
    """A choice of two models: one accepts few tools, and the other cannot be opened."""

    def open(self, name: str) -> MockModel:
        if name == "broken":
            raise ModelError("It has no key. Set KEY.")
        model = Narrow if name == "narrow" else MockModel
        return model(lambda request: f"I am {name}.")

    def names(self) -> Sequence[str]:
        return ["a:one", "a:two", *(f"b:{number}" for number in range(100))]


async def test_models_are_listed_and_switched() -> None:
    chat = session(models=Shelf())
    listed = await shown(chat, "/models")
    assert listed.splitlines()[:2] == ["Now answering: mock. /switch MODEL changes that.", "a:one"]
    assert "… and 42 more" in listed
    assert (await shown(chat, "/models a:")).splitlines()[1:] == ["a:one", "a:two"]
    assert await shown(chat, "/switch a:two", "hello") == "I am a:two."
    assert "Now answering: a:two." in await shown(chat, "/models")


async def test_switching_tells_of_more_tools_than_the_model_takes() -> None:
    chat = session(models=Shelf())
    switched = await shown(chat, "/switch narrow")
    assert switched.splitlines()[0] == "narrow answers from now on."
    assert "The model takes at most 1 tools, got 4. Choose some" in switched
    assert await shown(chat, "/switch a:one") == "a:one answers from now on."


async def test_the_old_model_stays_when_the_new_one_cannot_be_opened() -> None:
    chat = session(models=Shelf())
    assert await shown(chat, "/switch broken") == "error: It has no key. Set KEY."
    assert await shown(chat, "hello") == "You said: hello"


async def test_a_session_without_other_models_cannot_switch() -> None:
    chat = session()
    assert "cannot switch to 'x'" in await shown(chat, "/switch x")
    assert await shown(chat, "/models") == "Now answering: mock. /switch MODEL changes that."


# -- threads ---------------------------------------------------------------------------------


async def test_threads_are_listed_and_changed() -> None:
    chat = session()
    await feed(chat, "hello")
    first = chat.cursor.thread_id
    assert "A new thread" in await shown(chat, "/thread")
    await feed(chat, "elsewhere")
    dates = [one.created_at for one in await chat.store.threads(2)]
    assert (await shown(chat, "/threads")).splitlines() == [
        f"* {chat.cursor.thread_id}  {local_time(dates[0])}  elsewhere",
        f"  {first}  {local_time(dates[1])}  hello",
    ]
    assert (await shown(chat, f"/thread {first}")).splitlines()[0] == f"Thread {first}: hello"
    assert await text_here(chat) == "You said: hello"
    assert "Unknown thread 'x'." in await shown(chat, "/thread x")
    assert chat.cursor.thread_id == first


async def test_the_tree_is_drawn_with_branches_labels_and_the_cursor() -> None:
    chat = session()
    await feed(chat, "fork one two", "/fork b1", "/label best")
    drawn = (await shown(chat, "/tree")).splitlines()
    assert drawn == [
        "user       n1  fork one two",
        "assistant  n2  Forking. [branch_self]",
        "  b1  branch     n3  (self-prompt): one",
        "      assistant  n5  You said: (self-prompt): one  (best, head)  ← you are here",
        "  b2  branch     n4  (self-prompt): two",
        "      assistant  n6  You said: (self-prompt): two",
        "results    wDw7V  ← 2/2 branches completed (parallel, single response). b1 (o…",
        "assistant  n8  Done.",
    ]
    await feed(chat, "/config set width 10")
    assert "n5  You said:…  (best, head)  ← you are here" in await shown(chat, "/tree")
