"""page: a figure -> what a page takes: a PNG, or SVG in the page's theme. Next: ../display.py, ../explorers/base.py."""
import base64
import html
import io
import re

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .look import DARK, LIGHT, as_svg
from .roofline import COLORS

# What a style can change in a drawing of `svg`: letters, lines and paper, not the colours of boxes. Light -> dark.
INKS = dict(zip(LIGHT[:4], DARK[:4], strict=True)) | {"#000000": DARK.strong} | dict(COLORS.values())
INK = re.compile(f"(?<=[:( ])({'|'.join(INKS)})\\b", re.IGNORECASE)
DARK_PAGE = ('[data-jp-theme-light="false"] .pallas-lite-card, .vscode-dark .pallas-lite-card {'
             + ";".join(f"--pallas-lite-{light[1:].lower()}: {dark}" for light, dark in INKS.items()) + "}")


def png(figure: Figure, name: str = "") -> str:
    """A figure as a PNG in base 64, sharp on screens with small pixels too. `name` goes into its first bytes."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=144, metadata={"Software": f"pallas_lite {name}".strip()})
    return base64.b64encode(out.getvalue()).decode()


def svg(ax: Axes, label: str = "timeline of a pipeline") -> str:
    """The figure of `ax` as SVG text, to put into HTML, on a card: in a dark theme with `DARK_PAGE` its ink is light.

    It shrinks with its column. `label` says in words what it shows, for screen readers.
    """
    out, figure = io.StringIO(), ax.get_figure(root=True)
    assert figure, "it is part of one"
    # Text as text: half the time, half the bytes; and not with ten names of fonts each.
    with matplotlib.rc_context({"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans", "Verdana"]}):
        token = as_svg.set(True)
        try:
            figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        finally:
            as_svg.reset(token)
    text = out.getvalue()
    # matplotlib's style sheet would reach the whole page: it becomes the drawing's own.
    text = re.sub(r"<style.*?</style>", "", text[text.index("<svg"):], count=1, flags=re.DOTALL)
    style = "max-width:100%;height:auto;stroke-linejoin:round;stroke-linecap:butt;fill: #000000"
    text = text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label, quote=True)}" style="{style}" ', 1)
    text = INK.sub(lambda colour: f"var(--pallas-lite-{colour[0][1:].lower()}, {colour[0]})", text)
    return f'<div class="pallas-lite-card" style="border-radius:6px;max-width:100%">{text}</div>'
