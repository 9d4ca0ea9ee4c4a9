"""Test-wide settings: strict shapes, and the data folder where there is one."""

import os
import re
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
# Programs that tests start keep theirs to themselves.
os.environ.setdefault("SIGMAX_PROGRAM_CACHE", "off")

import hypothesis
import jax
import pytest

hypothesis.settings.register_profile("any speed", deadline=None)
hypothesis.settings.load_profile("any speed")

collect_ignore_glob = ["conftest.py", "*/conftest.py"]
"""Nothing to run in them, and two modules of one name cannot both be searched for examples."""

jax.config.update("jax_numpy_rank_promotion", "raise")

# What one test worker compiled, the other need not.
ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".pytest_cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


SLOW = re.compile(
    "|".join(
        [
            # Ray, other devices, browsers, sockets, and processes that are started
            r"tests/test_ray_nodes\.py",
            r"tests/training/test_ray(_gpus)?\.py::test_(?!without_the_extra)",
            r"tests/estimators/test_devices\.py",
            r"tests/(report/test|serve/test_serve)_browser\.py",
            r"tests/serve/test_clients\.py::test_(?!headers)",
            r"tests/serve/test_openapi\.py::test_made_up",
            r"tests/runs/test_runner\.py::test_(killed|interrupted|a_worker|workers|a_ray)",
            r"tests/test_peers\.py::test_(the_command|a_density)",
            r"tests/serve/test_serve_command\.py::test_a_process",
            r"tests/commands/test_predict\.py::test_standard_input",
            r"tests/training/test_loop\.py.*four_devices",
            # The site, the examples, the experiments of the paper
            r"tests/test_docs\.py.*(site|api)",
            r"tests/test_examples\.py::test_(an_example|drawn|notebooks)",
            r"tests/test_nano_combined\.py::test_fits",
            r"tests/paper/test_(generative|gradients)\.py",
            r"tests/paper/test_benchmark\.py::test_(active|scores_are)",
            r"tests/test_cli\.py::test_(toy|weather)",
            r"tests/commands/test_demo\.py::test_(the_demo|every)",
            # Other packages
            r"tests/integrations/test_(botorch|onnx|skpro|torch)\.py",
            r"tests/integrations/test_optuna\.py::test_(?!rows|without)",
            # Many fits, long ones, and much to compile
            r"src/sigmax/(estimators\.py|integrations/).*(Regressor|Sampler)",
            r"tests/(estimators|generative)/.*(Bayesian|MCDropout|SparseGP|Combined)Regressor",
            r"tests/estimators/test_(programs|known_truth)\.py",
            r"tests/experts/test_gp_hyper\.py.*(markov|student_t|200_rows_the)",
            r"tests/experts/test_without_jax\.py.*command",
            r"tests/experts/test_stream\.py::test_(?!a_fit_that|equal|shards_hold|weights)",
            r"tests/commands/test_fit_many\.py::test_(?!a_folder|few|what_is_learned)",
            r"tests/estimators/test_outputs_together\.py.*noise\[Sigmax",
            r"tests/estimators/test_atoms\.py::test_(draws|zeros)",
            r"tests/commands/test_evaluate\.py::test_a_report_(names|of_new)",
            r"tests/commands/test_fit_command\.py::test_(the_report_shows|too_few|a_leak)",
            r"tests/experts/test_(censored|known_errors)\.py::test_(the_scores|densities)",
            r"tests/test_scoringbench\.py::test_mean",
            r"tests/estimators/test_counts\.py::test_wide",
            r"tests/experts/test_recalibration\.py::test_two_rows",
            r"tests/estimators/test_fit\.py::test_(a_member_that|dropout|parameters)",
            r"tests/networks/test_gate\.py::test_new_rows",
            r"tests/experts/test_gaussian_process\.py.*(sparse|gpjax|finite_differences)",
            r"tests/experts/local/test_local\.py::test_more_rows",
            r"tests/estimators/test_oddities\.py::test_legal",
            r"tests/experts/test_stochastic\.py::test_(gradients|perturbations|each_row)",
            r"tests/tables/test_profile\.py.*real_tables",
            r"tests/test_batches\.py::test_covariances",
            r"tests/test_compilation\.py.*forgotten",
            r"tests/test_monitoring\.py::test_without_drift",
            r"tests/test_pinned\.py.*(Bayesian|MCDropout|SparseGP|VAE|paper|varying|LocalRegressor-)",
            r"tests/experts/local/test_network\.py::test_(each_row|held_out|gradients_are)",
        ]
    )
)
"""Names of tests that `make test` leaves out and `make test-all` runs."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark slow tests."""
    for item in items:
        if SLOW.match(item.nodeid):
            item.add_marker("slow")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """One worker has all tests of an estimator, or of a file: what it compiled, it has.

    Tests that train for long share a fixture of their file or, if they have parameters, nothing.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByEstimator(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            is_alone = config.option.markexpr == "long" and "[" in nodeid
            return nodeid if is_alone else group_of(nodeid)

    return ByEstimator(config, log)


def group_of(nodeid: str) -> str:
    """The estimator among the parameters of a test, or else the test's file."""
    found = re.search(r"\[.*?\b(\w+Regressor)\b", nodeid)
    return found[1] if found else nodeid.split("::")[0]


@contextmanager
def all_optimizations():
    """Programs are optimised as users have them; with ``XLA_FLAGS=`` they are the same."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


EXAMPLES_OF_PROCESSES = ("botorch_optimisation", "optuna_sampler")


@pytest.fixture(autouse=True)
def optimized_where_it_pays(request):
    """What trains for long, and Gaussian processes, run for longer than they compile."""
    is_long = request.node.get_closest_marker("long") is not None
    is_process = group_of(request.node.nodeid) in ("GPRegressor", "SparseGPRegressor")
    is_process |= any(f"[{name}]" in request.node.nodeid for name in EXAMPLES_OF_PROCESSES)
    with all_optimizations() if is_long or is_process else nullcontext():
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


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their argument: those of an archive hold the time it was made."""
    return argname if isinstance(val, bytes) else None
