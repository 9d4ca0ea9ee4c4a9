"""Where `sigmax fit` trains: in its own process, or on a Ray cluster."""

from contextlib import AbstractContextManager, nullcontext

from sigmax.checks import check_choice
from sigmax.commands.fit_options import FITTED
from sigmax.errors import InvalidArgumentError
from sigmax.ray_session import DEVICES
from sigmax.runs.engines import check_engine
from sigmax.training import on_ray

__all__ = ["training_place"]


def training_place(
    engine: str,
    method: str,
    *,
    address: str | None = None,
    n_workers: int | None = None,
    device: str = "auto",
) -> AbstractContextManager[None]:
    """A block in which members are trained where the options say.

    Raises
    ------
    InvalidArgumentError
        If the options do not go together.
    """
    check_choice("device", device, DEVICES)
    if not check_engine(engine, address):
        if n_workers is not None:
            raise InvalidArgumentError("`--workers` are those of Ray: it needs `--engine ray`.")
        if device != "auto":
            raise InvalidArgumentError(
                "`--device` is for `--engine ray`; here JAX takes the device that it finds, and"
                " the variable JAX_PLATFORMS=cpu keeps to the CPU."
            )
        return nullcontext()
    if not FITTED[check_choice("--method", method, FITTED)].is_network:
        raise InvalidArgumentError(
            f"`--engine ray` trains members, which {method!r} has not: leave it out."
        )
    return on_ray(address, n_workers, device)
