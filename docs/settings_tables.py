"""Tables of settings, made from the fields of the experts: a hook of MkDocs.

A line ``<!-- settings: Local -->`` becomes the table of the settings of `sigmax.experts.Local`.
"""

import re
from typing import Any

from sigmax import experts

MARK = re.compile(r"<!-- settings: (\w+) -->")


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Put tables in the place of their marks."""
    return MARK.sub(lambda found: settings_table(found[1]), markdown)


def settings_table(name: str) -> str:
    """Table of the settings of an expert, with default, type and meaning."""
    rows = ["| setting | default | type | meaning |", "|---|---|---|---|"]
    for setting in getattr(experts, name).declared().values():
        rule, sentence = setting.metadata["rule"], setting.metadata["sentence"]
        cells = f"`{setting.name}`", f"`{setting.default!r}`", rule.kind, sentence
        rows.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(rows)
