"""One HTML page that stands alone: its style and pictures are in it, and it loads nothing."""

import base64
import html
import io
from collections.abc import Mapping

from matplotlib.figure import Figure

__all__ = ["picture", "render_page"]

STYLE = """
:root { color-scheme: light dark; --ink: #1d1f23; --quiet: #5c626b; --ground: #ffffff;
  --line: #dfe2e6; --raised: #f5f6f8; --link: #1f5fa8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --quiet: #a3a9b2; --ground: #16181c;
  --line: #343941; --raised: #1f2329; --link: #8fbcf0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 80rem; padding: 1.5rem 1.25rem 4rem; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.75rem 0 .5rem; }
a { color: var(--link); }
nav a { margin-right: 1rem; display: inline-block; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: .84rem; overflow-wrap: normal;
  font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .55rem; text-align: right; white-space: nowrap; }
thead th { white-space: normal; vertical-align: bottom; background: var(--raised);
  border-bottom: 1px solid var(--line); }
tbody tr + tr > * { border-top: 1px solid var(--line); }
th:first-child { position: sticky; left: 0; background: var(--raised); text-align: left; }
.words th, .words td { text-align: left; vertical-align: top; font-weight: normal; }
.words td { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 5rem; max-width: 40rem; }
.words thead th { font-weight: bold; }
.note, figcaption { color: var(--quiet); font-size: .875rem; margin: .4rem 0; max-width: 60rem; }
figure { margin: 1.75rem 0; }
img { max-width: 100%; height: auto; background: #ffffff; border: 1px solid var(--line);
  border-radius: 6px; padding: .5rem; }
@media (max-width: 40rem) { .words td { min-width: 9rem; } }
"""

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def render_page(title: str, sections: Mapping[str, str]) -> str:
    """The page of some sections: their headings, which are text, and their insides, in HTML."""
    heads = {f"part-{i}": html.escape(heading) for i, heading in enumerate(sections, 1)}
    links = "\n".join(f'<a href="#{anchor}">{heading}</a>' for anchor, heading in heads.items())
    body = "\n".join(
        f'<section id="{anchor}">\n<h2>{heading}</h2>\n{content}\n</section>'
        for (anchor, heading), content in zip(heads.items(), sections.values(), strict=True)
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
<nav>
{links}
</nav>
{body}
</body>
</html>
"""


def picture(figure: Figure, caption: str) -> str:
    """A figure as part of a page."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    data, text = base64.b64encode(file.getvalue()).decode(), html.escape(caption)
    image = f'<img alt="{text}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"
