"""The line about agent programs that failed in a batch, with the most frequent error."""

from collections import Counter


def program_errors_line(batch) -> str:
    """Return the line, or "" if no program failed. batch: a `Batch` that was played"""
    steps = [turn.step for turn in batch.played.values() if turn.step.done]
    texts = [step.observation.text for step in steps if step.metrics.get("program_errors")]
    if not texts:
        return ""
    # The same error has the same place and class; its message may differ.
    kinds = [text.partition("(")[0] for text in texts]
    [(kind, times)] = Counter(kinds).most_common(1)
    failed = f"{len(texts)} of {len(steps)} programs that ended in this batch failed"
    return f"{failed}; {times} times: {texts[kinds.index(kind)]}"
