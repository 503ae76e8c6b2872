"""The paper's path: docs/fork.md lists the files that the method needs, and they stay few."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MINIMAL = "examples/minimal.py"
ROWS = re.findall(r"^\| `([\w/]+\.py)` \| (.*) \|$", (ROOT / "docs" / "fork.md").read_text(), re.M)
PATH = [file for file, _ in ROWS]
FILES, LINES = 28, 3300  # never raised: what is beyond the paper gets a room of its own
# Runs a program as if it had been typed, and prints the files that it has loaded.
LOADED = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print(*{getattr(module, "__file__", None) for module in list(sys.modules.values())}, sep="\\n")
"""


def test_each_file_has_one_sentence():
    assert len(PATH) == len(set(PATH)) <= FILES
    for file, sentence in ROWS:
        assert sentence[0].isupper() and sentence.endswith("."), file
        assert sentence.count(". ") == 0, file


def test_the_path_keeps_its_bound_of_lines():
    assert sum(len((ROOT / file).read_text().splitlines()) for file in PATH) <= LINES


def test_the_minimal_run_loads_the_path_and_nothing_else():
    small = ["--num-updates", "1", "--n-env", "4", "--w-epoch", "1", "--minibatch", "8"]
    command = [sys.executable, "-c", LOADED, MINIMAL, *small]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    files = [(ROOT / line).resolve() for line in run.stdout.splitlines() if line.endswith(".py")]
    ours = [p for p in files if p.is_relative_to(ROOT) and p.is_file() and ".venv" not in p.parts]
    loaded = {path.relative_to(ROOT).as_posix() for path in ours if path.stat().st_size}
    assert loaded | {MINIMAL} == set(PATH)


def test_make_lines_prints_the_path_and_everything():
    printed = subprocess.run(["make", "-s", "lines"], cwd=ROOT, capture_output=True, text=True)
    *files, path, everything = (line.split() for line in printed.stdout.splitlines())
    there = [file for file in PATH if (ROOT / file).exists()]
    assert [file for _, file in files] == there
    counts = {file: len((ROOT / file).read_text().splitlines()) for file in there}
    assert {file: int(count) for count, file in files} == counts
    assert path[:2] == [str(sum(counts.values())), "lines"] and str(len(there)) in path
    assert int(everything[0]) > int(path[0])
