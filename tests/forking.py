"""A server that starts processes which have the libraries imported already: `python forking.py FD`.

A new interpreter needs seconds to import torch and transformers. This server imports them once. It
has one thread and forks for each command that `real_runs.Forked` sends. The forked process has a
session, a directory, an environment and an output of its own, and imports the modules of this
project itself, as a new interpreter would.

It inherits from the server only the settings that the interpreter and the libraries read at their
start, for example the locale. With FAKE_CUDA_DEVICES=2 the processes have two GPUs (`fake_cuda`).
"""

import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

LIBRARIES = [
    "torch",
    "torch.distributed",
    "torch.utils.tensorboard",
    "deepspeed",
    "transformers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen2.modeling_qwen2",
    "gymnasium",
    "minigrid",
    "crafter",
]


def serve(control: socket.socket) -> dict:
    """Fork for each request. Only the forked processes return, with their request.

    Each is the child of another fork, which waits for its end and reports the exit code.
    """
    while True:
        message, descriptors, *_ = socket.recv_fds(control, 2**20, 3)
        with suppress(ChildProcessError):  # there may be no child
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not message:  # the tests have ended
            os._exit(0)
        if os.fork() == 0:
            control.close()
            status, *output = descriptors
            if (child := os.fork()) == 0:
                os.close(status)
                return json.loads(message) | {"output": output}
            for descriptor in output:
                os.close(descriptor)
            os.write(status, f"{child}\n".encode())
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os.write(status, f"{ended}\n".encode())
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def become(command: list[str], folder: str, environment: dict[str, str], output: list[int]) -> None:
    """Run `-m module words`, `-c code words` or `script.py words` as `python` does, after an
    optional `-u`."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number in (signal.SIGHUP, signal.SIGTERM):  # nohup may ignore them for the tests
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(output, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    buffered = command[0] != "-u"
    command = command if buffered else command[1:]
    sys.stdout, sys.stderr = stream(sys.stdout, buffered), stream(sys.stderr, False)
    how, *words = command
    sys.argv = words if how == "-m" else ["-c", *words[1:]] if how == "-c" else command
    sys.path[0] = folder if how in ("-m", "-c") else str(Path(how).resolve().parent)
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    if how == "-m":
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        exec(words[0], {"__name__": "__main__"})
    else:
        runpy.run_path(how, run_name="__main__")


def stream(was: io.TextIOWrapper, buffered: bool) -> io.TextIOWrapper:
    """Return a new standard stream for the file that its descriptor refers to now."""
    raw = open(was.fileno(), "wb", buffering=-1 if buffered else 0, closefd=False)
    return io.TextIOWrapper(raw, was.encoding, was.errors, write_through=not buffered)


if __name__ == "__main__":
    if "FAKE_CUDA_DEVICES" in os.environ:
        importlib.import_module("fake_cuda.runtime")  # before torch
    for library in LIBRARIES:
        importlib.import_module(library)
    assert len(os.listdir("/proc/self/task")) == 1  # other threads would not survive a fork
    gc.freeze()  # a collection in a forked process would copy the memory pages of these modules
    become(**serve(socket.socket(fileno=int(sys.argv[1]))))
