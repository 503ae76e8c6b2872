"""The zero-shot check: what a model says before it is trained (or after), `--eval-only --report`.

The evaluation panel adds every turn to a `Transcript`; `write_check` makes zero_shot.json and
zero_shot.md of it. The diversity of the reasoning is measured on SAMPLE thoughts, in lower-case
words, so that panels of other sizes compare:
    different         distinct thoughts / thoughts
    distinct-2        distinct pairs of neighbouring words / such pairs (Li et al. 2016)
    self-similarity   |A & B| / |A | B| of two thoughts' sets of words (Jaccard), mean over pairs
"""

import itertools
import json
import random
import re
from collections import Counter
from pathlib import Path

from ppo.reports.dialogue import shown

SAMPLE = 500  # thoughts; all of them where there are fewer
REPEATS = 3  # turns in a row with the same action and the same sight
MOST = 400  # characters of a text in an example
KINDS = {
    "no ACTION marker": "turns",
    "invalid action": "turns",
    "response cut by the limit": "turns",
    "history dropped from the prompt": "turns",
    f"same action, same observation, {REPEATS} times or more": "turns",
    "time limit reached": "episodes",
    "terminated without success": "episodes",
    "environment failed": "episodes",
}


class Transcript:
    """Of every turn its thought, action and kinds of failure; of every kind an example."""

    def __init__(self):
        self.thoughts: list[str] = []
        self.lengths: list[int] = []  # of the reasoning, in tokens
        self.actions = Counter()  # executed
        self.failures = Counter()
        self.examples: dict[str, dict] = {}
        self.valid = self.episodes = 0
        self.saw: dict[int, str] = {}  # environment -> the observation before its next turn
        self.streaks: dict[int, tuple] = {}  # environment -> (action, observation, turns in a row)

    def add(self, n: int, response, step) -> None:
        """A turn of environment n: the engine's Response and the environment's Step."""
        self.thoughts.append(thought(response.text, step.action_at))
        self.lengths.append(response.action_token(step.action_at))
        self.valid += step.valid
        self.episodes += step.done
        if not step.fault:
            self.actions[step.action] += 1
        for kind in failures(response, step, self._streak(n, step)):
            self.failures[kind] += 1
            if not self.examples.get(kind, {}).get("saw"):  # the very first is not known
                self.examples[kind] = self._example(n, response, step)
        following = step.first if step.done else step.observation
        self.saw[n] = following.text if following is not None else ""

    def _streak(self, n: int, step) -> int:
        """Turns in a row, this one included, with its action and what was seen after it."""
        action, text, count = self.streaks.get(n, ("", "", 0))
        same = (action, text) == (step.action, step.observation.text)
        count = count + 1 if same else 1
        self.streaks[n] = (step.action, step.observation.text, 0 if step.done else count)
        return count

    def _example(self, n: int, response, step) -> dict:
        return {
            "seed": step.seed,
            "turn": step.number,
            "saw": self.saw.get(n, "")[:MOST],
            "response": response.text[:MOST],
            "executed": step.action,
            "fault": step.fault,
        }


def thought(text: str, action_at: int) -> str:
    """What is said before the ACTION marker, in one line and without the word THINK."""
    return " ".join(re.sub(r"^\W*think\W*", "", text[:action_at], flags=re.I).split())


def failures(response, step, streak: int) -> list[str]:
    """The KINDS that apply to a turn, or to the episode that ended with it."""
    limit = step.truncated and not (step.terminated or step.success or step.fault)
    applies = [
        step.action_at >= len(response.text),
        not step.valid,
        response.truncated,
        response.prompt.overflow,
        streak >= REPEATS,
        limit,
        step.terminated and not step.success,
        bool(step.fault),
    ]
    return [kind for kind, yes in zip(KINDS, applies, strict=True) if yes]


def diversity(thoughts: list[str]) -> dict[str, float | None]:
    """The three figures of the docstring above; None where there is nothing to compare."""
    if len(thoughts) > SAMPLE:
        thoughts = random.Random(0).sample(thoughts, SAMPLE)
    words = [re.findall(r"\w+", thought.lower()) for thought in thoughts]
    pairs = [pair for said in words for pair in itertools.pairwise(said)]
    sets = [frozenset(said) for said in words]
    alike = [len(a & b) / max(1, len(a | b)) for a, b in itertools.combinations(sets, 2)]
    share = lambda part, whole: part / whole if whole else None
    return {
        "different": share(len(set(map(tuple, words))), len(words)),
        "distinct_2": share(len(set(pairs)), len(pairs)),
        "self_similarity": share(sum(alike), len(alike)),
    }


def check(transcript: Transcript) -> dict:
    """The figures of a transcript, as JSON. The percentile is the nearest rank."""
    turns, lengths = len(transcript.lengths), sorted(transcript.lengths)
    of = {"turns": turns, "episodes": transcript.episodes}
    return of | {
        "valid_action": transcript.valid / turns,
        "thought_tokens_mean": sum(lengths) / turns,
        "thought_tokens_p95": lengths[-(-95 * turns // 100) - 1],
        **diversity(transcript.thoughts),
        "actions": {a: k / turns for a, k in transcript.actions.most_common()},
        "failures": {
            kind: {
                "count": transcript.failures[kind],
                "of": unit,
                "share": transcript.failures[kind] / max(1, of[unit]),
                "example": transcript.examples.get(kind),
            }
            for kind, unit in KINDS.items()
        },
    }


def write_check(run: Path, transcript: Transcript, title: str) -> str:
    """Write zero_shot.json and zero_shot.md; returns the check without its examples."""
    figures = check(transcript)
    (run / "zero_shot.json").write_text(json.dumps({"title": title} | figures, indent=1) + "\n")
    said = summary(figures, title)
    text = f"# Zero-shot check\n\n{said}\n{examples(figures)}"
    (run / "zero_shot.md").write_text(text, errors="replace")
    return f"{said}\nan example of each: {run / 'zero_shot.md'}"


def summary(figures: dict, title: str) -> str:
    """Markdown that reads well in a terminal."""
    form = lambda value: "-" if value is None else f"{value:.3f}"
    most = list(figures["actions"].items())[:20]  # free text has no end of actions
    code = lambda action: f"`{shown(' '.join(action.split())[:40]).replace('`', chr(39))}`"
    actions = ", ".join(f"{code(action)} {k:.3f}" for action, k in most)
    lines = [
        f"{title}: {figures['episodes']} episodes, {figures['turns']} turns\n",
        f"- valid actions: {form(figures['valid_action'])} of the turns",
        f"- reasoning: {figures['thought_tokens_mean']:.1f} tokens on average, 95 % of them at "
        f"most {figures['thought_tokens_p95']}",
        f"- diversity of the reasoning ({min(SAMPLE, figures['turns'])} thoughts): "
        f"different {form(figures['different'])}, distinct-2 {form(figures['distinct_2'])}, "
        f"self-similarity {form(figures['self_similarity'])}",
        f"- actions that were executed: {actions}",
    ]
    lines += [
        f"- {kind}: {row['count']} of {figures[row['of']]} {row['of']} ({row['share']:.3f})"
        for kind, row in figures["failures"].items()
    ]
    return "\n".join(lines)


def examples(figures: dict) -> str:
    """Markdown; texts are indented, so that nothing in them is markup."""
    indented = lambda text: "\n".join(f"    {line}" for line in text.splitlines()) + "\n"
    parts = []
    for kind, row in figures["failures"].items():
        if example := row["example"]:
            parts.append(f"\n## {kind}\n\nseed {example['seed']}, turn {example['turn']}\n")
            for name in ("saw", "response", "executed", "fault"):
                if example[name]:
                    parts.append(f"{name}:\n\n{indented(shown(example[name]))}")
    return "\n".join(parts)
