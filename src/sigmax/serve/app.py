"""FastAPI application of one model: paths, error responses and the OpenAPI document."""

# pyright: reportInvalidTypeForm=false
# The types of requests depend on the columns of the model, so they are variables.

import asyncio
import logging
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, final

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, Response
from fastapi.security import HTTPBearer
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, PackageLoader
from starlette.exceptions import HTTPException as StarletteHTTPException

from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.serve.columns import form_field
from sigmax.serve.limits import (
    CSV_PATH,
    RequestGuard,
    ServeOptions,
    http_error,
    http_error_response,
)
from sigmax.serve.predictions import QUICK_ROWS, Predictor, predict_upload
from sigmax.serve.requests import (
    CsvQuery,
    DensityResponse,
    DistributionResponse,
    ErrorResponse,
    ExplainResponse,
    HealthResponse,
    PredictResponse,
)
from sigmax.table_model import PredictOptions, SavedTableModel
from sigmax.version import __version__

TEMPLATES = Environment(autoescape=True, loader=PackageLoader("sigmax.serve"))
STATIC = Path(__file__).parent / "static"
MAX_QUICK_LEVELS = 16
"""Quantiles and probabilities of a request that is answered in a batch with others."""
MAX_ERRORS = 20
ERRORS = {
    400: "The body is not JSON, or the host name is unknown",
    401: "The token is missing or wrong",
    408: "The request body did not arrive in time",
    413: "Too many bytes or rows",
    415: "Wrong content type",
    422: "A field or cell is missing or wrong; `loc` names it",
    429: "Too many requests at the same time: try again after Retry-After seconds",
    431: "Path and headers are too long",
    503: "Too many connections",
    504: "The response took too long",
}
CSV = {"text/csv": {"schema": {"type": "string"}}}

Json = dict[str, Any]


def create_app(
    saved: SavedTableModel, options: ServeOptions, *, warm_up: bool = True
) -> RequestGuard:
    """Application of a model, with all functions compiled."""
    options.check()
    predictor = Predictor(saved)
    if warm_up:
        predictor.warm_up()
    service = Service(predictor, options)
    app = FastAPI(
        title=f"sigmax: {saved.target}",
        version=__version__,
        description=f"Predictive distributions of {saved.target}, from a model trained on"
        f" {saved.metadata['rows']['with_target']:,} rows of {saved.metadata['source']}.",
        docs_url=None,
        redoc_url=None,
        exception_handlers={
            RequestValidationError: show_validation_errors,
            StarletteHTTPException: http_error_response,
            Exception: show_failure,
        },
    )
    app.mount("/static", StaticFiles(directory=STATIC, packages=[("sigmax.report", "static")]))
    add_page(app, predictor, options)
    add_json_paths(app, service)
    add_csv_path(app, service)
    return RequestGuard(app, options)


@final
class Batcher:
    """Answer small requests that arrive at the same time in one call of ``predict``.

    A prediction of 64 rows takes as long as one of a single row: requests that arrive while a batch
    is computed form the next batch. No request waits for others to arrive. If a batch fails, each
    of its requests is predicted alone.
    """

    def __init__(self, predict: Callable[[list[Any]], list[Json]]):
        self.predict = predict
        self.waiting: deque[tuple[Any, asyncio.Future[Json]]] = deque()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="sigmax-batches")
        self.task: asyncio.Task[None] | None = None

    async def __call__(self, request: Any) -> Json:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Json] = loop.create_future()
        self.waiting.append((request, future))
        task = self.task
        if task is None or task.done() or task.get_loop() is not loop:  # which may be closed
            self.task = loop.create_task(self.work())
        return await future

    async def work(self) -> None:
        loop = asyncio.get_running_loop()
        while batch := self.next_batch():
            requests = [request for request, _ in batch]
            results = await loop.run_in_executor(self.thread, self.results, requests)
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():  # the request was cancelled
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def next_batch(self) -> list[tuple[Any, asyncio.Future[Json]]]:
        """Requests in the order of their arrival, without cancelled ones."""
        batch, n_rows = [], 0
        while self.waiting:
            request, future = self.waiting[0]
            if not future.done():
                n_rows += len(request.all_rows)
                if batch and n_rows > QUICK_ROWS:
                    break
                batch.append((request, future))
            self.waiting.popleft()
        return batch

    def results(self, requests: list[Any]) -> list[Json | Exception]:
        try:
            return [*self.predict(requests)]
        except Exception as error:
            if len(requests) == 1:
                return [error]
            return [self.results([request])[0] for request in requests]


@final
class Service:
    """State that all requests share: the model, two threads, and slots for parallel requests."""

    def __init__(self, predictor: Predictor, options: ServeOptions):
        self.predictor, self.options = predictor, options
        self.quick = Batcher(predictor.predict_batch)
        self.bulk = ThreadPoolExecutor(1, thread_name_prefix="sigmax-bulk")
        self.parallel = asyncio.Semaphore(options.max_parallel)
        self.uploads = asyncio.Semaphore(options.max_uploads)

    def route(self, content_type: str) -> dict[str, Any]:
        """Settings that paths with a request body have in common."""
        dependencies = [Depends(partial(check_content_type, content_type))]
        if self.options.token is not None:  # for the document; `RequestGuard` checks the token
            dependencies.append(Depends(HTTPBearer(scheme_name="token", auto_error=False)))
        return {
            "dependencies": dependencies,
            "responses": error_responses(*ERRORS),
            "response_model_exclude_unset": True,
        }

    async def respond(self, function: Callable[..., Awaitable[Json]], *arguments: Any) -> Json:
        """A response to a JSON request, within the limits on time and on parallel requests."""
        async with slot(self.parallel, f"{self.options.max_parallel:,} requests"):
            seconds = self.options.request_seconds
            try:
                return await asyncio.wait_for(function(*arguments), seconds)
            except TimeoutError:
                raise http_error(504, f"No response within {seconds:g} seconds.") from None
            except (InvalidArgumentError, InvalidDataError) as error:
                raise http_error(422, str(error), "body") from None

    async def predict(self, request: Any, n_levels: int = 0) -> Json:
        """Predict a small request in a batch with others, a large one in the other thread."""
        if len(request.all_rows) <= QUICK_ROWS and n_levels <= MAX_QUICK_LEVELS:
            return await self.quick(request)
        return (await self.in_bulk(self.predictor.predict_batch, [request]))[0]

    async def in_bulk(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.bulk, function, *arguments)


def add_page(app: FastAPI, predictor: Predictor, options: ServeOptions) -> None:
    """Add the page, the form for the token and the state of the server."""
    rows = predictor.format
    page = TEMPLATES.get_template("page.html").render(
        target=predictor.saved.target,
        metadata=predictor.saved.metadata,
        fields=[form_field(rows.by_name[n], rows.typical[n]) for n in predictor.saved.important],
        has_neighbors=predictor.has_neighbors,
        atoms=predictor.saved.atoms,
        options=options,
    )

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page)

    @app.head("/health", include_in_schema=False)
    @app.get("/health", response_model=HealthResponse, responses=error_responses(400, 431))
    async def health() -> Json:
        """State of the server."""
        return {"status": "ok", "target": predictor.saved.target, "version": __version__}


def add_json_paths(app: FastAPI, service: Service) -> None:
    """Add the paths that take rows in JSON, with the columns of the model as types."""
    predictor = service.predictor
    models = predictor.request_models(service.options.max_rows)
    PredictRequest, DistributionRequest, DensityRequest, ExplainRequest = models
    route = service.route("application/json")

    @app.post("/predict", response_model=PredictResponse, **route)
    async def predict(request: PredictRequest) -> Json:
        """Mean, standard deviation and interval of each row."""
        return await service.respond(service.predict, request)

    @app.post("/predict_dist", response_model=DistributionResponse, **route)
    async def predict_dist(request: DistributionRequest) -> Json:
        """Quantiles of each row, and probabilities of values."""
        n_levels = len(request.probabilities) + len(request.values)
        return await service.respond(service.predict, request, n_levels)

    @app.post("/density", response_model=DensityResponse, **route)
    async def density(request: DensityRequest) -> Json:
        """Density of one row and its nearest training rows, as shown on the page."""
        return await service.respond(service.in_bulk, predictor.density, request)

    @app.post("/explain", response_model=ExplainResponse, **route)
    async def explain(request: ExplainRequest) -> Json:
        """Change of the standard deviation of one row by knowing each of its columns."""
        return await service.respond(service.in_bulk, predictor.explain, request)


def add_csv_path(app: FastAPI, service: Service) -> None:
    options = service.options

    async def receive_file(request: Request) -> AsyncIterator[Path]:
        """Write a request body to disk until the response has been sent."""
        async with slot(service.uploads, f"{options.max_uploads:,} files"):
            with tempfile.TemporaryDirectory(prefix="sigmax-") as folder:
                path = Path(folder) / "rows.csv"
                with path.open("wb") as file:
                    async for part in request.stream():
                        file.write(part)
                yield path

    route = service.route("text/csv")
    route["openapi_extra"] = {"requestBody": {"required": True, "content": CSV}}
    route["responses"][200] = {"description": "The rows with their predictions", "content": CSV}

    @app.post(CSV_PATH, response_class=FileResponse, **route)
    async def predict_csv(
        query: Annotated[CsvQuery, Query()], path: Annotated[Path, Depends(receive_file)]
    ) -> FileResponse:
        """Rows of a CSV file with their predictions in further columns."""
        chosen = PredictOptions(**query.model_dump())
        try:
            chosen.check()
        except InvalidArgumentError as error:
            raise http_error(422, str(error).replace("--", ""), "query") from None
        work = asyncio.to_thread(
            predict_upload, service.predictor.saved, path, chosen, options.max_upload_rows
        )
        try:
            out = await asyncio.wait_for(work, options.upload_seconds)
        except TimeoutError:
            raise http_error(504, "The file took too long to predict.", "body") from None
        return FileResponse(out, filename=out.name, media_type="text/csv")


@asynccontextmanager
async def slot(semaphore: asyncio.Semaphore, limit: str) -> AsyncIterator[None]:
    """A free slot; without one, the client should try again after a second."""
    if semaphore.locked():
        message = f"The server processes at most {limit} at the same time: try again."
        raise http_error(429, message, retry_after="1")
    async with semaphore:
        yield


async def check_content_type(expected: str, request: Request) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != expected:
        message = f"The content type must be {expected}, got {given[:60]!r}."
        raise http_error(415, message, "header", "content-type")


def error_responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: {"model": ErrorResponse, "description": ERRORS[code]} for code in codes}


async def show_validation_errors(request: Request, error: Any) -> Response:
    """Response with the place and the message of each error, without the rest of the input."""
    errors, status = error.errors()[:MAX_ERRORS], 422
    for one in errors:
        value = one["input"]
        if one["type"] == "json_invalid":
            status, one["msg"] = 400, f"The body is not JSON: {one['ctx']['error']}"
        elif one["type"] == "too_long" and one["loc"] == ("body", "rows"):
            status = 413
        elif value is None or isinstance(value, str | int | float):
            shown = repr(value).encode(errors="backslashreplace").decode()
            one["msg"] += f", got {shown if len(shown) <= 60 else shown[:57] + '...'}"
    detail = [{"loc": one["loc"], "msg": one["msg"]} for one in errors]
    return await http_error_response(request, HTTPException(status, detail))


async def show_failure(request: Request, error: Exception) -> Response:
    """Response to a failure of the server, whose cause is only in its log."""
    logging.getLogger("sigmax.serve").error("no response to %s: %r", request.url.path, error)
    return await http_error_response(request, http_error(500, "The server failed; see its log."))
