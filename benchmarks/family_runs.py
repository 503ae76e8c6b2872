"""Two updates of main.py for each family of models: python -m benchmarks.family_runs [FAMILY ...]

A run has a tiny random model, a critic, and the transformers engine or vLLM. What became of each is
written to family_runs.json, from which `benchmarks.families` makes two columns of its table.
"""

import io
import json
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import packages_distributions, version
from pathlib import Path

import torch
import transformers

from benchmarks.common import VOCABULARY
from benchmarks.families import FAMILIES, RUNS, SIZES
from common.cli import Parser
from main import program
from ppo.model.pretrained import silence
from recipes import TINY

ENGINES = ["transformers", "vllm"]
# Those of the embedded model's tokenizer and of the smallest heads that vLLM has on a CPU.
OF_RUNS = dict(
    vocab_size=VOCABULARY, hidden_size=64, head_dim=32, max_position_embeddings=4096, eos_token_id=2
)
# Where a family has them; a chunk is a whole number of the blocks that vLLM caches.
MORE = dict(global_head_dim=32, vocab_size_per_layer_input=VOCABULARY, attention_chunk_size=32)
FLAGS = [
    "--env-name=toy", "--n-env=2", "--e-len=4", "--num-updates=2", "--w-epoch=1", "--minibatch=8",
    "--eval-interval=0", "--prompt-limit=256", "--response-limit=8",
]  # fmt: skip


def main() -> None:
    parser = Parser("benchmarks.family_runs", description=__doc__.splitlines()[0])
    names = [name for name, *_ in FAMILIES]
    parser.add_argument("families", nargs="*", help=f"default: all ({', '.join(names)})")
    asked = parser.parse_args().families or names
    if unknown := set(asked) - set(names):
        parser.error(f"unknown family {', '.join(sorted(unknown))}; choices: {', '.join(names)}")
    for name, config, model, more in FAMILIES:
        if name in asked:
            with tempfile.TemporaryDirectory() as folder:
                write_model(Path(folder) / "model", config, model, more)
                found = {engine: try_run(Path(folder), engine) for engine in ENGINES}
            record(name, found)
            print(name, found, flush=True)


def write_model(folder: Path, config: str, model: str, more: dict) -> None:
    """Write a family's tiny random model, with the tokenizer of the embedded model."""
    shutil.copytree(TINY, folder, ignore=shutil.ignore_patterns("*.safetensors", "*config.json"))
    shutil.copy(TINY / "tokenizer_config.json", folder)
    sizes = OF_RUNS | {name: size for name, size in MORE.items() if name in more}
    silence()
    torch.manual_seed(0)
    settings = getattr(transformers, f"{config}Config")(**SIZES | more | sizes)
    getattr(transformers, f"{model}ForCausalLM")(settings).save_pretrained(folder)


def try_run(folder: Path, engine: str) -> dict:
    """Return the largest gap of a run's log-probs to the engine's, or why there is no run."""
    run, said = folder / engine, io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    flags = [f"--model={folder / 'model'}", f"--engine={engine}", f"--run-dir={run}", *FLAGS]
    with redirect_stdout(said), redirect_stderr(said):
        code = program(flags)
    if code:
        said.seek(0)
        return {"reason": said.read().strip().splitlines()[-1].removeprefix("main.py: error: ")}
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    gaps = [line["engine/logp_gap_mean"] for line in lines if "engine/logp_gap_mean" in line]
    return {"updates": len(gaps), "gap": float(f"{max(gaps):.1e}")}


def record(name: str, found: dict) -> None:
    """Replace what RUNS has of a family."""
    runs = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    names = packages_distributions()  # vLLM's is another one on a CPU
    versions = {each: version(names[each][0]) for each in ("torch", "transformers", "vllm")}
    runs[name] = found | {"versions": versions}
    RUNS.write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
