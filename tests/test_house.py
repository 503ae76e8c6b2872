"""The shape of the code that the project promises to its readers: it stays small and plain."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAIN = ast.parse((ROOT / "main.py").read_text())
FUNCTIONS = {node.name: node for node in MAIN.body if isinstance(node, ast.FunctionDef)}
ROOMS = ("arguments", "envs", "memory", "ppo", "storage")


def lines(node: ast.FunctionDef) -> int:
    return node.end_lineno - node.lineno + 1


def test_main_and_collect_fit_on_a_page():
    main = FUNCTIONS["main"]
    assert lines(main) <= 50 and lines(FUNCTIONS["collect"]) <= 30  # never raised
    updates = [n.lineno for n in ast.walk(main) if ast.unparse(n) == "agent.update(batch, plan)"]
    assert updates[0] - main.lineno + 1 <= 60


def test_main_has_few_names():
    names = {n.id for n in ast.walk(FUNCTIONS["main"]) if isinstance(n, ast.Name)
             and isinstance(n.ctx, ast.Store)}  # fmt: skip
    assert len(names) <= 26, sorted(names)
    froms = [node for node in MAIN.body if isinstance(node, ast.ImportFrom)]
    own = [a.name for n in froms if n.module.split(".")[0] in ROOMS for a in n.names]
    assert len(own) <= 26, own


def test_main_is_plain():
    for node in ast.walk(MAIN):
        assert not isinstance(node, ast.Lambda), f"a lambda in line {node.lineno}"
        assert not (isinstance(node, ast.While) and node.orelse), f"while/else: {node.lineno}"
        starred = isinstance(node, ast.Call) and any(isinstance(a, ast.Starred) for a in node.args)
        assert not starred, f"a tuple becomes positional arguments in line {node.lineno}"


def test_the_readme_is_what_a_newcomer_needs_in_the_first_hour():
    readme = (ROOT / "README.md").read_text().splitlines()
    assert len(readme) <= 140 and max(map(len, readme)) <= 100


def test_the_readme_shows_the_loop_as_it_is():
    collect, source = FUNCTIONS["collect"], (ROOT / "main.py").read_text().splitlines()
    shown = "\n".join(source[collect.lineno - 1 : collect.end_lineno])
    assert f"```python\n{shown}\n```" in (ROOT / "README.md").read_text()
