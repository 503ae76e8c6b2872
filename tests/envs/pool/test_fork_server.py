"""Workers of agents are forked from a process that has imported their program."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from own_files import work_in

from envs import make_env

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has the fork server")
PROGRAM = """
import os, sys, threading
import numpy as np
from agent_programs import say
IMPORTED_BY = os.getpid()
{more}
def solve(seed, **to):
    late = 'zipapp' in sys.modules
    seen = IMPORTED_BY, os.getpid(), np.random.random(), os.environ.get('PYTHONPATH'), late
    say(to, ' '.join(map(str, seen)))
    import zipapp
    return 1.0
"""
PATH = [str(Path(__file__).parents[3]), str(Path(__file__).parents[2])]
PLAYED = """
import sys
sys.path[:0] = {path!r}
from functools import partial
from envs import make_env
from envs.pool.resilient import ResilientPool
pool = ResilientPool(partial(make_env, "agent:my_program:solve"), [[0], [2]], workers=2)
print("|".join(first.text for first in pool.reset()), flush=True)
{then}
pool.close()
"""


def run(tmp_path, more="", then="", **options):
    (tmp_path / "my_program.py").write_text(PROGRAM.format(more=more))
    script = PLAYED.format(path=[*PATH, str(tmp_path)], then=then)
    return subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True, **options
    )


def seen(line: str) -> list[list[str]]:
    """For each worker: who imported the program, its own pid, a random number, PYTHONPATH, and
    whether a module that the program imports after its first response was there before."""
    return [text.split() for text in line.strip().split("|")]


def test_a_program_is_imported_once_for_all_workers(tmp_path):
    process = run(tmp_path)
    output, _ = process.communicate(timeout=120)
    [one, two] = seen(output)
    assert process.returncode == 0
    assert one[0] == two[0] not in (one[1], two[1], str(process.pid))
    assert one[1] != two[1] and one[2] != two[2]  # each has a random state of its own
    assert one[3] == two[3] == str(os.environ.get("PYTHONPATH"))
    assert one[4] == two[4] == "True"


def test_a_program_that_starts_threads_is_not_forked(tmp_path):
    thread = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    output, _ = run(tmp_path, more=thread).communicate(timeout=120)
    for imported_by, pid, *_, late in seen(output):
        assert imported_by == pid and late == "False"


def test_workers_die_with_a_run_that_is_killed(tmp_path):
    process = run(tmp_path, then="import time; time.sleep(100)")
    pids = [int(worker[1]) for worker in seen(process.stdout.readline())]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_program_that_ends_the_server_is_told_in_one_line(tmp_path):
    process = run(tmp_path, more="os._exit(3)", stderr=subprocess.PIPE)
    error = process.communicate(timeout=120)[1].splitlines()[-1]
    line = "envs.errors.EnvError: agent:my_program:solve: the process that imported it died"
    assert error == line


def test_a_worker_that_dies_is_replaced(pool, tmp_path, monkeypatch):
    program = "def solve(seed, **to):\n    say(to, 'hello')\n    os._exit(7)\n"
    (tmp_path / "my_dying.py").write_text(f"import os\nfrom agent_programs import say\n{program}")
    work_in(tmp_path, monkeypatch)
    envs = pool(partial(make_env, "agent:my_dying:solve"), [[2, 4]], workers=1)
    envs.reset()
    envs.send(0, "go on")
    while not (answers := envs.poll()):
        pass
    [(_, step)] = answers
    assert "its worker died with exit code 7" in step.fault and step.first.text == "hello"
