"""Test-wide settings: strict shapes, and the data folder where there is one."""

import os
from pathlib import Path

# Compiling is most of what the tests do, and most of what they compile runs for a moment only.
# Set before JAX is imported, so that programs that tests start have it, too.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")

# What one test worker compiled, the other need not.
CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(scope="module")
def optimized():
    """Programs of tests that train for long are compiled as users have them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder that ``SIGMAX_DATA`` names; tests that need it are skipped without it."""
    folder = os.environ.get("SIGMAX_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SIGMAX_DATA names no folder of data sets")
    return Path(folder)
