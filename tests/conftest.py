"""Test-wide settings: strict shapes, and the data folder where there is one."""

import os
from pathlib import Path

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")

# What one test worker compiled, the other need not: compiling is most of what the tests do.
CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder that ``SIGMAX_DATA`` names; tests that need it are skipped without it."""
    folder = os.environ.get("SIGMAX_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SIGMAX_DATA names no folder of data sets")
    return Path(folder)
