import subprocess
import sys

import pytest

from anabranch.errors import install_command
from anabranch.models import ModelError, open_model


def test_a_name_without_a_provider_is_unknown() -> None:
    with pytest.raises(ModelError, match=r"Unknown model 'gpt'\. Write provider:model"):
        open_model("gpt")


def test_an_unknown_provider_is_named() -> None:
    with pytest.raises(ModelError, match="nowhere:gpt"):
        open_model("nowhere:gpt")


def test_a_provider_without_a_key_says_which_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    with pytest.raises(ModelError) as raised:
        open_model("anthropic:claude-sonnet-5-5")
    assert str(raised.value) == (
        "Cannot open model 'anthropic:claude-sonnet-5-5': the variable ANTHROPIC_API_KEY is not set."
        " Set ANTHROPIC_API_KEY to your key of the provider."
    )
    with pytest.raises(ModelError, match=r"OPENAI_API_KEY is not set\. Set .* provider\.$"):
        open_model("openai:gpt-5")


def test_a_provider_whose_package_is_missing_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "groq", None)
    with pytest.raises(ModelError, match=r"Cannot open model 'groq:llama'.*install"):
        open_model("groq:llama")


def test_ollama_needs_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_BASE_URL", raising=False)
    assert open_model("ollama:qwen3") is not None


def test_several_names_make_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_BASE_URL", raising=False)
    assert open_model("ollama:qwen3, ollama:llama3") is not None


@pytest.mark.usefixtures("cold")
def test_without_the_extra_the_error_names_the_extra_to_install() -> None:
    """The process cannot import pydantic-ai, as on a machine without the extra."""
    program = (
        "import sys; sys.modules['pydantic_ai'] = None\n"
        "from anabranch.models import ModelError, open_model\n"
        "try: open_model('anthropic:claude')\n"
        "except ModelError as error: print(error)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == (
        "Model 'anthropic:claude' needs the package 'pydantic_ai', which is not installed."
        f" Install it: {install_command('models')}\n"
    )


@pytest.mark.usefixtures("cold")
def test_opening_no_provider_model_imports_no_provider_package() -> None:
    program = (
        "import sys, anabranch.models\n"
        "print([name for name in ('pydantic_ai', 'anthropic', 'openai') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
