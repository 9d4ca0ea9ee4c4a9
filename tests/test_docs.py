"""Documentation: names, files and quoted numbers exist, and the site builds."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import fmean, geometric_mean
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from sigmax import GPRegressor, LocalRegressor, SparseGPRegressor
from sigmax.cli.app import load_command
from sigmax.experts.combined import PRESETS
from sigmax.experts.gaussian_process import expert as gaussian_process
from sigmax.experts.local.expert import DECAY_ROWS
from sigmax.extrapolation import N_STEPS, SAMPLED
from sigmax.version import __version__

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
ILLUSTRATED = {"gallery.md", "ideas.md"}
"""Pages with pictures in many sections, whose one command is in the introduction."""
HOSTS = {"github.com", "www.ray.io"}
LINK = re.compile(r"\]\(([^()\s]+)\)")
IMAGE = re.compile(r"!\[[^\]]*\]\(([^()\s]+)\)")
NAMED_FILE = re.compile(r"(?<![\w/.])((?:benchmarks|docs|examples|src|tests)/[\w./-]+\.[a-z]+)\b")
SHELL = re.compile(r"```(?:bash|sh)\n(.*?)```", re.DOTALL)
FIGURE = re.compile(r"(?<![\w.-])(?:\d+ of \d+|\d+(?:,\d{3})*(?:\.\d+)?)(?![\w-])")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def plain_text(page: Path) -> str:
    return re.sub(r"<[^>]*>", "", text_of(page))


def links(page: Path) -> list[str]:
    without_code = re.sub(r"```.*?```|`[^`\n]*`", "", text_of(page), flags=re.DOTALL)
    return LINK.findall(without_code)


def test_links_to_files_lead_to_files():
    for page in PAGES:
        for link in links(page):
            path = urlsplit(link).path
            if path and not urlsplit(link).scheme:
                assert (page.parent / path).exists(), f"{page.name} links to {link}"


def test_external_links_have_known_hosts():
    for page in PAGES:
        for link in map(urlsplit, links(page)):
            assert link.scheme in ("", "http", "https"), f"{page.name}: {link.geturl()}"
            if link.scheme:
                assert link.hostname in HOSTS, f"{page.name}: {link.geturl()}"


def test_named_files_exist():
    for page in PAGES:
        for name in NAMED_FILE.findall(text_of(page)):
            assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_every_picture_is_shown_next_to_the_command_that_makes_it():
    shown, command = set(), r"sigmax reproduce \w+|python (?:benchmarks|examples)/\w+\.py"
    for page in PAGES:
        for section in re.split(r"^(?=#{1,2} )", text_of(page), flags=re.MULTILINE):
            of_all = text_of(page).partition("##")[0] if page.name in ILLUSTRATED else ""
            for link in IMAGE.findall(section):
                shown.add((page.parent / link).resolve())
                assert re.search(command, section + of_all), f"{page.name}: {link}"
    assert shown == {path.resolve() for path in DOCS.rglob("*.png")}


def test_how_to_pages_begin_with_a_picture_of_the_result():
    pages = {page.stem: text_of(page) for page in (DOCS / "howto").glob("*.md")}
    without = {name for name, text in pages.items() if not re.match(r"# [^\n]+\n\n!\[", text)}
    assert without == {"many_files", "saving"}  # their results are files


def test_commands_and_their_options_exist():
    texts = [block for page in PAGES for block in SHELL.findall(text_of(page))]
    texts.append(text_of(ROOT / "examples" / "csv_in_five_minutes.sh"))
    seen = set()
    for line in "".join(texts).splitlines():
        if Path(line.split(" ", 1)[0]).name != "sigmax":  # others may go on over several lines
            continue
        _, command, *arguments = shlex.split(line, comments=True)
        known = {name for option in load_command(command).params for name in option.opts}
        assert {word for word in arguments if word.startswith("--")} <= known, line
        seen.add(command)
    assert {"describe", "fit", "predict", "evaluate", "compare", "reproduce", "serve"} <= seen


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", DOCS / "benchmarks.md", DOCS / "comparisons.md"],
    ids=lambda p: p.name,
)
def test_figures_of_comparisons_are_on_the_linked_page(page):
    rows = [row for row in text_of(page).splitlines() if row.startswith("| ") and ".md" in row]
    assert len(rows) >= 4
    for row in rows:
        (link,) = LINK.findall(row)
        source = text_of(page.parent / urlsplit(link).path)
        text = re.sub(r"\[[^\]]*\]\([^)]*\)", "", row).replace("TabPFN-2.5", "")
        for figure in FIGURE.findall(text):
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d])", source), (figure, row)


def test_row_limits_of_averaged_processes_are_those_of_the_code():
    few, wide = gaussian_process.LARGEST_AVERAGED, gaussian_process.LARGEST_WIDE
    assert gaussian_process.ROWS_PER_LENGTH_SCALE == 10
    stated = f"{few} rows, or ten per column up to {wide}"
    for page in ("estimators.md", "method.md", "integrations/botorch.md"):
        assert stated in text_of(DOCS / page), page
    assert stated in " ".join(str(GPRegressor.__doc__).split())
    referring = "as in `GPRegressor`, if there are as few rows"
    assert referring in " ".join(str(SparseGPRegressor.__doc__).split())


def test_stated_settings_are_those_of_the_code():
    method = text_of(DOCS / "method.md")
    paper = PRESETS["paper"]
    n_rows = SAMPLED * paper.n_inducing
    steps = f"{N_STEPS} steps of Lloyd's algorithm on at most {n_rows:,} rows"
    assert f"{paper.n_inducing} centres of k-means, {steps}" in method
    decay = LocalRegressor().settings()["weight_decay"]
    assert f"of {decay:.0f}/(N + {DECAY_ROWS}). Checkpoints" in method
    path = ROOT / "benchmarks" / "local_choices.py"
    spec = importlib.util.spec_from_file_location("local_choices", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    variations = script.VARIATIONS
    assert variations["three times the weight decay"].settings == {"weight_decay": 3 * decay}


def test_records_come_from_committed_code():
    for path in DOCS.rglob("*.jsonl"):
        assert "dirty" not in text_of(path), path.name


def test_pages_agree_on_the_version_of_the_records():
    assert "are of the present version" not in text_of(DOCS / "comparisons.md")
    assert "(0.77 without the taxi rides)" in text_of(DOCS / "tables.md")
    records = [json.loads(line) for line in text_of(DOCS / "tables/records.jsonl").splitlines()]
    crps = {(r["table"], r["split"], r["method"]): r["scores"]["crps"] for r in records}
    ratios: dict[str, list[float]] = {}
    for (table, split, method), score in crps.items():
        if method == "catboost":
            ratios.setdefault(table, []).append(crps[table, split, "sigmax"] / score)
    means = {table: fmean(own) for table, own in ratios.items()}
    assert round(geometric_mean(means.values()), 2) == 0.66
    assert round(geometric_mean(m for table, m in means.items() if table != "taxis"), 2) == 0.77


def test_quoted_lines_are_those_of_the_code():
    code = text_of(ROOT / "src" / "sigmax" / "experts" / "combined.py")
    quoted = re.findall(r"```python\n(.*?)\n```", text_of(DOCS / "ideas.md"), re.DOTALL)
    assert len(quoted) == 4
    assert not [line for line in quoted if code.count(f" {line}\n") != 1]


def test_badges_of_the_readme_are_true():
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    assert f">{__version__}<" in text_of(DOCS / "assets" / "version.svg")
    assert f">{project['requires-python'][2:]} or newer<" in text_of(DOCS / "assets" / "python.svg")
    assert f">{project['license']}<" in text_of(DOCS / "assets" / "licence.svg")


def test_included_pages_are_complete():
    assert text_of(DOCS / "contributing.md").strip() == '--8<-- "CONTRIBUTING.md"'
    assert text_of(DOCS / "changes.md").strip() == '--8<-- "CHANGELOG.md"'


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The pages as they are published; strict, so that a broken link or anchor is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return folder


def test_site_loads_no_external_files(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="?([^" >]+)', text_of(page))
        loaded += re.findall(r'<link[^>]* href="?([^" >]+)', text_of(page))
        assert not [url for url in loaded if url.startswith(("http:", "https:", "//"))], page.name


def test_formulas_of_the_site_are_mathml(site):
    assert text_of(site / "maths.html").count("<math") > 40
    assert "<math" in text_of(site / "api" / "sampling.html")  # from docstrings
    for page in site.rglob("*.html"):
        assert "arithmatex" not in text_of(page), page.name


def test_examples_are_included_in_the_site(site):
    for page in site.rglob("*.html"):
        assert not re.search(r"--8|8&lt;--|8 &lt; --", text_of(page)), page.name
    assert "LinearRegressor().fit(X, y)" in plain_text(site / "howto" / "coverage.html")


def test_site_has_no_serious_accessibility_problem(site):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    chromium = os.environ.get("SIGMAX_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with sync_api.sync_playwright() as program:
        browser = program.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in ("index", "gallery", "howto/coverage", "ideas", "notebooks/csv_to_report"):
            for scheme, width in (("light", 1200), ("dark", 400)):
                size = {"width": width, "height": 900}
                page = browser.new_page(viewport=size, color_scheme=scheme)
                page.goto((site / f"{name}.html").as_uri())
                found = axe.Axe().run(page).response["violations"]
                serious = [one["id"] for one in found if one["impact"] in ("serious", "critical")]
                assert not serious, (name, scheme, width)
                page.close()
        browser.close()


def test_public_names_are_on_an_api_page(site):
    import sigmax

    pages = "".join(text_of(page) for page in (site / "api").glob("*.html"))
    modules = {"sigmax." + name for name in sigmax.__all__ if name.islower()} - {
        "sigmax.__version__"
    }
    for name in modules:
        assert f'id="{name}' in pages, name
    for name in (name for name in sigmax.__all__ if not name.islower()):
        assert re.search(rf'id="sigmax\.\w+\.{name}"', pages), name


@pytest.fixture(scope="module")
def mathml():
    spec = importlib.util.spec_from_file_location("mathml", DOCS / "mathml.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_formula_becomes_a_fraction_and_other_text_stays(mathml):
    text = r'<p>With <span class="arithmatex">\(\frac{a}{b} &lt; 1\)</span> and $5.</p>'
    found = ElementTree.fromstring(mathml.on_page_content(text))
    name = "{http://www.w3.org/1998/Math/MathML}"
    (fraction,) = found.iter(f"{name}mfrac")
    assert ["".join(part.itertext()) for part in fraction] == ["a", "b"]
    assert (found.text, found[0].tail) == ("With ", " and $5.")
    assert found[0].attrib["display"] == "inline"


def test_formula_between_double_dollars_is_a_block(mathml):
    found = mathml.on_page_content('<div class="arithmatex">\\[\nx^2\n\\]</div>')
    assert ElementTree.fromstring(found).attrib["display"] == "block"
