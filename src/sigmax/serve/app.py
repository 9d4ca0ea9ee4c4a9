"""The application: which path is answered by what.

It is made of Starlette, not of FastAPI: what a request holds is known from the schema of a model
when the server starts, not from types in the source, so FastAPI's models would have to be made up
at run time, and its document as well. Checking rows against the schema is a page of code.
"""

import asyncio
import json
import logging
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from sigmax.commands.folder import SavedTableModel
from sigmax.commands.predict import PredictOptions
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.serve.answers import QUICK_ROWS, Answers
from sigmax.serve.batching import Batcher
from sigmax.serve.guards import COOKIE, Guard, Token
from sigmax.serve.limits import Slots, body_parts, read_body
from sigmax.serve.openapi import describe_api
from sigmax.serve.options import MIB, ServeOptions
from sigmax.serve.page import render_page, render_token_page
from sigmax.serve.questions import (
    PredictQuestion,
    QuantileQuestion,
    parse_json,
    read_density,
    read_predict,
    read_quantiles,
)
from sigmax.serve.refusals import Refusal, refuse, refused
from sigmax.serve.streaming import StreamedAnswer
from sigmax.serve.uploads import Upload
from sigmax.version import __version__

__all__ = ["create_app"]

STATIC = Path(__file__).parent / "static"
REPORT_STATIC = ("sigmax.report", "static")
"""Where the axes of charts are."""
FEW_LEVELS = 16
"""Quantiles and probabilities up to which a question is a quick one."""
LONG_BODY = 1 << 16
"""Bytes above which a body is read by a thread of its own, not by that of the event loop."""
HELD_BODIES = 64
"""MiB of bodies that are in memory at once, or sixteen of the longest."""

log = logging.getLogger("sigmax.serve")
Result = TypeVar("Result")


def create_app(saved: SavedTableModel, options: ServeOptions, *, warm_up: bool = True) -> Guard:
    """The whole application for one model, ready to answer when it is returned."""
    options.check()
    answers = Answers(saved, show_rows=options.shows_rows)
    if warm_up:
        answers.warm_up()
    return Service(answers, options).application()


@final
class Service:
    """What all requests share: the model, its two threads, and free places."""

    def __init__(self, answers: Answers, options: ServeOptions):
        self.answers, self.options = answers, options
        self.quick: Batcher[Any, Any] = Batcher(
            answers.answer_batch, lambda question: question.rows.n_rows, QUICK_ROWS
        )
        self.bulk = ThreadPoolExecutor(1, thread_name_prefix="sigmax-bulk")
        self.parallel = Slots(options.max_parallel, "places for requests", status=429)
        self.uploads = Slots(options.max_uploads, "places for files", status=429)
        self.receiving = Slots(4 * options.max_uploads, "places for files", status=429)
        n_held = max(HELD_BODIES * MIB, 16 * options.max_body_bytes)
        self.held = Slots(n_held, "bytes for requests", status=503)
        self.document = json.dumps(describe_api(answers, options), allow_nan=False).encode()
        self.page = render_page(answers, options)

    def application(self) -> Guard:
        """The routes behind the guard."""
        json_routes = {
            "/predict": (read_predict, self.ask_batch),
            "/predict_dist": (read_quantiles, self.ask_batch),
            "/density": (read_density, self.ask_density),
        }
        app = Starlette(
            routes=[
                Route("/", self.get_page),
                Route("/health", self.get_health),
                Route("/openapi.json", self.get_document),
                Route("/session", self.post_session, methods=["POST"]),
                *(
                    Route(path, partial(self.post_json, *how), methods=["POST"])
                    for path, how in json_routes.items()
                ),
                Route("/predict_csv", self.post_csv, methods=["POST"]),
                Mount("/static", StaticFiles(directory=STATIC, packages=[REPORT_STATIC])),
            ],
            exception_handlers={
                Refusal: show_refusal,
                HTTPException: show_http_error,
                Exception: show_failure,
            },
        )
        return Guard(app, self.options, render_token_page())

    async def get_page(self, request: Request) -> Response:
        return HTMLResponse(self.page)

    async def get_health(self, request: Request) -> Response:
        facts = {"status": "ok", "target": self.answers.saved.target, "version": __version__}
        return JSONResponse(facts)

    async def get_document(self, request: Request) -> Response:
        return Response(self.document, media_type="application/json")

    async def post_session(self, request: Request) -> Response:
        """Take the token from the form of the page, and give the page a cookie that proves it."""
        check_type(request, "application/x-www-form-urlencoded")
        body = await read_body(request, self.held, **self.body_limits(10_000))
        token = None if self.options.token is None else Token(self.options.token)
        given = parse_qs(body.decode("utf-8", "replace"), max_num_fields=5).get("token", [""])[0]
        if token is not None and not token.is_token(given.strip()):
            return HTMLResponse(render_token_page(is_wrong=True), status_code=401)
        response = RedirectResponse("/", status_code=303)
        if token is not None:
            response.set_cookie(COOKIE, token.proof, httponly=True, samesite="strict")
        return response

    async def post_json(self, read: Callable, ask: Callable, request: Request) -> Response:
        """Read a question, ask it, and write the answer, each within its limits."""
        check_type(request, "application/json")
        limits = self.body_limits(self.options.max_body_bytes)
        body = await read_body(request, self.held, **limits)

        def parse() -> Any:
            return read(parse_json(body), self.answers.reader, self.options.max_rows)

        with self.parallel.taken():
            try:
                async with asyncio.timeout(self.options.request_seconds):
                    is_long = len(body) > LONG_BODY
                    question = await asyncio.to_thread(parse) if is_long else parse()
                    found = await ask(question)
            except TimeoutError:
                seconds = self.options.request_seconds
                raise refused(504, f"No answer within {seconds:g} seconds.") from None
            except (InvalidArgumentError, InvalidDataError) as error:
                raise refused(422, str(error), "body") from None
        return JSONResponse(found)

    async def ask_batch(self, question: PredictQuestion | QuantileQuestion) -> Any:
        n_levels = 0
        if isinstance(question, QuantileQuestion):
            n_levels = len(question.probabilities) + len(question.values)
        if question.rows.n_rows <= QUICK_ROWS and n_levels <= FEW_LEVELS:
            return await self.quick(question)
        return (await self.in_bulk(self.answers.answer_batch, [question]))[0]

    async def ask_density(self, question: Any) -> Any:
        return await self.in_bulk(self.answers.density, question)

    async def in_bulk(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """What takes longer is done by another thread than quick answers."""
        return await asyncio.get_running_loop().run_in_executor(self.bulk, function, *arguments)

    async def post_csv(self, request: Request) -> Any:
        """Keep the file, check it, and send its rows with their predictions as they come."""
        check_type(request, "text/csv")
        options = read_options(request)
        folder = tempfile.TemporaryDirectory(prefix="sigmax-")
        try:
            path = Path(folder.name) / "rows.csv"
            with self.receiving.taken():
                await self.keep(request, path)
            self.uploads.take(1)
        except BaseException:
            folder.cleanup()
            raise
        upload = Upload(self.answers.saved, path, options, self.options.max_upload_rows)
        end = asyncio.get_running_loop().time() + self.options.upload_seconds

        def release() -> None:
            self.uploads.n_free += 1
            folder.cleanup()

        try:
            async with asyncio.timeout_at(end):
                await asyncio.to_thread(upload.check)
        except TimeoutError:
            release()
            raise refused(504, "The file took too long to read.", "body") from None
        except BaseException:
            release()
            raise
        parts = upload.parts()
        return StreamedAnswer(
            partial(self.in_bulk, next, parts, b""),
            headers={
                "content-type": "text/csv; charset=utf-8",
                "content-disposition": 'attachment; filename="predicted.csv"',
            },
            end=end,
            stall_seconds=self.options.stall_seconds,
            release=release,
        )

    async def keep(self, request: Request, path: Path) -> None:
        """Write a body to disk."""
        limits = self.body_limits(self.options.max_upload_bytes)
        with path.open("wb") as file:
            async for part in body_parts(request, **limits):
                file.write(part)

    def body_limits(self, max_bytes: int) -> Any:
        seconds = {name: getattr(self.options, name) for name in ("body_seconds", "stall_seconds")}
        return {"max_bytes": max_bytes, **seconds}


def check_type(request: Request, wanted: str) -> None:
    """Refuse a body of another content type."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        got = f"got {given[:60]!r}" if given else "got none"
        raise refused(415, f"The content type must be {wanted}, {got}.", "header", "content-type")


def read_options(request: Request) -> PredictOptions:
    """The options of `sigmax predict` from a query."""
    query = request.query_params
    for name in query:
        if name not in ("coverage", "quantiles", "method"):
            raise refused(422, "must be coverage, quantiles or method", "query", name[:60])
    found: dict[str, Any] = {"method": query.get("method")}
    for name, read in {"coverage": float, "quantiles": read_levels}.items():
        try:
            if name in query:
                found[name] = read(query[name])
        except ValueError:
            rule = "a number" if name == "coverage" else "numbers separated by commas"
            raise refused(422, f"must be {rule} between 0 and 1", "query", name) from None
    options = PredictOptions(**found)
    try:
        options.check()
    except InvalidArgumentError as error:
        raise refused(422, str(error).replace("--", ""), "query") from None
    return options


def read_levels(text: str) -> tuple[float, ...]:
    return tuple(float(level) for level in text.split(",") if level.strip())


async def show_refusal(request: Request, error: Any) -> Response:
    return error.response()


async def show_http_error(request: Request, error: Any) -> Response:
    """Paths that do not exist, and methods that a path does not have."""
    response = refuse(error.status_code, f"{error.detail}.")
    response.headers.update(error.headers or {})
    return response


async def show_failure(request: Request, error: Exception) -> Response:
    """A mistake of ours: the server's log has it, the client does not."""
    log.error("no answer to %s: %r", request.url.path, error)
    return refuse(500, "The server failed to answer; its log says more.")
