"""Take the screenshots of the report and of the served page for the documentation.

    python examples/screenshots.py [folder]

Needs playwright and a Chromium, which SIGMAX_CHROMIUM may name.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import chdir
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from sigmax.data.synthetic import make_deliveries

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "assets"
SIGMAX = (sys.executable, "-m", "sigmax")
FIT = ("fit", "deliveries.csv", "--target", "minutes", "--effort", "quick")


def shoot(page: Page, path: Path, height: int) -> None:
    """Screenshot of the upper part of a page, in 64 colours."""
    page.set_viewport_size({"width": 1000, "height": height})
    page.wait_for_timeout(500)
    Image.open(BytesIO(page.screenshot())).quantize(64).save(path, optimize=True)


def main(folder: str = str(FOLDER)) -> None:
    target = Path(folder).resolve()
    with tempfile.TemporaryDirectory() as work, chdir(work), sync_playwright() as program:
        make_deliveries(1000).to_csv("deliveries.csv", index=False)
        subprocess.run([*SIGMAX, *FIT], check=True, stdout=subprocess.DEVNULL)
        chromium = os.environ.get("SIGMAX_CHROMIUM") or shutil.which("chromium")
        browser = program.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(Path("model/report.html").resolve().as_uri())
        page.wait_for_selector("figure svg")
        shoot(page, target / "report.png", height=1240)
        command = [*SIGMAX, "serve", "model", "--port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            address = next(filter(None, (re.search(r"http://\S+", line) for line in server.stderr)))
            page.goto(address[0])
            page.wait_for_selector("#curve .outline")
            shoot(page, target / "served_page.png", height=900)
            server.terminate()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
