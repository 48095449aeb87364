"""``anabranch call`` in this process, against the real server in another."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from anabranch.cli import main

ERAS = ["modern", "handshake", "saga"]


class Done(NamedTuple):
    status: int
    value: Any
    shown: str


class Caller:
    def __init__(self, capsys: pytest.CaptureFixture[str], url: str, folder: Path) -> None:
        self.capsys, self.url, self.folder = capsys, url, folder

    def __call__(self, *arguments: str, answers: object = None, script: object = None) -> Done:
        options: list[str] = []
        for option, prefix, content in (("--answers", "", answers), ("--model", "script:", script)):
            if content is not None:
                file = self.folder / f"{option}.json"
                file.write_text(json.dumps(content))
                options += [option, f"{prefix}{file}"]
        status = main(["call", self.url, *arguments, *options])
        out, shown = self.capsys.readouterr()
        return Done(status, json.loads(out) if out else None, shown)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], url: str, tmp_path: Path) -> Caller:
    return Caller(capsys, url, tmp_path)


@pytest.mark.parametrize("era", ["auto", *ERAS])
def test_a_result_is_printed_as_json_in_every_era(call: Caller, era: str) -> None:
    done = call("greet", "who=5", "times=5", "--era", era)
    assert done == (0, {"words": "Hello 5", "times": 5}, "")


@pytest.mark.parametrize("era", ERAS)
def test_a_value_that_is_no_object_is_printed_unwrapped(call: Caller, era: str) -> None:
    assert call("count", 'words=["a", "b"]', "--era", era) == (0, 2, "")


@pytest.mark.parametrize("era", ERAS)
def test_simultaneous_questions_find_their_answers_by_key(call: Caller, era: str) -> None:
    answers = [{"key": "right", "cancel": True}, {"key": "left", "decline": True}]
    done = call("confirm_at_once", "--era", era, answers=answers)
    assert (done.value, done.status) == (["decline", "cancel"], 0)


@pytest.mark.parametrize("era", ERAS)
def test_samples_go_to_the_model(call: Caller, era: str) -> None:
    script = [{"text": "no"}, {"text": "deep", "when": "rivers"}]
    assert call("think", "about=rivers", "--era", era, script=script) == (0, "deep", "")


@pytest.mark.parametrize("era", ERAS)
def test_without_a_model_the_call_is_refused_with_the_way_out(call: Caller, era: str) -> None:
    done = call("think", "about=rivers", "--era", era)
    assert (done.status, done.value) == (1, None)
    assert "'sampling'" in done.shown
    assert done.shown.endswith("give --model NAME or set ANABRANCH_MODEL.\n")


@pytest.mark.parametrize("era", ERAS)
def test_a_model_that_fails_ends_the_call_with_its_reason(call: Caller, era: str) -> None:
    done = call("think", "about=rivers", "--era", era, script=[])
    assert (done.status, done.value) == (1, None)
    assert "has no reply left for request 1" in done.shown


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            ["--no-samples-for", "other", "--no-samples-for", "think"],
            "no samples for the tool 'think'",
        ),
        (["--no-samples-for", "URL"], "no samples for the server"),
        (["--confirm-samples"], "The user does not allow this sample."),
    ],
)
def test_a_sample_that_the_policy_refuses_reaches_the_server_as_an_error(
    call: Caller, era: str, options: list[str], reason: str
) -> None:
    options = [call.url if option == "URL" else option for option in options]
    script = [{"text": "deep"}]
    done = call("think", "about=rivers", "--era", era, *options, script=script)
    assert (done.status, done.value) == (1, None)
    assert reason in done.shown
    if "--confirm-samples" in options:
        assert "there is no terminal to ask at" in done.shown


@pytest.mark.parametrize("era", ERAS)
def test_a_sample_can_be_allowed_from_the_file(call: Caller, era: str) -> None:
    answers: list[Any] = [{"key": "allow-sample", "accept": {}}]
    script = [{"text": "deep"}]
    limits = ["--confirm-samples", "--max-samples-per-minute", "1"]
    done = call("think", "about=rivers", "--era", era, *limits, answers=answers, script=script)
    assert (done.status, done.value) == (0, "deep")
    assert "asks your model, in a call of think" in done.shown
    assert "user: rivers" in done.shown


@pytest.mark.parametrize("era", ERAS)
def test_an_address_is_shown_and_can_be_consented_to(call: Caller, era: str) -> None:
    done = call("pay", "--era", era, answers=[{"accept": None}])
    assert (done.status, done.value) == (0, "accept")
    assert "Please pay." in done.shown


@pytest.mark.parametrize("era", ERAS)
def test_a_refusal_is_reported_on_stderr_with_status_1(call: Caller, era: str) -> None:
    done = call("refuse", "--era", era)
    assert (done.status, done.value) == (1, None)
    assert done.shown.startswith("anabranch: ")
    assert done.shown.endswith("No seats are left.\n")


def test_arguments_that_do_not_fit_are_refused_by_the_server_in_one_go(call: Caller) -> None:
    done = call("greet", "--json", '{"times": []}')
    assert done.status == 1
    assert "who: " in done.shown
    assert "times: " in done.shown


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nothing"], "has no tool 'nothing'. It offers: greet, count,"),
        (["greet", "whom=Ann"], "who is missing. whom: there is no such parameter"),
        (["greet", "--json", "{"], "--json is not JSON"),
        (
            ["greet", "--max-tokens", "5"],
            "is a running server with its own limits. Pass the limits to",
        ),
    ],
)
def test_wrong_usage_is_reported_in_one_line_with_status_2(
    call: Caller, arguments: list[str], problem: str
) -> None:
    done = call(*arguments)
    assert (done.status, done.value) == (2, None)
    assert problem in done.shown
    assert done.shown.count("\n") == 1


def test_an_unreachable_server_is_reported_by_call(call: Caller) -> None:
    call.url = "http://127.0.0.1:9/mcp"
    done = call("greet")
    assert done.status == 1
    assert done.shown.startswith("anabranch: Cannot reach http://127.0.0.1:9/mcp: ")


def test_an_address_without_mcp_is_reported(call: Caller, url: str) -> None:
    call.url = url.replace("/mcp", "/nothing")
    done = call("greet")
    assert (done.status, done.shown) == (1, f"anabranch: Cannot connect to {call.url}: Not Found\n")


def test_a_call_is_shown_while_it_runs(call: Caller) -> None:
    done = call("confirm", "-v", answers=[{"accept": {"ok": True}}])
    assert (done.status, done.value) == (0, ["accept"])
    assert done.shown.splitlines() == [
        "→ tools/call confirm {}",
        "← round 1 ends with 1 question: confirm/confirm.1 (the user)",
        "Sure (0)?",
        '> accept {"ok": true}',
        "→ tools/call again, with 1 answer",
        "← the result",
    ]


def test_a_link_is_shown_as_it_is_asked(call: Caller) -> None:
    nothing: dict[str, bool] = {}
    done = call("pay", "--verbose", answers=[{"accept": nothing}])
    link = "https://pay.example/1"
    assert f"1 question: pay/url.1 (the user, by the link {link})" in done.shown


@pytest.mark.parametrize("era", ERAS)
def test_an_answer_that_does_not_fit_is_named_with_its_question(call: Caller, era: str) -> None:
    done = call("confirm", "--era", era, answers=[{"key": "confirm", "accept": {"ok": "perhaps"}}])
    assert (done.status, done.value) == (1, None)
    assert done.shown.splitlines()[-1] == (
        'anabranch: The answer {"ok": "perhaps"} does not fit the question \'confirm/confirm.1\''
        " (Sure (0)?): ok: 'perhaps' is not of type 'boolean'. The tool asked: confirm."
    )


def test_a_later_fitting_answer_replaces_an_unfitting_one(call: Caller) -> None:
    answers = [{"accept": {"ok": "perhaps"}}, {"accept": {"ok": True}}, {"cancel": True}]
    done = call("confirm", answers=answers)
    assert (done.status, done.value) == (0, ["accept"])
    assert '{"ok": "perhaps"} does not fit' in done.shown
    assert 'No question used the answer {"cancel":true}. The tool asked: confirm.' in done.shown
