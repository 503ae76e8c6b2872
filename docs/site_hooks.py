"""What the site adds to the pages of docs/: two pages from elsewhere, and links that leave docs/.

A page of docs/ may link to a file of the repository, which the site does not have. Such a link
becomes plain text, except those to the README and to the timings, which are pages of the site.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "benchmarks/RESULTS.md": "timings.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files, config):
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=moved(text, source, page)))
    return files


def on_page_markdown(markdown: str, page, **_) -> str:
    uri = page.file.src_uri
    return markdown if uri in PAGES.values() else moved(markdown, f"docs/{uri}", uri)


def moved(text: str, source: str, page: str) -> str:
    """The text of a file of the repository with its links as they are in the site.

    source: path of the file in the repository; page: path of its page in the site
    """

    def link(found: re.Match) -> str:
        image, words, target, anchor = found[1], found[2], found[3], found[4] or ""
        if re.match("https?:", target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        goal = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else "")
        if not goal:
            return words
        goal = posixpath.relpath(goal, posixpath.dirname(page) or ".")
        return f"{image}[{words}]({goal}{anchor})"

    return LINK.sub(link, text)
