"""HTTP server for a fitted model, a web page and a JSON API: `sigmax serve`."""

from sigmax.errors import MissingExtraError

with MissingExtraError.unless_imported("`sigmax serve` needs FastAPI and uvicorn", "serve"):
    import fastapi as _fastapi  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401

from sigmax.serve.limits import ServeOptions

__all__ = ["ServeOptions"]
