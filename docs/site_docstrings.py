"""Docstrings of this project in the site.

Lines like "n_env: environments in parallel" become a list, and formulas, which are indented, stay
as they are. The comment behind an attribute becomes its docstring.
"""

import re

import griffe

FIELD = re.compile(r"^((?:\w+)(?:, \w+)*): (\S.*)$")


class Fields(griffe.Extension):
    def on_object(self, *, obj, **_) -> None:
        if obj.docstring:
            obj.docstring.value = listed(obj.docstring.value)

    def on_attribute(self, *, attr, **_) -> None:
        if attr.docstring is None and attr.lineno:
            line = attr.filepath.read_text(encoding="utf-8").splitlines()[attr.lineno - 1]
            _, there, comment = line.partition("  # ")
            if there:
                attr.docstring = griffe.Docstring(comment, parent=attr)


def listed(text: str) -> str:
    """The docstring with a list item for each argument, attribute and error."""
    lines, inside = [], False
    for line in text.splitlines():
        field = FIELD.match(line)
        if field:
            lines += [""] * (not inside) + [f"- **{field[1]}**: {field[2]}"]
        elif inside and line.startswith("    "):
            lines.append(line.strip())
        else:
            lines.append(line)
        inside = bool(field) or inside and line.startswith("    ")
        if not inside and lines and line and len(lines) > 1 and lines[-2].startswith("- **"):
            lines.insert(-1, "")
    return "\n".join(lines)
