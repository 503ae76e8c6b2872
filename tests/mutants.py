"""Seeds faults into the files of the method, one at a time, and says which ones the tests miss.

    make mutants                     # all of them
    python tests/mutants.py kl wind  # those whose description has one of these words

A fault is a line of the method with another meaning. Each is put into a copy of the repository and
the tests that should notice it run there. Add a fault here with each new rule of the method.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ORACLE = "tests/test_oracle.py"
LIMIT = 900  # seconds for the tests of one fault


@dataclass(frozen=True)
class Mutant:
    about: str
    file: str
    old: str  # occurs once in the file
    new: str
    tests: str  # what should notice it: words for pytest


GAE, GROUPS, LOSSES = "ppo/advantages/gae.py", "ppo/advantages/groups.py", "ppo/losses.py"
AGENT, BATCH, EPISODES = "ppo/agent.py", "storage/batch.py", "storage/episodes.py"
COLLECTION = "storage/collection.py"
MUTANTS = [
    Mutant("GAE looks ahead with the token discount", GAE,
           "gamma_step * next_values.to", "gamma_token * next_values.to", ORACLE),
    Mutant("the fit of values is not clipped", LOSSES,
           "(values - old_values).clamp(-clip, clip)", "(values - old_values)", ORACLE),
    Mutant("the clip takes the optimistic side", LOSSES,
           "return torch.maximum(plain, limited)", "return torch.minimum(plain, limited)", ORACLE),
    Mutant("first tokens weigh as others", LOSSES,
           "return torch.where(first, weight, mask.to(torch.float32))",
           "return mask.to(torch.float32)", ORACLE),
    Mutant("KL in the loss is a mean per micro-batch", "ppo/terms.py",
           "self.estimate(scores.logps, ref_logps).sum()",
           "self.estimate(scores.logps, ref_logps).mean() * len(batch.rows)", ORACLE),
    Mutant("the ratio has no cap", "ppo/terms.py", "ratio.clamp(max=cap)", "ratio",
           f"{ORACLE} --cases 24"),
    Mutant("the ratio of a turn is a product", "ppo/terms.py",
           "(by_turn.sum(-1) / lengths)", "by_turn.sum(-1)", f"{ORACLE} --cases 24"),
    Mutant("an episode's ratio goes on after its end", "ppo/episode_ratios.py",
           "episode_ends.long().cumsum(0) - episode_ends.long()",
           "episode_ends.long().cumsum(0) * 0", f"{ORACLE} --cases 24"),
    Mutant("an episode's ratio is its square root", "ppo/episode_ratios.py",
           "torch.ones_like(gap)", "2 * torch.ones_like(gap)", f"{ORACLE} --cases 24"),
    Mutant("gains have one bound", "ppo/terms.py", "most=1 + high", "most=1 + low",
           f"{ORACLE} --cases 24"),
    Mutant("k3 without its control variate", "ppo/kl.py",
           "return log_ratio.exp() - 1 - log_ratio", "return log_ratio.exp() - 1", ORACLE),
    Mutant("the KL penalty is a reward", BATCH,
           "self.rewards -= kl.reward_coef", "self.rewards += kl.reward_coef", ORACLE),
    Mutant("rewards stand on the first token", BATCH,
           "self.rewards.scatter_(-1, (lengths - 1).clamp(min=0), rewards)",
           "self.rewards.scatter_(-1, (lengths - 1).clamp(min=0) * 0, rewards)", ORACLE),
    Mutant("V of the next episode follows an end", BATCH,
           "        next_values[self.episode_ends] = 0.0", "        #", ORACLE),
    Mutant("a cut episode is worth nothing", BATCH,
           "            next_values[t, n] = value", "            pass", ORACLE),
    Mutant("denominators are of the micro-batch", AGENT,
           "loss = policy.sum() / n_tokens", "loss = policy.sum() / len(old_logps)", ORACLE),
    Mutant("the entropy bonus is a penalty", AGENT,
           "loss = loss - settings.entropy_coef", "loss = loss + settings.entropy_coef", ORACLE),
    Mutant("temperatures are left out", "ppo/model/decoder.py",
           ".float() / temperature.unsqueeze(-1)", ".float()", ORACLE),
    Mutant("the value loss moves the trunk", "ppo/model/actor_critic.py",
           "hidden.detach()", "hidden", ORACLE),
    Mutant("packed turns count positions on", "ppo/model/packing.py",
           "expand_as(ids)[kept]\n", "expand_as(ids)[kept] * 0\n", f"{ORACLE} --cases 16"),
    Mutant("merged turns need not extend one another", "storage/merged.py",
           "        extends = extends and prompt[:start] == before.prompt\n", "",
           "tests/storage/test_merged.py"),
    Mutant("chains are not rotated", "storage/merged.py",
           "return mixed[start:] + mixed[:start]", "return mixed", "tests/storage/test_merged.py"),
    Mutant("RLOO compares an episode with itself", GROUPS,
           "centred * count / (count - 1).clamp(min=1)", "centred", f"{ORACLE} --cases 16"),
    Mutant("GRPO divides by the population's deviation", GROUPS,
           "(squares / (episodes.count - 1).clamp(min=1)).sqrt()",
           "(squares / episodes.count).sqrt()", f"{ORACLE} --cases 16"),
    Mutant("GiGPO compares a lonely episode with itself", GROUPS,
           "    compared[episodes.of_turns(episodes.count) == 1] = 0.0\n", "",
           "tests/ppo/test_estimators.py"),
    Mutant("a fault leads into the next episode", "ppo/vine.py",
           "ahead = None if turn.step.fault else 0.0", "ahead = ahead if turn.step.fault else 0.0",
           "tests/ppo/test_vine.py"),
    Mutant("episodes that a fault cut are compared", "ppo/advantages/compared.py",
           "-1 - n - N * step.episode if alone else step.seed", "step.seed",
           f"{ORACLE} --cases 16"),
    Mutant("limit prompts of two ranks lose their environment", COLLECTION,
           "((t, first + n), prompt)", "((t, n), prompt)", "tests/storage/test_collection.py"),
    Mutant("kl.update is gone from main", "main.py",
           "            kl.update(batch.mean_kl(), len(batch.rows))\n", "",
           "tests/test_episodes.py -k whole_episodes_and_its_resume"),
    Mutant("a resumed run takes the saved --kl-coef", "ppo/kl.py",
           "        if self.target is not None:  # a constant", "        if True:  # a constant",
           "tests/ppo/test_losses.py"),
    Mutant("the warm-up holds out environments, not groups", "ppo/make.py",
           "together=max(1, group_size)", "together=1", "tests/ppo/test_warmup.py"),
    Mutant("the warm-up trains on what it holds out", "ppo/warmup.py",
           "if not held_out[row % batch.n_env]]", "]", "tests/ppo/test_warmup.py"),
    Mutant("two replacements in a row are the same", "envs/pool/groups.py",
           "self.k += 1", "self.k = 1", "tests/envs/pool/test_groups.py"),
    Mutant("a fault updates the window", "memory/window.py",
           "        if step.fault:\n            return", "        if False:\n            return",
           "tests/memory/test_memory.py"),
    Mutant("a tokenizer may put a blank first", "memory/render.py",
           "return [*before, *new] if same and", "return [*before, *new] if", 
           "tests/memory/test_continued.py"),
    Mutant("rollout/* leaves out the short episodes of a batch", EPISODES,
           "        while sum(map(len, self.batches[1:])) >= WINDOW:\n",
           "        self.batches[-1] = self.batches[-1][-WINDOW:]\n        while False:\n",
           "tests/run/test_figures.py"),
    Mutant("an untrained request is asked for V", "envs/agents/untrained.py",
           "if cut and self.requests[i] else step", "if False else step",
           "tests/envs/agents/test_untrained.py"),
]  # fmt: skip


def survives(mutant: Mutant, copy: Path) -> bool:
    """Whether the tests pass with the fault."""
    path = copy / mutant.file
    source = path.read_text()
    assert source.count(mutant.old) == 1, f"{mutant.file} has not exactly one {mutant.old!r}"
    path.write_text(source.replace(mutant.old, mutant.new))
    words = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests.split(" ")]
    command = [sys.executable, *words]
    # Python takes bytecode for that of a source of equal size and second: faults may agree in both.
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(command, cwd=copy, env=env, capture_output=True, timeout=LIMIT)
        assert ended.returncode in (0, 1), ended.stdout.decode()[-2000:]  # 2 and more: no test ran
        return ended.returncode == 0
    except subprocess.TimeoutExpired:
        return False  # it hangs: somebody would notice
    finally:
        path.write_text(source)


def main(words: list[str]) -> int:
    """Try the chosen faults. Returns the number of survivors."""
    chosen = [m for m in MUTANTS if not words or any(word in m.about for word in words)]
    git = ["git", "ls-files"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True)
    alive = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in listed.stdout.splitlines():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, Path(folder) / name)
        for number, mutant in enumerate(chosen, start=1):
            lives = survives(mutant, Path(folder))
            alive += lives
            word = "SURVIVES" if lives else "found"
            print(f"{number}/{len(chosen)} {word:8}  {mutant.about}", flush=True)
    print(f"{alive} of {len(chosen)} faults survive")
    return alive


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
