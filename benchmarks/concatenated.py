"""What a trainer gets wrong that joins the turns of an agent which rewrites its history.

    python main.py --env-name agent:examples.summarising_agent:solve ... --log-envs 16
    python main.py --eval-only --env-name agent:examples.summarising_agent:solve \\
        --model RUN/model --eval-episodes 64 --log-envs 64 --run-dir EVALUATION
    python -m benchmarks.concatenated RUN EVALUATION

The first table scores the evaluation's guesses twice with the model that made them: behind the
prompt that the program sent, and behind all messages of the episode, one after another. The second
takes the summaries of the training: their advantages as they were, and as they would be if an
episode ended where its history is rewritten.
"""

import math
from pathlib import Path
from statistics import fmean, stdev

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from common.cli import Parser
from common.student import t_quantile
from examples.summarising_agent import SUM_UP
from run.dialogue_log import LoggedEpisode, episodes_of, read_log
from run.earlier import saved_args

START, END = "<|im_start|>", "<|im_end|>\n"  # of a message, in the embedded models' template
SAME = 0.02  # log-probs nearer to the engine's than this are those of the same tokens
CLIP = 0.2  # of PPO's ratio, as main.py's default


def main() -> None:
    parser = Parser("benchmarks.concatenated", description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN", help="a training run")
    parser.add_argument("evaluation", type=Path, metavar="EVALUATION", help="a run of --eval-only")
    parser.add_argument("--updates", type=int, default=10, help="the first ones of RUN that count")
    parser.add_argument("--episodes", type=int, default=64, help="of EVALUATION that count")
    args = parser.parse_args()
    print_ratios(args.evaluation, args.episodes)
    print_advantages(args.run, args.updates)


def print_ratios(evaluation: Path, episodes: int) -> None:
    """Print how far the two log-probs of the guesses differ, before and after the first summary."""
    model = saved_args(evaluation)["model"]
    tokenizer = AutoTokenizer.from_pretrained(model)
    lm = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    rows = {"before the first summary": [], "after it": []}
    unknown = 0
    for episode in episodes_of(read_log(evaluation, evaluation=True))[:episodes]:
        for turn, joined in zip(episode.turns, joined_prompts(episode), strict=True):
            if turn["prompt"].endswith(asked_to_sum_up(turn["prompt"])):
                continue  # it was sampled at another temperature
            ours = logps(lm, tokenizer, turn["prompt"], turn)
            if not ours or gap(ours, turn["logps"]) > SAME:
                unknown += 1
                continue
            theirs = ours if joined == turn["prompt"] else logps(lm, tokenizer, joined, turn)
            name = "before the first summary" if joined == turn["prompt"] else "after it"
            rows[name] += [b - a for a, b in zip(ours, theirs, strict=True)]
    print(f"guesses left out, because their text does not tell their tokens: {unknown}")
    print(
        "| guesses | tokens | mean log ratio | mean absolute one | ratio outside the clip range |"
    )
    print("|---|---|---|---|---|")
    for name, ratios in rows.items():
        outside = fmean(abs(math.exp(min(x, 50)) - 1) > CLIP for x in ratios)
        size = fmean(map(abs, ratios))
        print(f"| {name} | {len(ratios)} | {fmean(ratios):.3f} | {size:.3f} | {outside:.3f} |")


def gap(some: list[float], others: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(some, others, strict=True))


def asked_to_sum_up(prompt: str) -> str:
    """Return how a prompt ends that asks for a summary."""
    return f"{SUM_UP}{END}{prompt[prompt.rindex(START) :]}"


def joined_prompts(episode: LoggedEpisode) -> list[str]:
    """Return for each turn all messages of the episode so far: the real prompt up to the first
    summary, and behind it what it replaced, the summary itself, and the rest of the prompt."""
    joined, before = [], ""  # before: what stands in front of the current history
    for turn in episode.turns:
        prompt = turn["prompt"]
        behind_system = prompt.index(START, len(START))
        joined.append(before + prompt[behind_system:] if before else prompt)
        if prompt.endswith(asked_to_sum_up(prompt)):
            before = joined[-1] + turn["response"].removesuffix(END.strip()) + END
    return joined


@torch.no_grad()
def logps(lm, tokenizer, prompt: str, turn: dict) -> list[float]:
    """Return the log-probs of the response's tokens behind a prompt, [] if they are not known.

    Each token is encoded by itself, as the whole text may have other tokens than were sampled.
    """
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    pieces = [tokenizer(piece, add_special_tokens=False)["input_ids"] for piece in turn["tokens"]]
    if any(len(piece) != 1 for piece in pieces):  # a part of a letter was sampled
        return []
    response = sum(pieces, [])
    logits = lm(torch.tensor([ids + response])).logits[0, len(ids) - 1 : -1]  # (T, V)
    scores = logits.log_softmax(-1)
    return scores[torch.arange(len(response)), torch.tensor(response)].tolist()


def print_advantages(run: Path, updates: int) -> None:
    """Print the mean advantage of summaries that say something and of those that do not."""
    kept, lost = [], []
    for turn in read_log(run):
        if 0 < turn["update"] <= updates and turn["prompt"].endswith(
            asked_to_sum_up(turn["prompt"])
        ):
            tells = any(letter.isdigit() for letter in turn["response"])
            # The reward of a summary is 0, so with no value behind it the advantage is -V.
            (kept if tells else lost).append((turn["advantages"][0], -turn["values"][0]))
    print("| summaries | number | advantage | advantage if the episode ended there |")
    print("|---|---|---|---|")
    for name, pairs in (("with a number", kept), ("without", lost)):
        ours, cut = zip(*pairs, strict=True)
        print(f"| {name} | {len(pairs)} | {mean_text(ours)} | {mean_text(cut)} |")


def mean_text(numbers: tuple[float, ...]) -> str:
    """Return the mean with its 95 % t interval."""
    mean = fmean(numbers)
    half = t_quantile(len(numbers) - 1) * stdev(numbers) / math.sqrt(len(numbers))
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"


if __name__ == "__main__":
    main()
