"""HTTP server for a fitted model, a web page and a JSON API: `sigmax serve`."""

from sigmax.errors import MissingExtraError

try:
    import fastapi as _fastapi  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "`sigmax serve` needs FastAPI and uvicorn: pip install 'sigmax[serve]'."
    ) from error

from sigmax.serve.limits import ServeOptions

__all__ = ["ServeOptions"]
