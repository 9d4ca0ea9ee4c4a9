"""Formulas of the site as MathML, which browsers show by themselves: no script, no network.

A hook of mkdocs. `pymdownx.arithmatex` finds the formulas, in pages and in docstrings, and leaves
them in elements of class ``arithmatex``; what is in these is LaTeX, and becomes MathML here.
"""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def on_page_content(text: str, **_) -> str:
    """The HTML of a page with its formulas as MathML."""
    return FORMULA.sub(formula_to_mathml, text)


def formula_to_mathml(found: re.Match[str]) -> str:
    """MathML of one formula: on a line of its own if it was between double dollars."""
    latex = html.unescape(found["latex"]).strip()
    return convert(latex, display="block" if found["tag"] == "div" else "inline")
