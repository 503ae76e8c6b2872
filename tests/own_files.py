"""Writes users' files with mistakes in them.

Each case is a class or a function. The line that the message must name ends with the comment
"# here" and the case's name.
"""

import sys
from pathlib import Path

RESET, STEP = "def reset(self, *, seed=None, options=None):", "def step(self, action):"


def method(head: str, *body: str) -> str:
    """Return the code of a method. Its first line is marked, or a line that ends with # here."""
    mark = "" if any("# here" in line for line in body) else "  # here"
    return "\n".join([f"    {head}{mark}", *(f"        {line}" for line in body)])


def reset(answer: str) -> str:
    return method(RESET, f"return {answer}")


def step(answer: str) -> str:
    return method(STEP, f"return {answer}")


def attribute(line: str) -> str:
    """Return the code of a line of a class; `marked` marks the class's first line."""
    return f"    {line}"


def marked(cases: dict[str, tuple[str, str]], head: str) -> str:
    """Return the classes or functions of all cases. head: the format of their first lines"""
    text = ""
    for name, (body, _) in cases.items():
        mark = "" if "# here" in body else f"  # here {name}"
        body = body.replace("# here", f"# here {name}")
        text += f"\n\n{head.format(name)}{mark}\n{body}\n"
    return text


def location(file: str, name: str) -> str:
    """Return "file:line: " of a case's marked line. file: in the working directory"""
    (line,) = [n for n, text in enumerate(open(file), 1) if text.endswith(f"# here {name}\n")]
    return f"{file}:{line}: "


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def work_in(folder: Path, monkeypatch) -> None:
    """Make the folder the working directory, from which modules are imported."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
