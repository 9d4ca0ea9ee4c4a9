"""The examples run, and print what the documentation quotes of them.

Words and whole numbers are compared as they stand, and other numbers up to a tolerance: machines
round differently, training multiplies that, and here programs are compiled without optimisations.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("run_examples", ROOT / "examples" / "run.py")
assert SPEC is not None and SPEC.loader is not None
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

EXAMPLES = {example.stem: example for example in script.examples()}
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?")


def is_near(found: str, quoted: str) -> bool:
    """Whether two numbers differ by no more than training on another machine may change.

    Shares and scores near 1 by 0.1, larger ones by a tenth; whole numbers not at all.
    """
    if "." not in quoted:
        return found == quoted
    one, other = (float(text.replace(",", "")) for text in (found, quoted))
    return abs(one - other) <= 0.1 * max(1.0, abs(other))


def words(text: str) -> list[str]:
    """What is said between the numbers, without the spaces and lines that fill columns."""
    return re.sub(r"[\s─━]+", " ", NUMBER.sub("#", text)).split()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_the_documentation_quotes(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = script.printed_by(EXAMPLES[name])
    quoted = script.output_of(EXAMPLES[name]).read_text(encoding="utf-8")
    assert words(found) == words(quoted)
    pairs = zip(NUMBER.findall(found), NUMBER.findall(quoted), strict=True)
    assert [pair for pair in pairs if not is_near(*pair)] == []


@pytest.mark.parametrize("name", ["gallery", "howto", "ideas"])
def test_drawn_pictures_are_those_of_the_page(name, tmp_path):
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), str(tmp_path)]
    subprocess.run(command, check=True, env=os.environ | {"MPLBACKEND": "agg"})
    drawn = {picture.name for picture in tmp_path.iterdir()}
    assert drawn == {picture.name for picture in (ROOT / "docs" / name).glob("*.png")}
    pages, parent = (f"{name}.md", f"{name}/") if name != "howto" else ("howto/*.md", "")
    page = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob(pages))
    for picture in drawn:
        assert f"]({parent}{picture})" in page
        section = f'--8<-- "examples/gallery.py:{picture.removesuffix(".png")}"'
        assert name != "gallery" or section in page


def test_notebooks_print_what_their_pages_quote(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "notebooks.py"), str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == 3
    assert names == {path.name for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    for name in names:
        found, quoted = (cells_of(path / name) for path in (tmp_path, ROOT / "docs/notebooks"))
        assert [source for source, _ in found] == [source for source, _ in quoted]
        for (source, one), (_, other) in zip(found, quoted, strict=True):
            assert words(one) == words(other), source


def cells_of(path: Path) -> list[tuple[str, str]]:
    """Source and printed text of every cell of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        ("".join(cell["source"]), "".join(map(text_of, cell.get("outputs", [])))) for cell in cells
    ]


def text_of(output: dict[str, Any]) -> str:
    return "picture" if "image/png" in output.get("data", {}) else "".join(output.get("text", []))


def test_a_page_shows_every_example_and_its_output():
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    for example in EXAMPLES.values():
        assert f'--8<-- "examples/{example.name}"' in pages
        assert f'--8<-- "examples/output/{example.stem}.txt' in pages
    known = {script.output_of(example) for example in EXAMPLES.values()}
    assert known == set((ROOT / "examples" / "output").iterdir())


def test_examples_are_short():
    for name, example in EXAMPLES.items():
        most = 250 if name == "nano_combined" else 60
        assert len(example.read_text(encoding="utf-8").splitlines()) <= most, name
