"""The pages of docs/: their links lead somewhere, and what they list is what there is."""

import re
from pathlib import Path

import pytest

from envs import ENVS, load

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), ROOT / "benchmarks" / "RESULTS.md"]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The names that headings get, on GitHub and in the site."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    plain = [re.sub(r"[^\w\s-]", "", head).strip().lower() for head in heads]
    return {re.sub(r"\s", "-", head) for head in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for link in LINK.findall(text):
        if re.match("https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_fits_the_site(page):
    text = page.read_text()
    code = "\n".join([*text.split("```")[1::2], *re.findall("^    .*", text, re.M)])
    longest = max(code.splitlines(), key=len, default="")
    assert len(longest) <= 108, longest  # docs/site.css says so


def test_the_page_of_environments_has_all_names():
    page = (DOCS / "environments.md").read_text()
    names = set(re.findall(r"`([\w-]*\w)`", page))
    goals = re.findall(r"^\| `((?:two_room|goto|make)[\w-]+)` \|", page, re.M)
    endings = re.findall(r"^\| `(-[\w-]+)` \|", page, re.M)
    names |= {f"baba-{goal}{ending}" for goal in goals for ending in ["", *endings]}
    for key, path in ENVS.items():
        tasks = load(path).tasks
        assert {f"{key}-{task}" for task in tasks} or {key} <= names, key
        if tasks:
            listed = {name for name in names if name.startswith(f"{key}-")}
            assert listed == {f"{key}-{task}" for task in tasks}


def test_the_page_of_environments_names_their_limits():
    page = (DOCS / "environments.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| [^|]* \| ([\d,]+) \|", page, re.M)
    assert len(rows) == 11
    for name, limit in rows:
        key, _, task = name.partition("-") if name not in ENVS else (name, "", "")
        environment = load(ENVS[key])
        made = environment(*[task] * bool(task)) if name != "gsm8k" else environment
        given = getattr(made, "max_turns", None) or made.max_episode_steps
        assert given == int(limit.replace(",", "")), name


def test_the_tour_names_existing_code():
    page = re.sub(r"\s+", " ", (DOCS / "tour.md").read_text())
    named = re.findall(r"`(\w+)` in `([\w/]+\.py)`", page)
    assert len(named) > 30
    for name, file in named:
        text = (ROOT / file).read_text()
        assert re.search(rf"^ *(?:def|class) {name}\b", text, re.M), f"{name} in {file}"
    for file in re.findall(r"`((?:tests|ppo|envs|memory|storage)/[\w/]+\.py)`", page):
        assert (ROOT / file).exists(), file


def test_the_navigation_of_the_site_has_every_page():
    nav = (ROOT / "mkdocs.yml").read_text().partition("nav:")[2].partition("hooks:")[0]
    named = set(re.findall(r"([\w/-]+\.md)$", nav, re.M))
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert named - {"index.md", "timings.md"} == pages  # these two are made of other files
