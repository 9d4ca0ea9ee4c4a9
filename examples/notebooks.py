"""Execute the notebooks and write them, with what they print and draw, to docs/notebooks/.

    python examples/notebooks.py [folder]

Their cells are in examples/notebooks/, as Python files with a line ``# %%`` before each cell,
``# %% [markdown]`` before each text, and ``# %% [bash]`` before commands, which are comments.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from run import PROGRESS, SECONDS

ROOT = Path(__file__).resolve().parents[1]
CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)


def notebook(source: str) -> nbformat.NotebookNode:
    """Notebook of a Python file with marked cells, not executed."""
    _, *parts = CELL.split(source)
    cells = []
    for i, (kind, text) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        text = text.strip()
        if kind:  # [markdown] or [bash]
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        create = new_markdown_cell if "[markdown]" in kind else new_code_cell
        cells.append(create("%%bash\n" * ("[bash]" in kind) + text, id=f"cell-{i}"))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def main(folder: str = str(ROOT / "docs" / "notebooks")) -> None:
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    os.environ |= {"COLUMNS": "100", "TTY_COMPATIBLE": "0"}  # no colours, no bars
    for path in sorted((ROOT / "examples" / "notebooks").glob("*.py")):
        found = notebook(path.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as work:
            where = {"metadata": {"path": work}}
            NotebookClient(found, resources=where, coalesce_streams=True).execute()
        for cell in found.cells:
            cell.metadata.pop("execution", None)  # times
            for output in cell.get("outputs", []):
                if output.output_type == "stream":
                    text = SECONDS.sub(r"\1…", PROGRESS.sub("", output.text))
                    output.text = re.sub(r" +$", "", text, flags=re.MULTILINE)
        nbformat.write(found, Path(folder) / f"{path.stem}.ipynb")


if __name__ == "__main__":
    main(*sys.argv[1:])
