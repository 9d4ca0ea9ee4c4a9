"""Test-wide settings: strict shapes, and the data folder where there is one."""

import os
from contextlib import contextmanager, nullcontext
from pathlib import Path

# Compiling is most of what the tests do, and most of what they compile runs for a moment only.
# Set before JAX is imported, so that programs that tests start have it, too.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# The older of XLA's two compilers of fused loops takes a third of the time of the newer one, and
# one module less than thirty-two, of which only idle cores would profit.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")

# What one test worker compiled, the other need not.
ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".pytest_cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


PROCESSES = ("GPRegressor", "SparseGPRegressor")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """One worker has all tests of an estimator, or of a file: what it compiled, it has.

    Tests that train for long share nothing, and go to whichever worker is free.
    """
    for item in items:
        if item.get_closest_marker("long") is None:
            item.add_marker(pytest.mark.xdist_group(group_of(item)))


def group_of(item) -> str:
    """The estimator that a test has as a parameter, or else its file."""
    from sigmax.estimators import AbstractRegressor

    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    kinds = [type(p).__name__ for p in parameters if isinstance(p, AbstractRegressor)]
    return kinds[0] if kinds else item.path.relative_to(ROOT).as_posix()


@contextmanager
def all_optimizations():
    """Programs are compiled as users have them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True)
def optimized_where_it_pays(request):
    """What trains for long, and Gaussian processes, run for longer than they compile."""
    is_long = request.node.get_closest_marker("long") is not None
    with all_optimizations() if is_long or group_of(request.node) in PROCESSES else nullcontext():
        yield


@pytest.fixture(scope="module")
def optimized():
    """For the fixtures of a module."""
    with all_optimizations():
        yield


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder that ``SIGMAX_DATA`` names; tests that need it are skipped without it."""
    folder = os.environ.get("SIGMAX_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SIGMAX_DATA names no folder of data sets")
    return Path(folder)
