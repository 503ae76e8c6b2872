"""What all pictures share: colours for colour-blind readers, style, and PNG or SVG files.

The SVG follows the reader's colour scheme, dark or light. Only this file imports matplotlib, and
only to draw.
"""

import io

from common.plugins import UserError

# A palette for colour-blind readers, of Okabe and Ito.
GROUP_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B",
                 "#999999")  # fmt: skip
MARKERS = {"■": "", "●": "o", "▲": "^", "◆": "D"}  # change when the colours repeat
INK, SOFT, GRID = "#222222", "#555555", "#e4e4e4"
DARK = {INK: "#e3e7ec", SOFT: "#98a2ae", GRID: "#2d343d"}  # the same in a dark colour scheme
STYLE = {
    "text.parse_math": False,  # names may contain a $
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK,
    "xtick.color": INK, "ytick.color": INK, "svg.hashsalt": "the same in every run",
    "axes.titlelocation": "left", "axes.titleweight": "bold",
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": GRID,
    "legend.frameon": False, "legend.fontsize": 9, "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.1, "figure.constrained_layout.h_pad": 0.08,
}  # fmt: skip


def import_figure() -> tuple:
    """Return matplotlib's Figure and rc_context. UserError: it is not installed."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("matplotlib is missing: pip install matplotlib") from error
    return Figure, rc_context


def colour_of(group: int) -> str:
    return GROUP_COLOURS[group % len(GROUP_COLOURS)]


def sign_of(group: int) -> str:
    """Return a key of MARKERS, which distinguishes groups of the same colour."""
    return list(MARKERS)[group // len(GROUP_COLOURS) % len(MARKERS)]


def png_of(figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def svg_of(figure) -> bytes:
    """Return an SVG whose neutral colours follow the reader's colour scheme."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text, names = file.getvalue(), {INK: "--ink", SOFT: "--soft", GRID: "--grid"}
    for colour, name in names.items():
        text = text.replace(colour, f"var({name})")
    light = "".join(f"{name}:{colour};" for colour, name in names.items())
    dark = "".join(f"{name}:{DARK[colour]};" for colour, name in names.items())
    dark = f"@media (prefers-color-scheme:dark){{svg{{{dark}}}}}"
    style = f"<style>svg{{{light}}}{dark}</style>"
    return text.replace("<defs>", f"{style}<defs>", 1).encode("utf-8", "replace")
