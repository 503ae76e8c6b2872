"""What `turnwise doctor` checks of the machine itself, without torch.

Each check takes the number or the name that it judges where a test could not change the machine's.
"""

import locale
import os
import resource
import shutil
import sys
import sysconfig
import tomllib
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from common.plugins import ROOT
from run.doctor.finding import Finding, failed, judged, passed

SHARED_MEMORY = 10**9  # bytes; Docker's default of 64 MB is too little for NCCL
OPEN_FILES = 4096  # of a hard limit that leaves room for agents and workers
INSTALL = "pip install -c constraints-cuda.txt -e .[vllm,ranks] (without a GPU: -cpu.txt)"
OPTIONAL = ("vllm", "ranks", "lora")  # the parts of pyproject.toml that are checked if installed


def versions() -> Finding:
    """Compare the installed packages with what pyproject.toml wants."""
    from packaging.requirements import Requirement

    needed, optional = requirements()
    wrong, shown = [], [f"Python {sys.version.split()[0]}"]
    for text in needed + optional:
        wanted = Requirement(text)
        version = version_of(wanted.name)
        if version is None:
            wrong += [f"{wanted.name} is missing"] * (text in needed)
        elif not wanted.specifier.contains(version, prereleases=True):
            wrong.append(f"{wanted.name} {version} is not {wanted.specifier}")
        elif wanted.name in ("torch", "transformers", "vllm", "deepspeed"):
            shown.append(f"{wanted.name} {version}")
    return judged(not wrong, ", ".join(wrong or shown), INSTALL)


def version_of(package: str) -> str | None:
    """Return the version of a package, or of its build for CPUs, as vLLM has; None: of none"""
    for name in (package, f"{package}-cpu"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def requirements() -> tuple[list[str], list[str]]:
    """Return the lines that are needed, and those of the parts that are OPTIONAL."""
    file = ROOT / "pyproject.toml"
    if file.exists():
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        parts = project["optional-dependencies"]
        return project["dependencies"], [line for part in OPTIONAL for line in parts[part]]
    lines = [line.partition(";") for line in metadata.requires("turnwise-ppo") or []]
    needed = [text for text, _, marker in lines if "extra" not in marker]
    named = [f'"{part}"' for part in OPTIONAL]
    return needed, [text for text, _, mark in lines if any(part in mark for part in named)]


def compiler(cuda: bool) -> Finding:
    """Look for what Triton compiles with. cuda: whether it will: on a CPU nothing needs it"""
    found = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    missing = [] if found and shutil.which(found) else ["no C compiler (CC, gcc or clang)"]
    missing += [] if header.exists() else [f"no {header}"]
    if not missing or not cuda:
        return passed(found if not missing else f"{' and '.join(missing)}; a CPU needs none")
    remedy = "install build-essential and python3-dev, or take --engine transformers"
    return failed(f"{' and '.join(missing)}: vLLM's Triton kernels need both", remedy)


def shared_memory(path: str = "/dev/shm", ranks: int = 1) -> Finding:
    """ranks: on this machine"""
    if not os.path.isdir(path):
        return passed(f"this system has no {path}")
    free = shutil.disk_usage(path).free
    found = f"{free / 1e9:.2f} GB free in {path}"
    remedy = "docker run --shm-size=8g or --ipc=host; else NCCL_SHM_DISABLE=1, or one rank"
    few = "" if ranks > 1 or free >= SHARED_MEMORY else ", enough for one rank"
    return judged(ranks == 1 or free >= SHARED_MEMORY, found + few, remedy)


def open_files(limit: int | None = None) -> Finding:
    """limit: the hard one of this process, if not given"""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if limit is None else limit
    endless = limit == resource.RLIM_INFINITY
    found = "no limit" if endless else f"{limit} open files, the hard limit"
    remedy = "ulimit -Hn 65536 as root (docker run --ulimit nofile=65536), or a smaller --n-env"
    return judged(endless or limit >= OPEN_FILES, found, remedy)


def encoding() -> Finding:
    """Look whether texts can be printed and read as UTF-8."""
    remedy = "export LC_ALL=C.UTF-8, or PYTHONUTF8=1"
    try:
        locale.setlocale(locale.LC_ALL, "")
    except locale.Error:
        set_ones = [name for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)]
        return failed(f"{set_ones[0]}={os.environ[set_ones[0]]} is not installed here", remedy)
    used = {sys.getfilesystemencoding(), locale.getpreferredencoding(do_setlocale=False)}
    wrong = [name for name in used if name.lower().replace("-", "") != "utf8"]
    return judged(not wrong, ", ".join(sorted(wrong)) or "UTF-8", remedy)
