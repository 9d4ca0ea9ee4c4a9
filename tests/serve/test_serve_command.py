"""The command `sigmax serve`: options, a whole process, and the container."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import jax
import pytest
from typer.testing import CliRunner

from sigmax.cli import app as command_line


def run(*arguments, **environment):
    runner = CliRunner(env={"COLUMNS": "200", "TERM": "dumb", **environment})
    result = runner.invoke(command_line, ["serve", *map(str, arguments)])
    return result.exit_code, " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "arguments, environment, words",
    [
        (["--port", 99_999], {}, "--port"),
        (["--max-rows", 0], {}, "--max-rows"),
        ([], {"SIGMAX_TOKEN": "short"}, "SIGMAX_TOKEN must have at least 16"),
    ],
)
def test_invalid_options_print_an_error(folder, arguments, environment, words):
    code, text = run(folder, *arguments, **environment)
    assert code == 2 and words in text and text.startswith("error:")


def test_a_folder_without_a_model_is_an_error(tmp_path):
    code, text = run(tmp_path)
    assert code == 2 and "schema.json" in text


def test_a_missing_package_names_the_extra(folder, monkeypatch):
    parts = "sigmax.serve", "sigmax.cli.serve"
    for name in [name for name in sys.modules if name.startswith(parts)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    code, text = run(folder)
    assert code == 1 and text == (
        'error: `sigmax serve` needs FastAPI and uvicorn: pip install "sigmax[serve]".'
    )


def test_a_process_serves_until_sigterm(folder, rows):
    """It warns about a public address without a token, and exits with code 0."""
    cache = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009, unknown to pyright
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "JAX_COMPILATION_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", "sigmax", "serve", str(folder), "--port", "0"]
    command += ["--host", "0.0.0.0", "--request-seconds", "600"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    watch = threading.Timer(600, process.kill)  # so that the test does not hang
    watch.start()
    try:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if "Open http://" in line:
                break
        assert "warning: everybody who can reach 0.0.0.0" in said
        found = re.search(r"http://0\.0\.0\.0:(\d+)/", said)
        assert found, said
        address = f"http://127.0.0.1:{found[1]}"
        assert httpx.get(f"{address}/health").json()["status"] == "ok"
        answer = httpx.post(f"{address}/predict", json={"row": rows[0]}, timeout=600)
        assert answer.status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 0
    finally:
        watch.cancel()
        if process.poll() is None:
            process.kill()
            process.wait(20)
        if process.stderr is not None:
            process.stderr.close()


def test_the_container_runs_as_an_unprivileged_user():
    text = (Path(__file__).parents[2] / "Containerfile").read_text(encoding="utf-8")
    assert re.search(r"^USER (?!root|0\b)\S+", text, re.MULTILINE) and "HEALTHCHECK" in text
    assert "VOLUME" in text and 'sigmax", "serve"' in text
