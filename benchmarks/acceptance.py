"""What the test of a model costs when it is loaded: python -m benchmarks.acceptance [MODEL ...]

A row per model: processor seconds of loading it, of the trainer's ways to score two turns (padded
rows alone, then packed rows too), of trying its export, and of the engine's answers after the first
push. The last column is what a run with padded rows pays (padded, export, engine) in units of load.
The default is the embedded model, two random ones, and one of them with a sliding window.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import MistralConfig, MistralForCausalLM

from benchmarks.common import SHAPES, Stopwatch, save_model
from common.cli import Parser
from ppo.engines.checked import check_first_push
from ppo.engines.lockstep import TransformersEngine
from ppo.engines.measured import MeasuredEngine
from ppo.model.acceptance import accept
from ppo.model.decoder import Compute
from ppo.model.make import build
from ppo.model.pretrained import load_lm, silence
from ppo.model.reloaded import try_export
from recipes import TINY

PROMPT, RESPONSE = 1024, 32  # tokens
WINDOW = 512
PARTS = ["load", "padded", "packed", "export", "engine"]
ALWAYS = ["padded", "export", "engine"]


def main() -> None:
    parser = Parser("benchmarks.acceptance", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="directories; default: see above")
    models = parser.parse_args().models
    silence()
    print(f"{'model':24s} {'parameters':>10s}", *(f"{part:>7s}" for part in PARTS), "  ratio")
    with TemporaryDirectory() as folder:
        for name, path in [(x, x) for x in models] or made(Path(folder)):
            parameters, seconds = cost(str(path))
            shown = (f"{seconds[part]:7.2f}" for part in PARTS)
            ratio = sum(seconds[part] for part in ALWAYS) / seconds["load"]
            print(f"{name:24s} {parameters / 1e6:8.1f} M", *shown, f"{ratio:7.1f}", flush=True)


def made(folder: Path) -> list[tuple[str, Path]]:
    """Return (name, directory) of the models that are tried by default."""
    for shape in ("small", "medium"):
        save_model(shape, folder / shape)
    save_model("small", folder / "window")  # for its tokenizer; the model is replaced
    config = MistralConfig(**SHAPES["small"], sliding_window=WINDOW, eos_token_id=2)
    MistralForCausalLM(config).save_pretrained(folder / "window")
    names = ["small", "medium", "window"]
    return [("embedded", TINY), *((f"random, {name}", folder / name) for name in names)]


@torch.no_grad()
def cost(path: str) -> tuple[int, dict[str, float]]:
    """Return the number of parameters, and the processor seconds of each of PARTS."""
    tokens, took = PROMPT + RESPONSE, {part: Stopwatch() for part in PARTS}
    with took["load"]:
        lm, tokenizer, ends = load_lm(path, "cpu", tokens)
    with took["padded"]:
        accept(lm, Compute(), tokens=tokens)
    with took["packed"]:
        accept(lm, Compute(), packed=True, tokens=tokens)
    actor_critic = build(lm, 1, tokens=tokens)
    with took["export"]:
        try_export(actor_critic, path)
    engine = MeasuredEngine(TransformersEngine(tokenizer, ends, RESPONSE, 1.0, max_num_seqs=2))
    engine.push_weights(actor_critic)
    with took["engine"]:
        check_first_push(engine, actor_critic, PROMPT)
    parameters = sum(p.numel() for p in lm.parameters())
    return parameters, {part: watch.processor_seconds for part, watch in took.items()}


if __name__ == "__main__":
    main()
