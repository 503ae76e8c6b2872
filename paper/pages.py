"""Writes pages: the program's part anew, and the part of people as it is."""

import os
from pathlib import Path

FINDINGS = "## Findings\n"


def write_page(path: Path, *parts: str) -> None:
    """Write the parts that are not empty, with a blank line between them.

    A page may end with a section `FINDINGS`, which people write into it: what the runs show and
    what they do not prove. It stays, whenever the rest is written anew. Two processes may write a
    page at a time: one of the two is left, whole.
    """
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    _, heading, findings = page.rstrip().partition(FINDINGS)
    text = "\n\n".join(part for part in (*parts, heading + findings) if part)
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text(text + "\n", encoding="utf-8")
    aside.replace(path)
