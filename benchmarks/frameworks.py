"""Which agent frameworks train as they are: the table of docs/frameworks.md.

    python -m benchmarks.frameworks                  all of them
    python -m benchmarks.frameworks dspy smolagents  some of them; the others' rows stay
    python -m benchmarks.frameworks --check litellm  is the row still true? The page stays

Each framework is installed into build/frameworks/NAME, which only its own processes see.
There its programs in examples/frameworks/ play an episode with scripted responses, from which the
columns follow, and train the calculator's model for two updates. A framework that cannot be
installed, as without a network, is skipped with a line. Delete a folder to get a newer version.
A check ignores versions, and looks at as many frameworks at a time as there are processors.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from common.plugins import UserError
from common.processors import processors
from reports.evaluations import markdown_table
from reports.program import Program

ROOT = Path(__file__).resolve().parents[1]
PAGE, RESULTS = ROOT / "docs" / "frameworks.md", ROOT / "benchmarks" / "frameworks.json"
FOLDER = ROOT / "build" / "frameworks"
INSTALL_SECONDS, PROBE_SECONDS, TRAIN_SECONDS = 300, 300, 1500
UPDATES = 2
TRAIN = f"""--model models/tiny-calculator --engine transformers --n-env 2 --e-len 2 --w-epoch 0
--num-updates {UPDATES} --minibatch 4 --eval-interval 0 --response-limit 32
--prompt-limit 4096 --env-workers 0,timeout=120"""
VARIANTS = ("streamed", "structured")
WITH_RUN = ["--endpoint-sampling", "run"]
HEAD = ["framework", "program", "how started", "API", "tools", "parallel calls", "stream"]
HEAD += ["structured", "trains"]


@dataclass(frozen=True)
class Framework:
    """A framework. packages: the first one's version is shown

    started: where a program passes the endpoint on
    programs: functions of examples/frameworks/ that train; variants `streamed` and `structured` of
        the same file are only played
    """

    packages: tuple[str, ...]
    module: str
    started: str
    programs: tuple[str, ...] = ("solve",)


FRAMEWORKS = {
    "langchain": Framework(
        (
            "langchain",
            "langchain-openai",
            "langgraph-supervisor",
        ),
        "langchain_agents",
        "ChatOpenAI(base_url=...)",
        ("solve", "supervised"),
    ),
    "openai-agents": Framework(
        ("openai-agents",),
        "openai_agents",
        "AsyncOpenAI(base_url=...)",
        ("solve", "chat"),
    ),
    "anthropic": Framework(
        ("anthropic",),
        "anthropic_sdk",
        "Anthropic(base_url=...)",
    ),
    "pydantic-ai": Framework(
        ("pydantic-ai-slim[openai]",),
        "pydantic_agents",
        "OpenAIProvider(base_url=...)",
    ),
    "llama-index": Framework(
        (
            "llama-index-core",
            "llama-index-llms-openai-like",
        ),
        "llama_index_agent",
        "OpenAILike(api_base=...)",
    ),
    "haystack": Framework(
        ("haystack-ai",),
        "haystack_agent",
        "OpenAIChatGenerator(api_base_url=...)",
    ),
    "smolagents": Framework(
        ("smolagents[openai]",),
        "smol_agent",
        "OpenAIServerModel(api_base=...)",
    ),
    "autogen": Framework(
        (
            "autogen-agentchat",
            "autogen-ext[openai]",
        ),
        "autogen_agent",
        "OpenAIChatCompletionClient(base_url=...)",
    ),
    "crewai": Framework(
        ("crewai",),
        "crewai_crew",
        "LLM(base_url=...)",
    ),
    "dspy": Framework(
        ("dspy",),
        "dspy_agent",
        "dspy.context(lm=LM(api_base=...))",
    ),
    "litellm": Framework(
        ("litellm",),
        "litellm_agent",
        "completion(api_base=...)",
    ),
    "instructor": Framework(
        ("instructor",),
        "instructor_agent",
        "OpenAI(base_url=...)",
    ),
}
ABOUT = """\
# Which frameworks train

`python -m benchmarks.frameworks` makes this page. It installs each framework in a folder of its
own, plays the small programs of `examples/frameworks/` with scripted responses, and trains the
calculator's model with each of them for two updates. [Your own agent](agents.md) explains the
flags. `make frameworks`, which CI runs, installs two of them anew and compares their rows with
these.

"""
NOTES = """
*How started*: where the program passes the endpoint on; "async" programs are coroutines. None keeps
its client in a global setting, so they may share a process. *API*: what the programs asked.
*Tools*: the program ran the policy's calls and came to the right result; "text" means that calls
are part of the text. *Parallel calls*: two calls in one response were both run. *Stream*,
*structured*: a streamed program, and one with a typed answer, came to the right result; "-" where
the folder has no such program. *Trains*: two updates without a fault, where the first minibatch's
probability ratio is exactly 1; a flag in brackets was needed.
"""


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="benchmarks.frameworks", description=__doc__.splitlines()[0])
    program.add_argument("names", metavar="NAME", nargs="*", help="default: all")
    program.add_argument("--check", action="store_true", help="compare the rows, do not write them")
    program.add_argument("--probe", nargs="+", help=argparse.SUPPRESS)  # in its own process
    return program.run(work, argv)


def work(args: argparse.Namespace) -> int | None:
    if args.probe:
        module, *programs = args.probe
        return print(json.dumps({program: probe(module, program) for program in programs}))
    if unknown := set(args.names) - FRAMEWORKS.keys():
        raise UserError(f"{', '.join(sorted(unknown))}: the frameworks are {', '.join(FRAMEWORKS)}")
    if args.check:
        return check(args.names or list(FRAMEWORKS))
    for name in args.names or FRAMEWORKS:
        if rows := rows_of(name, FRAMEWORKS[name]):
            results = {**known(), name: rows}  # another process may have written meanwhile
            RESULTS.write_text(f"{json.dumps(results, indent=1, sort_keys=True)}\n")
            PAGE.write_text(page_of(results))
    chosen = [row for name in args.names or FRAMEWORKS for row in known().get(name, [])]
    return int(any("no:" in cell for row in chosen for cell in row))


def check(names: list[str]) -> int:
    """Print each row that differs from the one on the page; return 1 if there is one."""
    with ThreadPoolExecutor(processors()) as pool:
        found = pool.map(lambda name: rows_of(name, FRAMEWORKS[name]), names)
    return int(any([differs(name, rows) for name, rows in zip(names, found, strict=True)]))


def differs(name: str, rows: list[list[str]]) -> bool:
    """Print the rows of a framework that are not those on the page, whatever their versions."""
    page = [cells for _, *cells in known().get(name, [])]
    new = [row for row in rows if row[1:] not in page]
    for row in new:
        print(f"docs/frameworks.md has another row than: {' | '.join(row)}", flush=True)
    return bool(new)


def known() -> dict[str, list[list[str]]]:
    """Return the rows of each framework so far."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def page_of(results: dict[str, list[list[str]]]) -> str:
    """Return docs/frameworks.md. results: the rows of each framework"""
    rows = [
        [label, program, how_started(FRAMEWORKS[name], program), *cells]
        for name in FRAMEWORKS
        for label, program, *cells in results.get(name, [])
    ]
    return f"{ABOUT}{markdown_table([HEAD, *rows])}\n{NOTES}"


def how_started(framework: Framework, program: str) -> str:
    """Return how a program is run and where it passes the endpoint on. program: as in its row"""
    function = program.strip("`").partition(":")[2]
    asynchronous = f"async def {function}(" in source(framework.module)
    return f"{'async, ' if asynchronous else ''}`{framework.started}`"


def source(module: str) -> str:
    return (ROOT / "examples" / "frameworks" / f"{module}.py").read_text()


def rows_of(name: str, framework: Framework) -> list[list[str]]:
    """Return the rows of a framework; [] if it cannot be installed."""
    folder = FOLDER / name
    if not folder.is_dir() and (problem := install(folder, framework.packages)):
        print(f"{name} is skipped: {problem}", flush=True)
        return []
    [package] = framework.packages[0].partition("[")[:1]
    [version] = {d.version for d in metadata.distributions(name=package, path=[str(folder)])}
    plays = played(folder, framework.module, [*framework.programs, *VARIANTS])
    rows = []
    for program in framework.programs:
        seen = plays[program]
        rows.append([
            f"{name} {version}",
            f"`{framework.module}:{program}`",
            ", ".join(seen.get("paths", [])) or "-",
            seen.get("tools", "no") if "error" not in seen else f"no: {seen['error']}",
            seen.get("parallel", "-"),
            *(verdict(plays.get(kind, {})) for kind in VARIANTS),
            trained(folder, framework.module, program),
        ])  # fmt: skip
        print(" | ".join(rows[-1]), flush=True)
    return rows


def install(folder: Path, packages: tuple[str, ...]) -> str:
    """Install packages into a folder of their own; return why it failed, or ""."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
    try:
        done = finished([*pip, "--target", str(folder), *packages], folder, INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        shutil.rmtree(folder, ignore_errors=True)
        return f"pip needs more than {INSTALL_SECONDS} s"
    if done.returncode == 0:
        return ""
    shutil.rmtree(folder, ignore_errors=True)  # half of it must not be taken for the whole
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or ["pip failed"])[-1]


def finished(words: list[str], folder: Path, seconds: float) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds
    )


def played(folder: Path, module: str, programs: list[str]) -> dict[str, dict]:
    """Return what `probe` finds of those programs that exist, in a process of the framework."""
    programs = [program for program in programs if f"def {program}(" in source(module)]
    words = [sys.executable, "-m", "benchmarks.frameworks", "--probe", module, *programs]
    done = finished(words, folder, PROBE_SECONDS)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        error = (done.stderr.splitlines() or ["no answer"])[-1]
        return {program: {"error": error} for program in programs}
    return json.loads(lines[-1])


def verdict(seen: dict) -> str:
    if not seen:
        return "-"
    if "error" in seen:
        return f"no: {seen['error']}"
    return f"yes ({seen['flag']})" if seen["flag"] else "yes"


def trained(folder: Path, module: str, program: str) -> str:
    """Return whether a run of two updates succeeds: "yes", "yes (a flag)" or "no: why"."""
    why = ""
    for flags in ([], WITH_RUN):
        with tempfile.TemporaryDirectory() as run:
            name = f"agent:examples.frameworks.{module}:{program}"
            words = [sys.executable, "main.py", "--env-name", name, "--run-dir", run]
            done = finished([*words, *TRAIN.split(), *flags], folder, TRAIN_SECONDS)
            if done.returncode == 0 and not (problem := problem_of(Path(run))):
                return f"yes (`{' '.join(flags)}`)" if flags else "yes"
            said = (done.stderr.splitlines() or ["no line"])[-1] if done.returncode else problem
            why = why or said.replace("main.py: error: ", "")
    return f"no: {why:.160}"


def problem_of(run: Path) -> str:
    """Return what is wrong with a finished run, or ""."""
    updates = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    faults = run / "faults.jsonl"
    if faults.exists():
        return json.loads(faults.read_text().splitlines()[0])["error"]
    ratios = [update["ppo/ratio_first_minibatch"] for update in updates]
    exact = len(ratios) == UPDATES and all(abs(ratio - 1) < 1e-6 for ratio in ratios)
    return "" if exact else f"the first probability ratios are {ratios}"


def probe(module: str, program: str) -> dict:
    """Play an episode of a program with the right responses, and say what it asked for."""
    from benchmarks.framework_player import play

    return play(f"agent:examples.frameworks.{module}:{program}")


if __name__ == "__main__":
    sys.exit(main())
