"""The zero-shot check of `--eval-only`: what a model says before it is trained.

The evaluation panel adds every turn to a `Transcript`; `write_check` turns it into zero_shot.json
and zero_shot.md. Three figures measure how diverse the reasoning is. They compare thoughts as
lower-case words, SAMPLE of them, so that panels of different sizes can be compared:
    different         distinct thoughts / thoughts
    distinct-2        distinct pairs of neighbouring words / such pairs (Li et al. 2016)
    self-similarity   |A & B| / |A | B| of two thoughts' sets of words (Jaccard), mean over pairs

Where there are tools or users, the actions are the names of the tools that were called, and what
stands before the first call is the reasoning.
"""

import itertools
import json
import random
import re
from collections import Counter
from pathlib import Path

from reports.dialogue import escape_hidden
from reports.exchange import call_text, calls_of

SAMPLE = 500  # thoughts at most
REPEATS = 3  # turns in a row with the same action and the same observation
MOST = 400  # characters of a text in an example
NO_CALL = "message without a call"
UNREADABLE = "message that could not be read"
NO_MARKER = "no ACTION marker"
KINDS = {
    NO_MARKER: "turns",
    "invalid action": "turns",
    "response cut by the limit": "turns",
    "history dropped from the prompt": "turns",
    f"same action, same observation, {REPEATS} times or more": "turns",
    "time limit reached": "episodes",
    "terminated without success": "episodes",
    "environment failed": "episodes",
}


class Transcript:
    """Gathers reasoning and action of every turn, and an example of each kind of failure."""

    def __init__(self):
        self.thoughts: list[str] = []
        self.lengths: list[int] = []  # tokens of reasoning, per turn
        self.actions = Counter()  # executed ones, or names of tools; several calls of a turn count
        self.messages = 0  # turns whose response is a chat message, which needs no ACTION marker
        self.failures = Counter()
        self.examples: dict[str, dict] = {}
        self.valid = self.episodes = 0
        # environment -> what its next turn sees, its last action, turns in a row like the last
        self.before: dict[int, tuple[str, str, int]] = {}

    def add(self, n: int, response, step) -> None:
        """A turn of environment n: the engine's Response and the environment's Step."""
        saw, action, streak = self.before.get(n, ("", "", 0))
        same = (saw, action) == (step.observation.text, step.action)
        streak = streak + 1 if same else 1
        following = step.first if step.done else step.observation
        following = following.text if following is not None else ""
        self.before[n] = (following, step.action, 0 if step.done else streak)
        self.thoughts.append(reasoning_of(response.text, step.action_at))
        self.lengths.append(response.action_token(step.action_at))
        self.valid += step.valid
        self.episodes += step.done
        self.actions.update([] if step.fault else actions_of(step))
        self.messages += step.reply is not None or bool(step.fault)  # a fault has no reply
        for kind in failures_of(response, step, streak):
            self.failures[kind] += 1
            if not self.examples.get(kind, {}).get("saw"):  # an example that lacks it is replaced
                self.examples[kind] = {
                    "seed": step.seed,
                    "turn": step.number,
                    "saw": saw[:MOST],
                    "response": response.text[:MOST],
                    "executed": executed(step)[:MOST],
                    "fault": step.fault,
                }


def actions_of(step) -> list[str]:
    """What the model did in a turn: its action, or each tool that it called."""
    if step.reply is None:
        return [step.action]
    names = [call["name"] for call in calls_of(step.reply)]
    return names or [NO_CALL if step.valid else UNREADABLE]


def executed(step) -> str:
    calls = calls_of(step.reply)
    return "\n".join(map(call_text, calls)) if calls else step.action


def reasoning_of(text: str, action_at: int) -> str:
    """What stands before the ACTION marker or the first call, in one line, without the word THINK
    and the tags around a thought."""
    said = re.sub("</?think>", " ", text[:action_at])
    return " ".join(re.sub(r"^\W*think\W*", "", said, flags=re.I).split())


def failures_of(response, step, streak: int) -> list[str]:
    """The KINDS that apply to a turn, or to the episode that ended with it."""
    applies = [
        step.reply is None and step.action_at >= len(response.text),
        not step.valid,
        response.truncated,
        response.prompt.overflow,
        streak >= REPEATS,
        step.truncated and not (step.terminated or step.success or step.fault),
        step.terminated and not step.success,
        bool(step.fault),
    ]
    return list(itertools.compress(KINDS, applies))


def diversity(thoughts: list[str]) -> dict[str, float | None]:
    """The three figures of the module's docstring, None where there is nothing to compare."""
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


def check_figures(transcript: Transcript) -> dict:
    """All figures of a transcript. The percentile is the nearest rank."""
    turns, lengths = len(transcript.lengths), sorted(transcript.lengths)
    of = {"turns": turns, "episodes": transcript.episodes}
    return of | {
        "valid_action": transcript.valid / turns,
        "thought_tokens_mean": sum(lengths) / turns,
        "thought_tokens_p95": lengths[-(-95 * turns // 100) - 1],
        **diversity(transcript.thoughts),
        "actions": {a: k / turns for a, k in transcript.actions.most_common()},
        "messages": transcript.messages / turns,
        "failures": {
            kind: {
                "count": transcript.failures[kind],
                "of": unit,
                "share": transcript.failures[kind] / max(1, of[unit]),
                "example": transcript.examples.get(kind),
            }
            for kind, unit in KINDS.items()
            if kind != NO_MARKER or transcript.messages < turns
        },
    }


def write_check(run_dir: Path, transcript: Transcript, title: str) -> str:
    """Write zero_shot.json and zero_shot.md. Returns the text to print, without the examples."""
    figures = check_figures(transcript)
    report = json.dumps({"title": title} | figures, indent=1) + "\n"
    (run_dir / "zero_shot.json").write_text(report, encoding="utf-8")
    summary = check_summary(figures, title)
    text = f"# Zero-shot check\n\n{summary}\n{check_examples(figures)}"
    (run_dir / "zero_shot.md").write_text(text, encoding="utf-8", errors="replace")
    return f"{summary}\nan example of each: {run_dir / 'zero_shot.md'}"


def check_summary(figures: dict, title: str) -> str:
    """Markdown that reads well in a terminal."""
    turns, episodes = figures["turns"], figures["episodes"]
    form = lambda value: "-" if value is None else f"{value:.3f}"
    code = lambda action: escape_hidden(" ".join(action.split())[:40]).replace("`", "'")
    most = list(figures["actions"].items())[:20]  # free text can have any number of actions
    noun = "messages" if figures["messages"] == 1 else "actions"
    did = "calls of tools, per turn" if figures["messages"] == 1 else "actions that were executed"
    lines = [
        f"{title}: {episodes} episodes, {turns} turns\n",
        f"- valid {noun}: {form(figures['valid_action'])} of the turns",
        f"- reasoning: {figures['thought_tokens_mean']:.1f} tokens on average, 95 % of them at "
        f"most {figures['thought_tokens_p95']}",
        f"- diversity of the reasoning ({min(SAMPLE, turns)} thoughts): "
        f"different {form(figures['different'])}, distinct-2 {form(figures['distinct_2'])}, "
        f"self-similarity {form(figures['self_similarity'])}",
        f"- {did}: " + ", ".join(f"`{code(a)}` {k:.3f}" for a, k in most),
    ]
    for kind, row in figures["failures"].items():
        share = f"{row['count']} of {figures[row['of']]} {row['of']} ({row['share']:.3f})"
        lines.append(f"- {kind}: {share}")
    return "\n".join(lines)


def check_examples(figures: dict) -> str:
    """Markdown. Texts are indented, so that nothing in them acts as markup."""
    parts = []
    for kind, row in figures["failures"].items():
        if example := row["example"]:
            parts.append(f"\n## {kind}\n\nseed {example['seed']}, turn {example['turn']}\n")
            for name in ("saw", "response", "executed", "fault"):
                if example[name]:
                    lines = escape_hidden(example[name]).splitlines()
                    parts.append("\n".join([f"{name}:\n", *(f"    {line}" for line in lines), ""]))
    return "\n".join(parts)
