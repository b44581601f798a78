"""Set up every test: one thread, no network, and with CHECK_SHAPES=1 checks of shapes by beartype."""

import os
import signal
import socket
from pathlib import Path

# A shell makes background jobs ignore SIGINT, and the processes that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ |= {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}

# With CHECK_SHAPES=1, beartype checks the shapes that the signatures of these modules state, in these tests
# only: a check of each call doubles the time of a decode.
CHECKED = (
    *("core.order", "core.layout", "core.attention", "core.method", "core.objective", "core.confidence"),
    *("core.selection", "core.decoding", "core.policies", "core.state", "core.sampling", "core.likelihood"),
    *(
        "core.cost",
        "core.distribution",
        "core.speculation",
        "core.remasking",
        "network.block",
        "network.transformer",
        "network.kernels",
        "network.memory",
        "network.fast",
    ),
    *("network.likelihood", "network.check"),
)
TESTS_OF_SHAPES = (
    *("test_blocks", "test_by_hand", "test_contract", "test_core_refusals", "test_decoding"),
    *("test_equivalences", "test_fast", "test_kernels", "test_likelihood", "test_methods", "test_objective"),
    *("test_off_distribution", "test_oracle", "test_order", "test_own_network"),
    *(
        "test_policies",
        "test_readout",
        "test_remasking",
        "test_selection",
        "test_speculation",
        "test_wrappers",
    ),
)
if os.environ.get("CHECK_SHAPES"):
    from jaxtyping import install_import_hook

    install_import_hook([f"latent_tokens.{name}" for name in CHECKED], "beartype.beartype")
    files = Path(__file__).parent.glob("test_*.py")
    collect_ignore = [file.name for file in files if file.stem not in TESTS_OF_SHAPES]
# The files with the most seconds of processor time, both tiers together.
LONGEST = (
    "test_processes", "test_fingerprints", "test_manual", "test_page", "test_wheel", "test_paper",
    "test_examples", "test_faults", "test_data", "test_compiling",
    "test_tasks", "test_frames", "test_cli", "test_claims", "test_fast", "test_precision",
    "test_checkpoints", "test_engine", "test_training",
    "test_bench", "test_oracle", "test_hub", "test_sudoku",
)  # fmt: skip

import pytest
import torch
from hypothesis import settings

from latent_tokens import METHODS, SIZES, TASKS, Transformer, left_to_right

settings.register_profile("house", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("house")


def variants():
    """Return every entry of METHODS, and combinations of fields that the paper leaves out."""
    from dataclasses import replace

    return {
        **METHODS,
        "windowed mdm": replace(METHODS["mdm"], window=2),
        "windowed scdm": replace(METHODS["scdm"], window=2),
        "left-to-right scdm": replace(METHODS["scdm"], order=left_to_right),
        "mdm, next targets": replace(METHODS["mdm"], targets="next"),
        "scdm, next targets": replace(METHODS["scdm"], targets="next"),
        "block-mdm-2": METHODS["block-mdm-2"],
    }


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the fast tests of shapes, and put the longest files first, so that both processes end together."""
    for item in items:
        if item.path.stem in TESTS_OF_SHAPES and "slow" not in item.keywords:
            item.add_marker("shapes")
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Refuse connections to other machines."""
    connect = socket.socket.connect

    def local(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            pytest.fail(f"a test reached for {address}")
        connect(self, address)

    monkeypatch.setattr("socket.socket.connect", local)


def pytest_generate_tests(metafunc):
    """Parametrize any_method over all variants."""
    if "any_method" in metafunc.fixturenames:
        methods = variants()
        metafunc.parametrize("any_method", methods.values(), ids=methods)


def untrained(size, factor):
    """Return an untrained network for 4x4 Sudoku. Its weights are large, so that its input matters."""
    torch.manual_seed(0)
    net = Transformer(SIZES[size], TASKS["sudoku-4"].vocab_size, TASKS["sudoku-4"].length).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 2:
                parameter.mul_(factor)
    return net


@pytest.fixture(scope="session")
def nano():
    return untrained("nano", 4)


@pytest.fixture(scope="session")
def pico():
    return untrained("pico", 8)
