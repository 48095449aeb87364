"""The protocol's conformance suite against ``examples/conformance.py``.

The suite has a fixed list of scenarios for each revision. Each list is run once here, and each scenario
is a test. No failure is expected. For 2026-07-28 the tests run everything that the revision demands of a
server. For 2025-11-25 only ``resources/subscribe`` is missing, which the SDK's server does not offer.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.interop.processes import EXAMPLES, run_node, serving

SUITE = Path(__file__).parent / "node_modules/@modelcontextprotocol/conformance/dist/index.js"

BOTH = [
    "completion-complete",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "server-sse-multiple-streams",
    "resources-list",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
    "dns-rebinding-protection",
]

MODERN = [
    "server-stateless",
    "http-header-validation",
    "caching",
    "sep-2164-resource-not-found",
    "input-required-result-basic-elicitation",
    "input-required-result-basic-sampling",
    "input-required-result-basic-list-roots",
    "input-required-result-request-state",
    "input-required-result-multiple-input-requests",
    "input-required-result-multi-round",
    "input-required-result-missing-input-response",
    "input-required-result-non-tool-request",
    "input-required-result-result-type",
    "input-required-result-unsupported-methods",
    "input-required-result-tampered-state",
    "input-required-result-capability-check",
    "input-required-result-ignore-extra-params",
    "input-required-result-validate-input",
]

HANDSHAKE = [
    "server-initialize",
    "server-session-lifecycle",
    "ping",
    "logging-set-level",
    "tools-call-with-logging",
    "tools-call-sampling",
    "tools-call-elicitation",
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
]

WARNED = {"input-required-result-ignore-extra-params": ["sep-2322-ignore-unexpected-params"]}
"""A recommendation that is not followed, by scenario; the suite lets it pass with a warning. It
answers a question in its first request, before that was asked, and would like the answer to count.
Here an answer counts for a question that the sealed state says was asked, and for no other."""

Checks = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checks]:
    """Return the checks of every scenario, by revision and scenario."""
    with serving(EXAMPLES / "conformance.py") as url:
        return {
            revision: run_suite(url, revision, tmp_path_factory.mktemp(revision))
            for revision in ("2026-07-28", "2025-11-25")
        }


def run_suite(url: str, revision: str, folder: Path) -> Checks:
    options = ["--url", url, "--requirements", revision, "--output-dir", str(folder)]
    _, out, stderr = run_node(SUITE, "server", *options)
    checks: Checks = {}
    for file in folder.glob("*/checks.json"):
        named = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z", file.parent.name)
        assert named is not None, file
        checks[named[1]] = json.loads(file.read_text(encoding="utf-8"))
    assert checks, out + stderr
    return checks


@pytest.mark.parametrize(
    ("revision", "scenario"),
    [("2026-07-28", name) for name in [*MODERN, *BOTH]]
    + [("2025-11-25", name) for name in [*HANDSHAKE, *BOTH]],
)
def test_a_scenario_passes(results: dict[str, Checks], revision: str, scenario: str) -> None:
    checks = results[revision][scenario]
    by_status: dict[str, list[str]] = {}
    for check in checks:
        by_status.setdefault(check["status"], []).append(check["id"])
    assert by_status.keys() <= {"SUCCESS", "INFO", "SKIPPED", "WARNING"}, checks
    assert by_status["SUCCESS"]
    assert by_status.get("WARNING", []) == WARNED.get(scenario, []), checks


def required(revision: str) -> set[str]:
    """Return the scenarios that the suite's own list demands of a server."""
    lists = SUITE.parents[1] / "requirements" / f"{revision}.yaml"
    _, _, rest = lists.read_text(encoding="utf-8").partition("\nserver:\n")
    entries: list[str] = []
    for line in rest.splitlines():
        if not line.startswith("  - "):
            break
        entries.append(line.removeprefix("  - "))
    return set(entries)


def test_nothing_that_a_revision_demands_is_left_out_unsaid() -> None:
    assert required("2026-07-28") <= {*MODERN, *BOTH}
    assert required("2025-11-25") - {*HANDSHAKE, *BOTH} == {
        "resources-subscribe",
        "resources-unsubscribe",
    }
