"""The error for a missing package names the package and the command that installs it.

The command uses the installer by which anabranch was installed.
"""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from anabranch.errors import MissingExtraError, install_command, needs_extra

FOLDER: dict[str, object] = {"url": "file:///home/me/my%20clone", "dir_info": {"editable": False}}
ARCHIVE: dict[str, object] = {
    "url": "https://example.com/anabranch.tar.gz",
    "archive_info": {"hash": ""},
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the metadata of an imagined installation of anabranch, in place of the real one."""
    info = tmp_path / "anabranch-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: anabranch\nVersion: 1.0\n")
    distribution = metadata.Distribution.at(info)

    def found(name: str) -> metadata.Distribution:
        assert name == "anabranch"
        return distribution

    monkeypatch.setattr(metadata, "distribution", found)
    monkeypatch.setattr(sys, "executable", "/venv/bin/python")
    return info


def test_the_command_uses_pip_when_pip_installed_anabranch(installed: Path) -> None:
    (installed / "INSTALLER").write_text("pip\n")
    assert install_command("chat") == "/venv/bin/python -m pip install 'anabranch[chat]'"


def test_the_command_uses_uv_when_uv_installed_anabranch(installed: Path) -> None:
    (installed / "INSTALLER").write_text("uv\n")
    wanted = "uv pip install --python /venv/bin/python 'anabranch[tui]'"
    assert install_command("tui") == wanted


def test_the_command_names_uv_by_its_path_when_uv_is_not_on_path(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (installed / "INSTALLER").write_text("uv")
    (tmp_path / "uv").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", "")
    assert install_command("tui").startswith(f"{tmp_path}/uv pip install --python {tmp_path}/")


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        pytest.param({**FOLDER, "dir_info": {"editable": True}}, "-e '/home/me/my clone[chat]'",
                     id="editable"),
        pytest.param(FOLDER, "'/home/me/my clone[chat]'", id="folder"),
        pytest.param(ARCHIVE, "'anabranch[chat] @ https://example.com/anabranch.tar.gz'",
                     id="url"),
    ],
)  # fmt: skip
def test_the_command_names_the_origin_when_anabranch_is_not_from_an_index(
    installed: Path, origin: dict[str, object], source: str
) -> None:
    (installed / "direct_url.json").write_text(json.dumps(origin))
    assert install_command("chat") == f"/venv/bin/python -m pip install {source}"


def test_the_command_uses_pip_when_anabranch_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    monkeypatch.setattr(sys, "executable", "/bin/python")
    assert install_command("chat") == "/bin/python -m pip install 'anabranch[chat]'"


def test_a_missing_module_of_ours_is_not_called_an_extra() -> None:
    with pytest.raises(ModuleNotFoundError), needs_extra("chat", "This"):
        raise ModuleNotFoundError(name="anabranch.nothing")
    raised = pytest.raises(MissingExtraError, match=r"This needs the package 'x'.*Install it: ")
    with raised, needs_extra("chat", "This"):
        raise ModuleNotFoundError(name="x")


@pytest.mark.usefixtures("cold")
def test_a_command_without_its_extra_names_the_extra_to_install() -> None:
    """The command runs in a process that cannot import AG-UI, as on a machine without the extra."""
    program = (
        "import sys; sys.modules['ag_ui'] = None\n"
        "from anabranch.cli import main\n"
        "sys.exit(main(['web']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("anabranch: `anabranch web` needs the package 'ag_ui', which")
    assert done.stderr.endswith(f"Install it: {install_command('chat')}\n")
