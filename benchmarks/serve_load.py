"""How many single rows a second `sigmax serve` answers, how fast, and in what memory.

    python benchmarks/serve_load.py [--rate 200] [--seconds 60] [--upload-rows 100000]
        [--model FOLDER]

Fits a small model to a made-up table (or takes a folder), starts the server on a free loopback port
in a process of its own, and sends requests of one row from this process, on the same machine. They
leave at a fixed rate, whether or not earlier ones were answered, and a latency counts from the
moment when the request should have left. Then a file is uploaded and its answer read to the end.
The server is stopped by SIGTERM. The load average says how busy the machine was.
"""

import argparse
import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sigmax.data.synthetic import make_deliveries

N_CONNECTIONS = 48
START_SECONDS = 180
STOP_SECONDS = 20


def fit_model(folder: Path, method: str) -> Path:
    """A model of 2,000 made-up deliveries."""
    table, model = folder / "deliveries.csv", folder / "model"
    make_deliveries(2000).to_csv(table, index=False)
    command = [sys.executable, "-m", "sigmax", "fit", str(table), "--target", "minutes"]
    command += ["--no-refit", "--out", str(model), "--method", method, "--effort", "quick"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return model


@contextmanager
def running_server(model: Path) -> Iterator[tuple[int, int]]:
    """The process and the port of a server, which is stopped at the end."""
    command = [sys.executable, "-m", "sigmax", "serve", str(model), "--port", "0"]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
            if found:
                print(f"open after {time.perf_counter() - begin:.1f} s")
                yield process.pid, int(found[1])
                break
            if time.perf_counter() - begin > START_SECONDS:
                raise SystemExit("the server did not start")
    finally:
        begin = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        code = process.wait(STOP_SECONDS)
        print(f"stopped by SIGTERM after {time.perf_counter() - begin:.1f} s, exit code {code}")


def make_requests(port: int, number: int) -> list[bytes]:
    """Requests of one row each, all different."""
    rows = make_deliveries(number, seed=1).drop(columns="minutes")
    requests = []
    for row in json.loads(rows.to_json(orient="records")):
        body = json.dumps({"row": row}).encode()
        head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        requests.append(head.encode() + body)
    return requests


async def load(port: int, rate: float, seconds: float) -> tuple[np.ndarray, int, float]:
    """Latencies in seconds of all requests, how many failed, and how long it took."""
    requests, n_requests = make_requests(port, 500), round(rate * seconds)
    queue: asyncio.Queue[tuple[int, float] | None] = asyncio.Queue()
    latencies, n_failed = np.full(n_requests, np.nan), 0

    async def work() -> None:
        nonlocal n_failed
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (item := await queue.get()) is not None:
            i, due = item
            try:
                writer.write(requests[i % len(requests)])
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1])) if length else b""
                n_failed += not (head.startswith(b"HTTP/1.1 200") and b'"mean":' in body)
                latencies[i] = time.perf_counter() - due
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                n_failed += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()

    workers = [asyncio.create_task(work()) for _ in range(N_CONNECTIONS)]
    begin = time.perf_counter()
    for i in range(n_requests):
        due = begin + i / rate
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        queue.put_nowait((i, due))
    for _ in workers:
        queue.put_nowait(None)
    await asyncio.gather(*workers)
    return latencies, n_failed, time.perf_counter() - begin


def upload(port: int, path: Path) -> tuple[int, float, float]:
    """Rows that came back, seconds until the first byte, and until the last."""
    begin = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    with path.open("rb") as file:
        headers = {"Content-Type": "text/csv", "Content-Length": str(path.stat().st_size)}
        connection.request("POST", "/predict_csv", file, headers)
    answer, n_lines, first = connection.getresponse(), -1, 0.0
    if answer.status != 200:
        raise SystemExit(f"the file was refused: {answer.read().decode()}")
    while part := answer.read(1 << 16):
        first = first or time.perf_counter() - begin
        n_lines += part.count(b"\n")
    return n_lines, first, time.perf_counter() - begin


def peak_memory(process: int) -> float:
    """GiB that a process had at most; nan where the system does not tell."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return float("nan")
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) / 2**20 if found else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description="See the head of this file.")
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--upload-rows", type=int, default=100_000)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--method", default="local", help="of the model that is fitted")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = given.model or fit_model(folder, given.method)
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} before")
        with running_server(model) as (process, port):
            asyncio.run(load(port, 20, 2))  # the first answers of a process
            latencies, n_failed, seconds = asyncio.run(load(port, given.rate, given.seconds))
            ms = 1e3 * np.nanquantile(latencies, [0.5, 0.9, 0.99, 1.0])
            done = len(latencies) - n_failed
            print(f"{done:,} answers in {seconds:.1f} s: {done / seconds:.1f} a second")
            print(f"p50 {ms[0]:.1f} ms, p90 {ms[1]:.1f}, p99 {ms[2]:.1f}, longest {ms[3]:.1f}")
            print(f"{n_failed} errors; peak memory {peak_memory(process):.2f} GiB")
            print(f"load average {os.getloadavg()[0]:.2f} after")
            if given.upload_rows:
                table = folder / "new.csv"
                make_deliveries(given.upload_rows, seed=2).to_csv(table, index=False)
                size = table.stat().st_size / 2**20
                n_rows, first, last = upload(port, table)
                print(f"file of {n_rows:,} rows, {size:.1f} MiB: first byte after {first:.1f} s,")
                print(f"last after {last:.1f} s, {n_rows / last:,.0f} rows a second;")
                print(f"peak memory {peak_memory(process):.2f} GiB")


if __name__ == "__main__":
    main()
