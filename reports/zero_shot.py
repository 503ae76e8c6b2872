"""The zero-shot check of `--eval-only`: how a model behaves before training.

The evaluation adds every turn to a `Transcript`, and `write_check` writes zero_shot.json and
zero_shot.md. Three measures of diversity compare thoughts as lower-case words. They use at most
SAMPLE thoughts, so that evaluations of different sizes are comparable:
    different         distinct thoughts / thoughts
    distinct-2        distinct pairs of neighbouring words / such pairs (Li et al. 2016)
    self-similarity   |A & B| / |A | B| of two thoughts' sets of words (Jaccard), mean over pairs
"""

import itertools
import json
import random
import re
from pathlib import Path

from common.run_file import rewritten
from reports.dialogue import escape_hidden
from reports.zero_shot_transcript import FAILURE_KINDS, NO_MARKER, Transcript

SAMPLE = 500  # thoughts at most


def diversity(thoughts: list[str]) -> dict[str, float | None]:
    """Return the three measures of the module docstring, None if there is nothing to compare."""
    if len(thoughts) > SAMPLE:
        thoughts = random.Random(0).sample(thoughts, SAMPLE)
    words = [re.findall(r"\w+", thought.lower()) for thought in thoughts]
    bigrams = [pair for thought in words for pair in itertools.pairwise(thought)]
    sets = [frozenset(thought) for thought in words]
    similarities = [len(a & b) / max(1, len(a | b)) for a, b in itertools.combinations(sets, 2)]
    return {
        "different": _share(len(set(map(tuple, words))), len(words)),
        "distinct_2": _share(len(set(bigrams)), len(bigrams)),
        "self_similarity": _share(sum(similarities), len(similarities)),
    }


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def check_figures(transcript: Transcript) -> dict:
    """Return all figures of a transcript. The percentile uses the nearest rank."""
    turns, lengths = len(transcript.lengths), sorted(transcript.lengths)
    if not turns:  # the policy was asked for nothing: all requests were untrained, say
        return {"turns": 0, "episodes": transcript.episodes}
    totals = {"turns": turns, "episodes": transcript.episodes}
    return totals | {
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
                "share": transcript.failures[kind] / max(1, totals[unit]),
                "example": transcript.examples.get(kind),
            }
            for kind, unit in FAILURE_KINDS.items()
            if kind != NO_MARKER or transcript.messages < turns
        },
    }


def write_check(run_dir: Path, transcript: Transcript, title: str) -> str:
    """Write zero_shot.json and zero_shot.md. Returns the summary, without the examples."""
    figures = check_figures(transcript)
    report = json.dumps({"title": title} | figures, indent=1) + "\n"
    with rewritten(run_dir / "zero_shot.json", encoding="utf-8") as file:
        file.write(report)
    summary = check_summary(figures, title)
    text = f"# Zero-shot check\n\n{summary}\n{check_examples(figures)}"
    with rewritten(run_dir / "zero_shot.md", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return f"{summary}\nexamples: {run_dir / 'zero_shot.md'}"


def check_summary(figures: dict, title: str) -> str:
    """Return Markdown that is also readable in a terminal."""
    turns, episodes = figures["turns"], figures["episodes"]
    if not turns:
        return f"{title}: {episodes} episodes, no turn of the policy's\n"
    common = list(figures["actions"].items())[:20]  # free text can have any number of actions
    noun = "messages" if figures["messages"] == 1 else "actions"
    actions = "tool calls per turn" if figures["messages"] == 1 else "executed actions"
    lines = [
        f"{title}: {episodes} episodes, {turns} turns\n",
        f"- valid {noun}: {_number(figures['valid_action'])} of the turns",
        f"- reasoning: {figures['thought_tokens_mean']:.1f} tokens on average, 95th percentile "
        f"{figures['thought_tokens_p95']}",
        f"- diversity of the reasoning ({min(SAMPLE, turns)} thoughts): "
        f"different {_number(figures['different'])}, distinct-2 {_number(figures['distinct_2'])}, "
        f"self-similarity {_number(figures['self_similarity'])}",
        f"- {actions}: " + ", ".join(f"`{_code(a)}` {k:.3f}" for a, k in common),
    ]
    for kind, row in figures["failures"].items():
        share = f"{row['count']} of {figures[row['of']]} {row['of']} ({row['share']:.3f})"
        lines.append(f"- {kind}: {share}")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _code(action: str) -> str:
    return escape_hidden(" ".join(action.split())[:40]).replace("`", "'")


def check_examples(figures: dict) -> str:
    """Return Markdown. Texts are indented, so that nothing in them acts as markup."""
    parts = []
    for kind, row in figures.get("failures", {}).items():
        if example := row["example"]:
            parts.append(f"\n## {kind}\n\nseed {example['seed']}, turn {example['turn']}\n")
            for name in ("observation", "response", "executed", "fault"):
                if example[name]:
                    lines = escape_hidden(example[name]).splitlines()
                    parts.append("\n".join([f"{name}:\n", *(f"    {line}" for line in lines), ""]))
    return "\n".join(parts)
