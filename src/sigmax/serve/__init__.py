"""A fitted model behind a web page and a JSON interface: `sigmax serve`."""

from sigmax.serve.options import ServeOptions

__all__ = ["ServeOptions"]
