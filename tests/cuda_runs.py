"""What `test_cuda.py` runs on a fake GPU, in one process: `cuda_runs.py FOLDER`.

It trains in each setting, into a folder of its name, and writes to attention.pt what attention on a
packed row of the GPU and on padded rows of the CPU returns, with the gradients.
"""

import sys
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from torch.nn.utils.rnn import pad_sequence  # noqa: E402

import main  # noqa: E402
from arguments import get_args  # noqa: E402
from ppo.model import acceptance, packing  # noqa: E402

SMALL = """--env-name babyai-goto --engine transformers --n-env 4 --e-len 2 --minibatch 4
--num-updates 1 --w-epoch 0 --eval-interval 0 --max-episode-steps 4 --response-limit 8"""
SETTINGS = {
    "packed": "--eval-interval 1 --eval-episodes 2 --num-updates 2",
    "float32": "--dtype float32",
    "adapters": "--train lora:2 --gradient-checkpointing",
    "top": "--train top:1 --ppo-epoch 2",
    "merged": "--rows packed+merged --memory full",
    "grpo": "--advantages grpo --group-size 2 --kl-in loss --kl-coef 0.01 --entropy-coef 0.01",
    "padded": "--rows padded --tis-cap 2 --critic-layers 0 --w-epoch 2 --w-iter 1 --w-fraction 0.5",
    "host": "--offload reference --use-proper-time-limits",
    "resumed": "",
}
LENGTHS, SCALE = [4, 1, 7], 0.3  # tokens of the packed turns; factor of Q K^T


def train(folder: Path, flags: str) -> None:
    words = [*SMALL.split(), "--model", str(ROOT / "models/tiny"), *flags.split()]
    main.main(get_args([*words, "--run-dir", str(folder)]))


def refuse_padding() -> None:
    """Let a run fail where it would say that packed rows disagree, and pad."""

    def print_status(line: str) -> None:
        if "padded rows" in line:
            raise SystemExit(line)

    acceptance.print_status = print_status


def packed_attention(heads: dict[str, Tensor], loss: Tensor) -> list[Tensor]:
    """Return the output of `packing.attend` on the GPU and the gradients of its inputs.

    heads: query, key and value of the packed row (1, H, P, D); loss: what multiplies the output
    """
    query, key, value = (t.cuda().requires_grad_() for t in heads.values())
    ends = torch.tensor([0, *accumulate(LENGTHS)], dtype=torch.int32).cuda()
    turns = packing.Turns(ends, max(LENGTHS))
    out, _ = packing.attend(None, query, key, value, turns, scaling=SCALE)
    (out * loss.cuda()).sum().backward()
    return [tensor.detach().cpu() for tensor in (out, query.grad, key.grad, value.grad)]


def padded_attention(heads: dict[str, Tensor], loss: Tensor) -> list[Tensor]:
    """Return the same in fp32 by torch's own attention on a row per turn, padded on the right."""
    query, key, value = (t.float().requires_grad_() for t in heads.values())
    turns = [pad_sequence(t[0].transpose(0, 1).split(LENGTHS), batch_first=True)
             for t in (query, key, value)]  # fmt: skip
    q, k, v = (t.transpose(1, 2) for t in turns)  # (B, H, L, D)
    options = dict(is_causal=True, scale=SCALE, enable_gqa=True)
    rows = scaled_dot_product_attention(q, k, v, **options).transpose(1, 2)
    out = torch.cat([row[:length] for row, length in zip(rows, LENGTHS, strict=True)])[None]
    (out * loss).sum().backward()
    return [tensor.detach() for tensor in (out, query.grad, key.grad, value.grad)]


if __name__ == "__main__":
    refuse_padding()
    out = Path(sys.argv[1])
    for name, flags in SETTINGS.items():
        train(out / name, flags)
    main.main(get_args(["--resume", str(out / "resumed"), "--num-updates", "2"]))
    g = torch.Generator().manual_seed(0)
    shapes = {"query": (1, 4, 12, 8), "key": (1, 2, 12, 8), "value": (1, 2, 12, 8)}
    heads = {k: torch.randn(shape, generator=g).bfloat16() for k, shape in shapes.items()}
    loss = torch.randn(1, 12, 4, 8, generator=g).bfloat16()
    both = packed_attention(heads, loss), padded_attention(heads, loss)
    torch.save(both, out / "attention.pt")
