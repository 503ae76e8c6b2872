"""Compile the fake device of this folder, once for each version of torch and of its own source.

The library lies in build/fake_cuda/ of the checkout. torch is found but not imported: whoever loads
the library must load it before torch is imported.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / "build" / "fake_cuda"
SOURCES = [HERE / "device.cpp", HERE / "operators.cpp"]
FLAGS = ["-std=c++20", "-O1", "-fPIC", "-w"]


def built() -> Path:
    """Return the path of the shared library, which is compiled if it is missing.

    RuntimeError: the compiler's errors
    """
    library = CACHE / f"{fingerprint()}.so"
    if not library.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        folder = CACHE / f"{os.getpid()}"
        folder.mkdir()
        try:
            compile_in(folder).replace(library)
        finally:
            shutil.rmtree(folder)
    return library


def fingerprint() -> str:
    """Return a hash of all that the library depends on."""
    parts = [path.read_bytes() for path in (*SOURCES, Path(__file__))]
    about = f"torch {version('torch')}, {compiler()}"
    return hashlib.sha256(b"".join([*parts, about.encode()])).hexdigest()[:16]


def compiler() -> str | None:
    return shutil.which("g++")


def compile_in(folder: Path) -> Path:
    """Compile the sources side by side in a folder and link them there."""
    torch = Path(find_spec("torch").origin).parent
    (folder / "no_check.h").write_text(
        "".join(f'"{name}",\n' for name in operators_without_check())
    )
    include = [f"-I{folder}", f"-I{torch}/include"]
    objects = [folder / f"{source.stem}.o" for source in SOURCES]
    finish(
        [compiler(), *FLAGS, *include, "-c", source, "-o", made]
        for source, made in zip(SOURCES, objects, strict=True)
    )
    library = folder / "fake_cuda.so"
    torch_libraries = [f"-L{torch}/lib", f"-Wl,-rpath,{torch}/lib", "-ltorch_cpu", "-lc10"]
    finish([[compiler(), "-shared", *objects, "-o", library, *torch_libraries]])
    return library


def finish(commands) -> None:
    """Run commands side by side. RuntimeError: what the first one that failed has printed"""
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    running = [subprocess.Popen([str(part) for part in command], **pipes) for command in commands]
    for process in running:
        said, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{process.args[0]} failed:\n{said[-3000:]}")


def operators_without_check() -> list[str]:
    """Name the operators whose CUDA kernels leave the comparison of devices to TensorIterator."""
    folder = Path(find_spec("torchgen").origin).parent
    text = (folder / "packaged/ATen/native/native_functions.yaml").read_text()
    entries = text.split("- func: ")[1:]
    return [f"aten::{entry.split('(')[0]}" for entry in entries if "device_check: NoCheck" in entry]


if __name__ == "__main__":
    print(built(), file=sys.stderr)
