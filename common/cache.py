"""Where fetched models are kept, and the short names that --model has for them."""

import os
from pathlib import Path

FETCHED = ("smollm2",)  # what `models.fetch` can fetch


def cached(name: str) -> Path:
    """Return the folder of a fetched model, which need not be there yet."""
    home = os.environ.get("TURNWISE_CACHE") or Path.home() / ".cache" / "turnwise"
    return Path(home).expanduser() / name
