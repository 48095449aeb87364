"""Checks of ``compose.yaml`` and ``Dockerfile`` that need no Docker daemon."""

import json
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk import environment_variables as telemetry
from uvicorn import config

from anabranch import _health
from anabranch.cli._commands import app
from anabranch.cli._endpoint import Endpoint
from anabranch.cli._stores import open_engine
from anabranch.engines import DBOSEngine
from tests.docs.pages import ROOT

yaml: Any = import_module("yaml")
FILE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = FILE["services"]
OURS = {name: each for name, each in SERVICES.items() if each["image"] == "anabranch"}
GIVEN = {"POSTGRES_PASSWORD": "secret", "ANABRANCH_WEB_TOKEN": "token"}


def filled_in(text: str) -> str:
    """Return the value as Compose expands it; a variable may be required."""
    return re.sub(r"\$\{(\w+):\?[^}]*\}", lambda found: GIVEN[found[1]], text)


def environment(service: str) -> dict[str, str]:
    """Return the variables of a service; Compose passes on a variable without a value from its
    environment.
    """
    given = SERVICES[service]["environment"]
    return {name: filled_in(value) for name, value in given.items() if value is not None}


def test_there_are_two_web_processes_and_three_workers() -> None:
    commands = [each["command"].split()[0] for each in OURS.values()]
    assert sorted(commands) == ["web", "web", "worker"]
    assert SERVICES["worker"]["deploy"] == {"replicas": 3}


@pytest.mark.parametrize("service", OURS)
def test_the_command_line_takes_a_service(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(service).items():
        monkeypatch.setenv(name, value)
    words = shlex.split(OURS[service]["command"])
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    given, agent = bound.arguments, bound.arguments["agent"]
    assert isinstance(open_engine(agent.engine, agent.store), DBOSEngine)
    if words[0] == "web":
        assert given["token"] == GIVEN["ANABRANCH_WEB_TOKEN"]
        Endpoint("http", given["host"], given["port"], allowed_host=given["allowed_host"]).check()
    else:
        assert given["grace"] < seconds(OURS[service]["stop_grace_period"])


def seconds(text: str) -> int:
    assert text.endswith("s")
    return int(text[:-1])


@pytest.mark.parametrize("service", OURS)
def test_each_variable_is_known_to_the_services_that_receive_it(service: str) -> None:
    command = app[OURS[service]["command"].split()[0]]
    options = command.assemble_argument_collection()
    known = {name for each in options for name in each.parameter.env_var or ()}
    known |= {"ANTHROPIC_API_KEY", "OPENAI_API_KEY"}  # variables of the providers
    known |= vars(telemetry).keys()
    known |= set(re.findall(r'environ\.get\("(\w+)"', Path(config.__file__).read_text()))
    assert OURS[service]["environment"].keys() <= known


def test_a_secret_has_no_default() -> None:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    for name in GIVEN:
        assert f"${{{name}:?" in text
        assert f"${{{name}}}" not in text


def test_requests_go_to_web_processes_that_are_ready() -> None:
    proxy = FILE["configs"]["proxy"]["content"]
    upstreams = re.findall(r"reverse_proxy (.*) \{", proxy)[0].split()
    ports = {
        name: re.findall(r"--port (\d+)", each["command"])
        for name, each in OURS.items()
        if each["command"].startswith("web")
    }
    assert upstreams == [f"{name}:{port}" for name, [port] in ports.items()]
    assert f"health_uri {_health.READY}\n" in proxy
    for name, [port] in ports.items():
        assert f"http://127.0.0.1:{port}{_health.READY}'" in OURS[name]["healthcheck"]["test"]
        compile(shlex.split(OURS[name]["healthcheck"]["test"])[2], "healthcheck", "exec")


def test_each_awaited_service_has_a_health_check() -> None:
    for each in SERVICES.values():
        for other, state in each.get("depends_on", {}).items():
            assert state == {"condition": "service_healthy"}
            assert "healthcheck" in SERVICES[other]


def test_traces_and_metrics_go_to_the_collector() -> None:
    collector = yaml.safe_load(FILE["configs"]["collector"]["content"])
    endpoint = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    port = endpoint.rpartition(":")[2]
    for each in OURS.values():
        given = each["environment"]
        assert given["OTEL_EXPORTER_OTLP_ENDPOINT"] == f"http://collector:{port}"
        assert given["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"
    for pipeline in collector["service"]["pipelines"].values():
        assert set(pipeline["receivers"]) <= collector["receivers"].keys()
        assert set(pipeline["exporters"]) <= collector["exporters"].keys()


def test_the_image_has_the_extras_that_its_commands_need() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    extras = set(re.findall(r'"anabranch\[([\w,]+)\]"', dockerfile)[0].split(","))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extras <= project["optional-dependencies"].keys()
    assert {"chat", "dbos", "models"} <= extras
    [entry] = re.findall(r"^ENTRYPOINT (.*)$", dockerfile, re.MULTILINE)
    assert json.loads(entry) == ["opentelemetry-instrument", "anabranch"]
    [base] = re.findall(r"^FROM python:([\d.]+)-slim$", dockerfile, re.MULTILINE)
    assert f"Programming Language :: Python :: {base}" in project["classifiers"]


def test_the_files_that_are_copied_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert ignored == ["*", "!Dockerfile", "!dist/*.whl"]
    assert "COPY Dockerfile dis[t]/*.whl /wheels/" in (ROOT / "Dockerfile").read_text("utf-8")
