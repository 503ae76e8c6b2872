"""Device mistakes, each seeded into one line of the trainer, and a run that should notice them.

    python tests/fake_cuda tests/cuda_mutants.py 3 FOLDER   # trains with the mistake number 3
    python tests/cuda_mutants.py                            # tries all, and prints what is missed

A run fails, too, if its model is trained in padded rows, because packed ones do not agree.
"""

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

BATCH, MINIBATCH, GAE = "storage/batch.py", "storage/minibatch.py", "ppo/advantages/gae.py"
DECODER, LOCKSTEP = "ppo/model/decoder.py", "ppo/engines/lockstep.py"
PACKING = "ppo/model/packing.py"
MISTAKES = [  # a file, what occurs once in it, and what stands there instead
    (MINIBATCH, "(lines, batch_first=True).to(device)", "(lines, batch_first=True)"),
    (MINIBATCH, "(masks, batch_first=True).to(device)", "(masks, batch_first=True)"),
    (MINIBATCH, "tokens.to(device)", "tokens"),
    (MINIBATCH, "repeat_interleave(lengths).to(device)", "repeat_interleave(lengths)"),
    (BATCH, "torch.tensor(lengths, device=self.device)", "torch.tensor(lengths)"),
    (BATCH, "torch.arange(T, device=self.device) < lengths", "torch.arange(T) < lengths"),
    (BATCH, "torch.zeros(E, N, T, device=self.device)", "torch.zeros(E, N, T)"),
    (BATCH, "torch.tensor(rewards, device=self.device)", "torch.tensor(rewards)"),
    (BATCH, "dtype=tensor.dtype, device=tensor.device)", "dtype=tensor.dtype)"),
    (BATCH, "actor_critic.values(micro).float().cpu()", "actor_critic.values(micro).float()"),
    (BATCH, "self.episode_ends.to(self.device)", "self.episode_ends"),
    (BATCH, "self.values[1:, :, 0].cpu()", "self.values[1:, :, 0]"),
    (BATCH, "return next_values.to(self.device)", "return next_values"),
    ("ppo/warmup.py", "batch.values[..., 0].cpu()", "batch.values[..., 0]"),
    ("ppo/warmup.py", "batch.response_mask.any(-1).cpu()", "batch.response_mask.any(-1)"),
    ("run/figures.py", ".to(batch.logps.device)", ""),
    ("run/figures.py", "torch.tensor(flat, device=batch.device)", "torch.tensor(flat)"),
    (GAE, "torch.arange(T, device=values.device)", "torch.arange(T)"),
    (PACKING, "torch.arange(ids.shape[1], device=ids.device)", "torch.arange(ids.shape[1])"),
    (PACKING, "ends.to(torch.int32)", "ends"),
    (PACKING, "int(lengths.max())", "int(lengths.min())"),
    (LOCKSTEP, "for p in prompts]).to(self.lm.device)", "for p in prompts])"),
    (LOCKSTEP, "padding_value=-1).to(device)", "padding_value=-1)"),
    (LOCKSTEP, "dtype=cdf.dtype, device=cdf.device)", "dtype=cdf.dtype)"),
    (DECODER, "torch.arange(ids.shape[1], device=ids.device)", "torch.arange(ids.shape[1])"),
]  # fmt: skip
FLAGS = "--num-updates 1 --w-epoch 2 --w-iter 1 --w-fraction 0.5"


def seed(file: str, old: str, new: str) -> None:
    """Let Python import a file of the project with the mistake."""
    plain = SourceFileLoader.get_code

    def get_code(loader, name):
        if loader.path != str(ROOT / file):
            return plain(loader, name)
        source = Path(loader.path).read_text()
        assert source.count(old) == 1, f"{file} has not exactly one {old!r}"
        return compile(source.replace(old, new), loader.path, "exec")

    SourceFileLoader.get_code = get_code


if __name__ == "__main__" and sys.argv[1:]:
    number, folder = int(sys.argv[1]), Path(sys.argv[2])
    seed(*MISTAKES[number])
    from cuda_runs import refuse_padding, train

    refuse_padding()
    train(folder, FLAGS)
elif __name__ == "__main__":
    for number, (file, old, new) in enumerate(MISTAKES):
        with TemporaryDirectory() as folder:
            program = [ROOT / "tests/fake_cuda", __file__, str(number), folder + "/run"]
            ended = subprocess.run([sys.executable, *program], capture_output=True, text=True)
        result = "caught" if ended.returncode else "MISSED"
        print(f"{number:3} {result} {file}: {new or old}", flush=True)
