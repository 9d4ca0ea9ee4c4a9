"""Parts predicted by the workers of a Ray cluster, through Ray Data."""

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from sigmax.commands.folder import load_folder
from sigmax.commands.predict_run import Run
from sigmax.commands.predict_writing import predict_unit
from sigmax.errors import InvalidDataError, SigmaxError
from sigmax.ray_session import DEVICES, import_ray, ray_session
from sigmax.tables.file_units import Unit

__all__ = ["RayPool"]


@final
@dataclass(frozen=True, kw_only=True)
class RayPool:
    """Workers of the cluster at ``address``, or of one on this machine for the time of the run.

    Each loads the model once, from files that are sent to it, and has one core, or one GPU if that
    is the ``device``. A worker that dies, with its machine or alone, costs the part that it was
    at, which another one begins anew. Inputs and the folder of the parts must be the same places
    on every machine of the cluster.
    """

    address: str | None = None
    n_workers: int | None = None
    """Without a number, one for every core, or every GPU, of the cluster."""
    device: str = "auto"

    def predict(
        self, files: Mapping[str, bytes], run: Run, units: Sequence[Unit]
    ) -> Iterator[Unit]:
        """Every unit when its part is written.

        Raises
        ------
        SigmaxError
            If a part cannot be predicted.
        """
        if not units:
            return
        by_number = {unit.number: unit for unit in units}
        with ray_session(self.address, self.n_workers) as ray, without_warnings():
            try:
                for row in self.dataset(ray, files, run, units).iter_rows():
                    if row["trouble"]:
                        raise InvalidDataError(row["trouble"])
                    yield by_number[row["number"]]
            except ray.exceptions.RayError as error:
                text = str(error).strip().splitlines()[-1]
                raise SigmaxError(f"The Ray cluster could not predict all parts: {text}") from error

    def dataset(self, ray: Any, files: Mapping[str, bytes], run: Run, units: Sequence[Unit]) -> Any:
        """A lazy data set with a row for every part.

        Its items are units, each a block of its own, so that a part is what a worker is given at a
        time; the rows themselves do not pass through Ray's store.
        """
        from ray.data import ActorPoolStrategy, DataContext, from_items

        DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)  # notes of Ray about itself
        needs_gpu = self.device == "gpu"
        resource = "GPU" if needs_gpu else "CPU"
        n_there = int(ray.cluster_resources().get(resource, 1))
        n_workers = min(self.n_workers or n_there, len(units))
        items = [{"unit": json.dumps(unit)} for unit in units]
        return from_items(items, override_num_blocks=len(items)).map_batches(
            PartWorker,
            fn_constructor_args=(ray.put(dict(files)), run, DEVICES[self.device]),
            batch_size=1,
            compute=ActorPoolStrategy(size=n_workers),
            num_cpus=0 if needs_gpu else 1,
            num_gpus=int(needs_gpu),
        )


@final
class PartWorker:
    """A worker's life: the model, loaded once, and one unit after the other."""

    def __init__(self, files: Any, run: Run, platform: str | None):
        ray = import_ray()
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        if platform is not None:
            import jax

            jax.config.update("jax_platforms", platform)
        with tempfile.TemporaryDirectory(prefix="sigmax-") as folder:
            for name, content in ray.get(files).items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.saved = load_folder(Path(folder))
        self.run = run

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        unit = Unit(*json.loads(str(batch["unit"][0])))
        trouble = ""
        try:
            predict_unit(self.saved, self.run, unit)
        except SigmaxError as error:
            trouble = str(error)
        return {"number": np.array([unit.number]), "trouble": np.array([trouble])}


@contextmanager
def without_warnings() -> Iterator[None]:
    """No warnings that are meant for the authors of Ray Data."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning, UserWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        yield
