"""Pages of notebooks, made from their cells and outputs: a hook of MkDocs.

A line ``<!-- notebook: name -->`` becomes the content of ``notebooks/name.ipynb``.
"""

import json
import re
from pathlib import Path
from typing import Any

MARK = re.compile(r"<!-- notebook: (\w+) -->")
STYLE = re.compile(r"<style.*?</style>|(?<=<table) [^>]*|(?<=<tr) [^>]*", re.DOTALL)


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Put notebooks in the place of their marks."""
    return MARK.sub(lambda found: notebook_page(found[1]), markdown)


def notebook_page(name: str) -> str:
    """Cells and outputs of a notebook as Markdown."""
    path = Path(__file__).parent / "notebooks" / f"{name}.ipynb"
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        is_shell = source.startswith("%%bash\n")
        parts.append(fenced(source.removeprefix("%%bash\n"), "sh" if is_shell else "python"))
        parts += [shown(output) for output in cell["outputs"]]
    return "\n\n".join(parts)


def fenced(text: str, language: str) -> str:
    return f"```{language}\n{text.strip()}\n```"


def shown(output: dict[str, Any]) -> str:
    """Picture, table or text of an output, the first that it has."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        image = "".join(data["image/png"].split())
        return f"![Picture drawn by the code above](data:image/png;base64,{image})"
    if "text/html" in data:
        return STYLE.sub("", "".join(data["text/html"]))
    return fenced("".join(data["text/plain"]), "text")
