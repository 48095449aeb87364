"""What models hand to ``branch_self``, and how it is understood."""

import pytest

from anabranch import ToolError
from anabranch.agents._branch_self_input import read_input

PROMPTS = {
    "a list": (["a", "b"], ["a", "b"]),
    "JSON": ('["a, b", "c"]', ["a, b", "c"]),
    "Python": ("['a', 'b']", ["a", "b"]),
    "a tuple": ("('a', 'b')", ["a", "b"]),
    "with space around": ("\n ['a', 'b']\n", ["a", "b"]),
    "prose with commas": ("Analyze data, then plot it", ["Analyze data, then plot it"]),
    "prose in brackets": ("[Carefully] do it, please [now]", ["[Carefully] do it, please [now]"]),
    "a number": ("42", ["42"]),
    "a quoted text": ('"do it"', ['"do it"']),
    "code": ("{'a': 1}", ["{'a': 1}"]),
    "a call": ("__import__('os').getcwd()", ["__import__('os').getcwd()"]),
    "deep brackets": ("[" * 5000, ["[" * 5000]),
    "a list within": ([" a "], ["a"]),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_are_understood_as_they_are_meant(name: str) -> None:
    given, meant = PROMPTS[name]
    assert list(read_input({"prompts": given}, 50).prompts) == meant


def test_words_stand_for_truth_values_and_recombiners_in_any_case() -> None:
    given = {
        "prompts": "['a']",
        "allow_work": "True",
        "parallel": "False",
        "recombine": " LLM_Vote",
    }
    meant = read_input(given, 50)
    assert (meant.allow_work, meant.parallel, meant.recombine) == (True, False, "llm_vote")


def test_left_out_it_is_one_reply_each_in_parallel_and_not_recombined() -> None:
    meant = read_input({"prompts": ["a"]}, 50)
    assert (meant.allow_work, meant.parallel, meant.recombine) == (False, True, "none")


@pytest.mark.parametrize(
    "prompts", [[], "", "  ", "[]", ["a", ""], None, 7, [["a"]], "['don't', 'do']", {"a": "b"}]
)
def test_what_cannot_be_understood_is_refused(prompts: object) -> None:
    with pytest.raises(ToolError, match=r"^branch_self was not run: prompts.*Call it like this"):
        read_input({"prompts": prompts}, 50)


def test_as_many_prompts_as_allowed_are_not_too_many() -> None:
    assert len(read_input({"prompts": ["a"] * 3}, 3).prompts) == 3
    with pytest.raises(ToolError, match="4 prompts are too many, the limit is 3"):
        read_input({"prompts": ["a"] * 4}, 3)
