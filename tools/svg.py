# SPDX-License-Identifier: GPL-2.0
"""Draws SVG that can be read on light and on dark backgrounds.

Colours are classes. The hues are those of Okabe and Ito, which people tell apart who are blind to
some colours; on a dark background they are lighter.
"""
from html import escape

HUES = {  # class: on light, on dark
    "blue": ("#0072b2", "#56b4e9"), "red": ("#c14f00", "#ff9e5c"),
    "green": ("#00795a", "#3ccfa0"), "purple": ("#a3487e", "#e5a3c8"),
    "yellow": ("#8a6d00", "#e8cf3f"), "grey": ("#767676", "#a2a2a2"),
}


def style(dark):
    text, paper, line, box = (("#dddddd", "#16181c", "#5a5f68", "#23272e") if dark
                              else ("#222222", "#ffffff", "#b4b4b4", "#f2f4f7"))
    out = [f"text {{ fill: {text}; }}", f".paper {{ fill: {paper}; }}",
           f".axis {{ stroke: {line}; fill: none; }}",
           f".grid {{ stroke: {line}; stroke-width: .5; stroke-dasharray: 2 4; fill: none; }}",
           f".box {{ fill: {box}; stroke: {line}; }}",
           f".flow {{ stroke: {text}; fill: none; stroke-width: 1.3; }}",
           f".tip {{ fill: {text}; }}"]
    for name, hues in HUES.items():
        hue = hues[dark]
        out += [f".{name} {{ fill: {hue}; stroke: {hue}; }}",
                f"text.{name} {{ fill: {hue}; stroke: none; }}",
                f".{name}-line {{ stroke: {hue}; fill: none; stroke-width: 1.8; }}",
                f".{name}-hollow {{ stroke: {hue}; fill: {paper}; stroke-width: 1.8; }}"]
    return out


class Svg:
    """A picture; what it has is drawn in the order of the calls."""

    def __init__(self, width, height, title):
        self.width, self.height, self.parts = width, height, []
        self.title = title

    def add(self, tag, cls, text=None, **attributes):
        told = "".join(f' {k.replace("_", "-")}="{escape(self.short(v))}"'
                       for k, v in attributes.items())
        inner = "/>" if text is None else f">{escape(text)}</{tag}>"
        self.parts.append(f'<{tag} class="{cls}"{told}{inner}')

    @staticmethod
    def short(value):
        return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)

    def text(self, x, y, text, cls="", anchor="start", size=13, **more):
        self.add("text", cls, text, x=x, y=y, text_anchor=anchor, font_size=size, **more)

    def line(self, x1, y1, x2, y2, cls="axis", **more):
        self.add("line", cls, x1=x1, y1=y1, x2=x2, y2=y2, **more)

    def path(self, d, cls, **more):
        self.add("path", cls, d=d, **more)

    def arrow(self, d, cls="flow"):
        self.add("path", cls, d=d, marker_end="url(#tip)")

    def box(self, x, y, width, height, cls="box", rx=4):
        self.add("rect", cls, x=x, y=y, width=width, height=height, rx=rx)

    def mark(self, x, y, cls, shape=0, r=4.5):
        """A point, by one of six shapes, lest colour alone tell which."""
        if shape % 6 == 0:
            self.add("circle", cls, cx=x, cy=y, r=r)
            return
        corners = [[], [(-1, -1), (1, -1), (1, 1), (-1, 1)], [(0, -1.3), (1.2, .9), (-1.2, .9)],
                   [(0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)], [(0, 1.3), (1.2, -.9), (-1.2, -.9)],
                   [(-1.2, -.5), (1.2, -.5), (1.2, .5), (-1.2, .5)]][shape % 6]
        points = " ".join(f"{x + r * a:.1f},{y + r * b:.1f}" for a, b in corners)
        self.add("polygon", cls, points=points)

    def __str__(self):
        light, dark = "\n".join(style(0)), "\n".join(style(1))
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" '
                f'font-family="DejaVu Sans, Verdana, sans-serif" role="img">\n'
                f"<title>{escape(self.title)}</title>\n<style>\n{light}\n"
                f"@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n</style>\n"
                '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
                'markerHeight="7" orient="auto-start-reverse">'
                '<path class="tip" d="M0,0 L8,4 L0,8 z"/></marker></defs>\n'
                f'<rect class="paper" width="{self.width}" height="{self.height}"/>\n'
                + "\n".join(self.parts) + "\n</svg>\n")

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(str(self))
