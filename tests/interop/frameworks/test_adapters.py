"""Tools in agents of other projects: real packages, scripted models, each round in a new process."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.interop.frameworks.matrix import FRAMEWORKS, LINES, PAGE, frameworks_of, page_with_table

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
YEAR = 1_800_000_000.0
DAY = 86_400.0


class Driver:
    """A process in the environment of a framework, which runs each script in a new child."""

    def __init__(self, framework: str) -> None:
        python = Path(f"{sys.prefix}-adapter-{framework}", "bin", "python")
        if not python.exists():
            raise FileNotFoundError(f"There is no {python}: `make interop-frameworks` makes it.")
        reads, writes = os.pipe()
        paths = {"PYTHONPATH": f"{ROOT / 'src'}:{HERE}", "REPORTS": str(writes)}
        self._process = subprocess.Popen(
            [python, HERE / f"drive_{framework.replace('-', '_')}.py"],
            stdin=subprocess.PIPE,
            encoding="utf-8",
            pass_fds=[writes],
            env={**os.environ, **paths},
        )
        os.close(writes)
        self._reports = os.fdopen(reads, encoding="utf-8")

    def play(self, script: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(script)}\n")
        self._process.stdin.flush()
        report: dict[str, Any] = json.loads(self._reports.readline() or '{"failed": true}')
        assert "failed" not in report, "the driver has failed; its stderr says why"
        return report

    def stop(self) -> None:
        self._reports.close()
        self._process.communicate()


@dataclass
class Agent:
    """An agent whose model calls some tools at the same time; every :meth:`go` is another process."""

    driver: Driver
    folder: Path
    store: str | None = None
    sampler: bool = False
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    begun: int = 0

    def begin(self, *names: str, **given: Any) -> dict[str, Any]:
        """Let the model call the tools ``names``; each tool that takes a city gets a different one."""
        cities = ("Rome", "Graz", "Oslo")
        self.begun += 1
        self.calls = [
            {"name": name, "arguments": {"city": city} if name in {"book", "plan"} else {}}
            for name, city in zip(names, cities, strict=False)
        ]
        return self.go(None, **given)

    def go(
        self,
        snapshot: object,
        answers: Mapping[str, Any] | None = None,
        *,
        now: float | None = None,
        principal: str = "ann",
        version: str = "1",
        raises: str | None = "",
    ) -> dict[str, Any]:
        """Run the agent in a new process; it ``raises`` an error with this text, or any if ``None``."""
        script = {
            "calls": self.calls,
            "snapshot": snapshot,
            "answers": answers or {},
            "store": self.store,
            "sampler": self.sampler,
            "now": now,
            "folder": str(self.folder),
            "conversation": f"conversation {self.begun}",
            "principal": principal,
            "version": version,
        }
        report = self.driver.play(script)
        if raises is not None:
            assert bool(raises) == ("raised" in report)
            assert raises in report.get("raised", "")
        return report

    @property
    def effects(self) -> list[str]:
        written = self.folder / "effects"
        return written.read_text().splitlines() if written.exists() else []


class Drivers:
    """The drivers that tests have started so far."""

    def __init__(self) -> None:
        self.started: dict[str, Driver] = {}

    def of(self, framework: str) -> Driver:
        if framework not in self.started:
            self.started[framework] = Driver(framework)
        return self.started[framework]


@pytest.fixture(scope="session")
def drivers() -> Iterator[Drivers]:
    drivers = Drivers()
    yield drivers
    for driver in drivers.started.values():
        driver.stop()


@pytest.fixture
def agent(framework: str, tmp_path: Path, drivers: Drivers) -> Agent:
    return Agent(drivers.of(framework), tmp_path)


def works(line: str) -> pytest.MarkDecorator:
    """Run the test with every framework for which the table has a yes."""
    return pytest.mark.parametrize("framework", frameworks_of(line))


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


DECLINE, CANCEL = {"action": "decline"}, {"action": "cancel"}


def open_ids(report: Mapping[str, Any], call: str = "call-0") -> list[str]:
    return [question["id"] for question in report["asked"].get(call, {}).get("questions", ())]


@works("questions")
def test_questions(agent: Agent) -> None:
    first = agent.begin("book")
    (question,) = first["asked"]["call-0"]["questions"]
    assert question["message"] == "How long in Rome?"
    assert question["requested_schema"]["properties"]["nights"]["maximum"] == 30
    second = agent.go(first["snapshot"], {"call-0": {"book/stay.1": accept(nights=2)}})
    assert open_ids(second) == ["book/guest.1"]
    last = agent.go(second["snapshot"], {"call-0": {"book/guest.1": accept(name="Ann")}})
    assert last["results"] == {"call-0": "2 nights in Rome for Ann"}
    assert agent.effects == ["search Rome", "book Rome"]


@works("at_once")
def test_at_once(agent: Agent) -> None:
    first = agent.begin("plan", "plan", "book")
    both = ["plan/stay.1", "plan/guest.1"]
    assert [open_ids(first, call) for call in ("call-0", "call-1")] == [both, both]
    assert open_ids(first, "call-2") == ["book/stay.1"]
    stay, guest = accept(nights=2), accept(name="Ann")
    answers: dict[str, Any] = {
        "call-0": {"plan/stay.1": stay, "plan/guest.1": guest},
        "call-1": {"plan/stay.1": DECLINE, "plan/guest.1": CANCEL},
        "call-2": {"book/stay.1": DECLINE},
    }
    last = agent.go(first["snapshot"], answers)
    results = last["results"]
    assert json.loads(results["call-0"]) == {"stay": "accept", "guest": "accept"}
    assert json.loads(results["call-1"]) == {"stay": "decline", "guest": "cancel"}
    assert results["call-2"] == "stay: decline"
    assert sorted(agent.effects) == sorted(
        ["plan Rome", "planned Rome", "plan Graz", "planned Graz", "search Oslo"]
    )


@works("in_part")
def test_in_part(agent: Agent) -> None:
    first = agent.begin("plan", "plan")
    some: dict[str, Any] = {"call-0": {"plan/guest.1": accept(name="Ann")}}
    second = agent.go(first["snapshot"], some)
    assert open_ids(second) == ["plan/stay.1"]
    assert open_ids(second, "call-1") == ["plan/stay.1", "plan/guest.1"]
    rest: dict[str, Any] = {
        "call-0": {"plan/stay.1": accept(nights=1)},
        "call-1": {"plan/stay.1": DECLINE, "plan/guest.1": DECLINE},
    }
    last = agent.go(second["snapshot"], rest)
    assert last["results"].keys() == {"call-0", "call-1"}
    assert sorted(agent.effects) == sorted(
        ["plan Rome", "plan Graz", "planned Rome", "planned Graz"]
    )


@works("declined")
@pytest.mark.parametrize("answer", [DECLINE, CANCEL])
def test_declined(agent: Agent, answer: dict[str, Any]) -> None:
    first = agent.begin("book")
    last = agent.go(first["snapshot"], {"call-0": {"book/stay.1": answer}})
    assert last["results"] == {"call-0": f"stay: {answer['action']}"}


@works("invalid")
def test_invalid(agent: Agent) -> None:
    first = agent.begin("plan")
    guest = accept(name="Ann")
    wrong = {"plan/stay.1": accept(nights=99), "plan/guest.1": guest}
    again = agent.go(first["snapshot"], {"call-0": wrong})
    assert "nights: 99 is greater than the maximum of 30" in again["asked"]["call-0"]["problem"]
    assert open_ids(again) == ["plan/stay.1", "plan/guest.1"]
    assert agent.effects == ["plan Rome"]
    right = {"plan/stay.1": accept(nights=9), "plan/guest.1": guest}
    last = agent.go(again["snapshot"], {"call-0": right})
    assert json.loads(last["results"]["call-0"]) == {"stay": "accept", "guest": "accept"}


@works("links")
def test_links(agent: Agent) -> None:
    first = agent.begin("pay")
    (question,) = first["asked"]["call-0"]["questions"]
    assert (question["kind"], question["url"]) == ("url", "https://pay.example/1")
    last = agent.go(first["snapshot"], {"call-0": {question["id"]: {"action": "accept"}}})
    assert last["results"] == {"call-0": "accept"}


@works("sleeps")
def test_sleeps(agent: Agent) -> None:
    first = agent.begin("nap", now=YEAR)
    asleep = first["asked"]["call-0"]
    assert (asleep["questions"], asleep["until"]) == ([], YEAR + DAY)
    early = agent.go(first["snapshot"], now=YEAR + 1)
    assert early["asked"]["call-0"]["until"] == YEAR + DAY
    last = agent.go(early["snapshot"], now=YEAR + DAY)
    assert last["results"] == {"call-0": "awake"}


@works("model")
def test_model(agent: Agent) -> None:
    tip(agent)


@works("sampler")
def test_sampler(agent: Agent) -> None:
    agent.sampler = True
    tip(agent)


def tip(agent: Agent) -> None:
    first = agent.begin("tip")
    (question,) = first["asked"]["call-0"]["questions"]
    assert question["message"] == "Take one. Who?"
    last = agent.go(first["snapshot"], {"call-0": {"tip/guest.1": DECLINE}})
    assert last["results"] == {"call-0": "Take one. decline"}


@works("notices")
def test_notices(agent: Agent) -> None:
    first = agent.begin("book")
    assert first["notices"] == ["searched"]
    second = agent.go(first["snapshot"], {"call-0": {"book/stay.1": accept(nights=2)}})
    assert second["notices"] == []


@works("refusals")
def test_refusals(agent: Agent) -> None:
    last = agent.begin("closed")
    assert "We are closed." in last["results"]["call-0"]


@works("failing")
def test_failing(agent: Agent) -> None:
    first = agent.begin("fail")
    last = agent.go(first["snapshot"], {"call-0": {"fail/guest.1": DECLINE}})
    assert re.search(r"Error executing tool fail \(error \w{8}\)", last["results"]["call-0"])
    assert agent.effects == ["hold", "undo hold"]


@works("once")
def test_once(agent: Agent) -> None:
    agent.begin("fail_at_once", raises=None)
    assert agent.effects == ["charge", "undo charge"]


@works("kept")
def test_kept(agent: Agent) -> None:
    first = agent.begin("plan", "lock", "plan")
    both = {"plan/stay.1": DECLINE, "plan/guest.1": DECLINE}
    answers: dict[str, Any] = {"call-0": both, "call-1": {"lock/guest.1": DECLINE}, "call-2": both}
    second = agent.go(first["snapshot"], answers, raises="It is locked.")
    last = agent.go(second["snapshot"], {"call-1": {"lock/guest.1": DECLINE}})
    assert last["results"]["call-1"] == "unlocked"
    assert json.loads(last["results"]["call-2"]) == {"stay": "decline", "guest": "decline"}
    planned = ["plan Rome", "plan Oslo", "planned Rome", "planned Oslo"]
    assert sorted(agent.effects) == sorted([*planned, "locked"])


@works("caller")
def test_caller(agent: Agent) -> None:
    first = agent.begin("book")
    answers = {"call-0": {"book/stay.1": DECLINE}}
    other = agent.go(first["snapshot"], answers, principal="bob", raises="InvalidTokenError")
    mine = agent.go(other["snapshot"], answers)
    assert mine["results"] == {"call-0": "stay: decline"}


@works("sealed")
def test_sealed(agent: Agent) -> None:
    first = agent.begin("summarise")
    last = agent.go(first["snapshot"], {"call-0": {"summarise/guest.1": DECLINE}})
    begins = last["results"]["call-0"].partition(" ")[0]
    assert len(begins) == 20
    assert "state" not in first["asked"]["call-0"]
    assert begins not in json.dumps(first)


@works("stored")
def test_stored(agent: Agent) -> None:
    agent.store = f"sqlite:///{agent.folder}/calls.db"
    first = agent.begin("book")
    one = {"call-0": {"book/stay.1": accept(nights=2)}}
    two = {"call-0": {"book/guest.1": accept(name="Ann")}}
    agent.go(first["snapshot"], one)
    second = agent.go(first["snapshot"], one)
    assert open_ids(second) == ["book/guest.1"]
    for _ in range(2):
        last = agent.go(second["snapshot"], two)
        assert last["results"] == {"call-0": "2 nights in Rome for Ann"}
    assert agent.effects == ["search Rome", "book Rome"]


@works("version")
def test_version(agent: Agent) -> None:
    agent.store = f"sqlite:///{agent.folder}/calls.db"
    first = agent.begin("greet")
    answers = {"call-0": {"greet/guest.1": DECLINE}}
    other = agent.go(first["snapshot"], answers, version="2", raises="OtherVersionError")
    mine = agent.go(other["snapshot"], answers)
    assert mine["results"] == {"call-0": "hello, decline"}


@works("large")
def test_large(agent: Agent) -> None:
    agent.store = f"sqlite:///{agent.folder}/calls.db"
    small, large = agent.begin("pay"), agent.begin("summarise")
    added = len(json.dumps(large["snapshot"])) - len(json.dumps(small["snapshot"]))
    assert added < 10_000
    last = agent.go(large["snapshot"], {"call-0": {"summarise/guest.1": DECLINE}})
    assert "49980 more, decline" in last["results"]["call-0"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_page_has_an_example_that_runs(framework: str, drivers: Drivers) -> None:
    page = PAGE.with_name("in-other-agents.md").read_text(encoding="utf-8")
    tool = page.partition("```python\n")[2].partition("```")[0]
    example = page.partition(f'```text title="{framework}"\n')[2].partition("```")[0]
    assert "as_tool(book_hotel, rounds)" in example
    calls = [{"name": "book_hotel", "arguments": {"city": "Rome"}}]
    assert drivers.of(framework).play({"page": f"{tool}\n{example}", "calls": calls}) == {}


def test_the_chat_model_of_langchain_receives_the_samples_of_the_tool(drivers: Drivers) -> None:
    example = (HERE / "drive_chat_model.py").read_text(encoding="utf-8")
    assert drivers.of("langchain").play({"page": example, "calls": []}) == {}


def test_the_message_of_adk_is_returned_until_the_session_has_it(drivers: Drivers) -> None:
    example = (HERE / "drive_lost_message.py").read_text(encoding="utf-8")
    calls: list[dict[str, Any]] = [{"name": "pay", "arguments": {}}] * 2
    assert drivers.of("google-adk").play({"page": example, "calls": calls}) == {}


def test_the_first_round_of_a_call_that_a_middleware_repeats_runs_once(drivers: Drivers) -> None:
    example = (HERE / "drive_repeated_call.py").read_text(encoding="utf-8")
    calls = [{"name": "book", "arguments": {"city": "Rome"}}]
    assert drivers.of("agent-framework").play({"page": example, "calls": calls}) == {}


def test_the_page_has_this_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_with_table()


def test_every_line_of_the_table_has_its_test() -> None:
    tests: Sequence[str] = [name for name in globals() if name.startswith("test_")]
    others = {name for name in tests if name.startswith(("test_the_", "test_every_"))}
    assert {f"test_{line}" for line in LINES} == {*tests} - others
