"""Whether BoTorch is there, asked before anything of it is used."""

from importlib import import_module

from sigmax.errors import MissingExtraError

__all__ = ["check_botorch"]


def check_botorch() -> None:
    """Refuse in one sentence where BoTorch is missing."""
    try:
        import_module("botorch")
    except ImportError as error:
        message = 'sigmax.integrations.botorch needs BoTorch: pip install "sigmax[botorch]".'
        raise MissingExtraError(message) from error
