"""One validated model of settings: from code, YAML and the environment."""

import sys
from pathlib import Path

import pytest

from anabranch.folding import FoldingSettings

SEED = """
context_folding:
  default_budget: 8192
  max_budget: 32768
  max_depth: 3
  default_timeout_seconds: 300
  max_timeout_seconds: 600
  injection_budget_ratio: 0.2  # 20% of branch budget
  memory_min_confidence: 0.7
  memory_max_items: 10
"""


def test_the_defaults_are_those_of_the_file() -> None:
    assert FoldingSettings.read(SEED) == FoldingSettings()
    assert FoldingSettings.read("") == FoldingSettings.read("context_folding:") == FoldingSettings()


def test_json_is_read_and_yaml_is_not_without_its_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert FoldingSettings.read('{"context_folding": {"max_depth": 5}}').max_depth == 5
    assert FoldingSettings.from_environment({}) == FoldingSettings()
    with pytest.raises(ValueError, match=r"settings in YAML needs .*'yaml'.*\[folding\]"):
        FoldingSettings.read(SEED)


def test_a_file_and_the_environment_change_settings() -> None:
    assert FoldingSettings.read("context_folding: {max_depth: 5}").max_depth == 5
    given = {"ANABRANCH_FOLDING_MAX_DEPTH": "5", "ANABRANCH_FOLDING_MAX_BUDGET": "", "PATH": "/"}
    assert FoldingSettings.from_environment(given) == FoldingSettings(max_depth=5)


def test_variables_override_the_values_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "folding.yaml"
    file.write_text("context_folding: {max_depth: 5, max_budget: 9000}")
    given = {"ANABRANCH_FOLDING_FILE": str(file), "ANABRANCH_FOLDING_MAX_DEPTH": "4"}
    assert FoldingSettings.from_environment(given) == FoldingSettings(max_depth=4, max_budget=9000)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("context_folding: {max_dept: 5}", "max_dept of context folding"),
        (
            "context_folding: {max_depth: 0}",
            "max_depth of context folding: Input should be greater",
        ),
        ("context_folding: {max_budget: 10}", "default_budget is larger than max_budget"),
        ("context_folding: [1]", "need one section, context_folding:"),
        ("folding: {}", "need one section, context_folding:"),
        ("- 1", "need one section, context_folding:"),
        ("a: [", "are not YAML"),
    ],
)
def test_a_wrong_setting_is_named(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        FoldingSettings.read(text)


def test_a_variable_that_no_setting_has_is_refused() -> None:
    with pytest.raises(ValueError, match="max_dept of context folding"):
        FoldingSettings.from_environment({"ANABRANCH_FOLDING_MAX_DEPT": "5"})
