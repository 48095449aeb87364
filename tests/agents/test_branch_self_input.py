"""The input that models send to ``branch_self``, and how it is read."""

import pytest

from anabranch import ToolError
from anabranch.agents._branch_self_input import read_prompts

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
    "prose after a bracket": ("[urgent] compare both", ["[urgent] compare both"]),
    "a quoted text in brackets": ('["a" or "b"] is the question', ['["a" or "b"] is the question']),
    "a list within": ([" a "], ["a"]),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_are_read_in_every_form_that_models_send(name: str) -> None:
    given, meant = PROMPTS[name]
    assert list(read_prompts({"prompts": given}, 50).prompts) == meant


def test_words_are_read_as_booleans_and_recombiners_in_any_case() -> None:
    given = {
        "prompts": "['a']",
        "allow_work": "True",
        "parallel": "False",
        "recombine": " LLM_Vote",
    }
    meant = read_prompts(given, 50)
    assert (meant.allow_work, meant.parallel, meant.recombine) == (True, False, "llm_vote")


def test_the_defaults_are_one_reply_each_in_parallel_without_recombination() -> None:
    meant = read_prompts({"prompts": ["a"]}, 50)
    assert (meant.allow_work, meant.parallel, meant.recombine) == (False, True, "none")


@pytest.mark.parametrize(
    "prompts",
    [[], "", "  ", "[]", ["a", " "], None, 7, [1], [["a"]], "['don't', 'do']", {"a": "b"}],
)
def test_input_without_prompts_is_refused(prompts: object) -> None:
    with pytest.raises(ToolError, match=r"^branch_self was not run: prompts.*Call it like this"):
        read_prompts({"prompts": prompts}, 50)


@pytest.mark.parametrize(
    ("given", "problem"), [({"recombine": "mix"}, "'llm_vote'"), ({"paralel": True}, "paralel")]
)
def test_another_recombiner_or_name_is_refused(given: dict[str, object], problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        read_prompts({"prompts": ["a"], **given}, 50)


@pytest.mark.parametrize(
    "prompts",
    ['["a", "b"', "['a', 'b", '["a', '["a", "b",', '  [ "a", "b" ', "('a', 'b'", '["a", "b]'],
)
def test_a_list_that_is_not_closed_is_refused(prompts: str) -> None:
    with pytest.raises(ToolError, match="check its quotes and its end"):
        read_prompts({"prompts": prompts}, 50)


def test_the_maximum_number_of_prompts_is_accepted() -> None:
    assert len(read_prompts({"prompts": ["a"] * 3}, 3).prompts) == 3
    with pytest.raises(ToolError, match="4 prompts are too many, the limit is 3"):
        read_prompts({"prompts": ["a"] * 4}, 3)
