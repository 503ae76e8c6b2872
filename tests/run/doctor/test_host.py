"""The checks of the machine itself, each fed with the condition that it is to find."""

import locale
import resource
from importlib import metadata

import pytest

from run.doctor import host


def test_this_machine_passes():
    assert host.versions().mark == "pass" and "torch" in host.versions().found
    needed, optional = host.requirements()
    assert any(line.startswith("torch>=") for line in needed)
    assert [line.partition(">")[0] for line in optional] == ["vllm", "deepspeed", "accelerate",
                                                              "peft"]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "words"),
    [("1.9", "torch 1.9 is not >=2.11"), (None, "torch is missing")],
)
def test_versions(version, words, monkeypatch):
    real = metadata.version

    def other(name):
        if not name.startswith("torch"):
            return real(name)
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", other)
    finding = host.versions()
    assert finding.mark == "FAIL" and words in finding.found and "pip install" in finding.remedy


def test_a_compiler_is_needed_on_a_gpu_alone(monkeypatch):
    assert host.compiler(cuda=True).mark == "pass"
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    finding = host.compiler(cuda=True)
    assert finding.mark == "FAIL" and "no C compiler" in finding.found
    assert "--engine transformers" in finding.remedy
    assert host.compiler(cuda=False).mark == "pass"


def test_shared_memory_matters_to_many_ranks(monkeypatch, tmp_path):
    docker = type("Usage", (), {"free": 64 * 2**20})  # 64 MB, as Docker gives it
    monkeypatch.setattr("shutil.disk_usage", lambda path: docker)
    finding = host.shared_memory(str(tmp_path), ranks=2)
    assert (finding.mark, "0.07 GB" in finding.found) == ("FAIL", True)
    assert "--shm-size" in finding.remedy
    assert host.shared_memory(str(tmp_path), ranks=1).mark == "pass"
    assert host.shared_memory("/none", ranks=2).mark == "pass"  # macOS


def test_open_files():
    assert host.open_files(1024).mark == "FAIL" and "ulimit" in host.open_files(1024).remedy
    assert host.open_files(host.OPEN_FILES).mark == "pass"
    assert host.open_files(resource.RLIM_INFINITY).mark == "pass"


def test_a_locale_that_is_not_there_and_one_that_is_not_utf8(monkeypatch):
    before = locale.setlocale(locale.LC_ALL)
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    assert host.encoding().found == "LC_ALL=xx_XX.UTF-8 is not installed here"
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setattr(locale, "getpreferredencoding", lambda do_setlocale: "ANSI_X3.4-1968")
    finding = host.encoding()
    assert (finding.mark, finding.found) == ("FAIL", "ANSI_X3.4-1968")
    locale.setlocale(locale.LC_ALL, before)
