"""Records a run of TRL in the files that main.py writes."""

import json
import time
from collections import deque
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from paper.curves import CURVE_EPISODES

PACKAGES = ("trl", "transformers", "datasets", "torch")


class Record:
    """Writes args.json and metrics.jsonl."""

    def __init__(self, args):
        self.turns, self.updates = 0, 0
        self.successes = deque(maxlen=CURVE_EPISODES)  # of the last episodes
        self.batch = []  # the same of those that ended since the last update
        args.run_dir.mkdir(parents=True)
        self.file = args.run_dir / "metrics.jsonl"
        settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()}
        settings |= {
            "num_turns": args.turns,
            "n_env": args.batch_rows,
            "e_len": 1,
            "versions": {name: version(name) for name in PACKAGES},
        }
        text = json.dumps({"args": settings, "git": None}, indent=2)
        (args.run_dir / "args.json").write_text(text, encoding="utf-8")

    def start(self) -> None:
        self.began, self.processor_time = time.perf_counter(), time.process_time()
        self.collected = 0.0

    def timed(self, play: Callable) -> Callable:
        """Return `play`, whose seconds count as time/collect."""

        def call(*arguments):
            began = time.perf_counter()
            batch = play(*arguments)
            self.collected += time.perf_counter() - began
            return batch

        return call

    def add(self, successes: list[bool], turns: int) -> None:
        """Add the episodes of a batch, and the number of their turns."""
        self.successes.extend(successes)
        self.batch.extend(successes)
        self.turns += turns

    def write(self) -> int:
        """Write the line of an update. Returns the number of turns so far."""
        self.updates += 1
        line = {
            "update": self.updates,
            "turns": self.turns,
            "time/processor": time.process_time() - self.processor_time,
            "time/collect": self.collected,
            "time/total": time.perf_counter() - self.began,
            "rollout/episodes": len(self.successes),
            "rollout/success": sum(self.successes) / len(self.successes),
            "batch/episodes": len(self.batch),
            "batch/success": sum(self.batch) / max(1, len(self.batch)),
        }
        self.batch.clear()
        self.start()
        with self.file.open("a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)
        print("turns {turns:6d}  success {rollout/success:.2f}".format(**line), flush=True)
        return self.turns
