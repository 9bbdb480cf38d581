"""Settings of all tests, and the devices they run on.

``pytest -m gpu`` runs what needs a GPU. Where there is none, those tests are skipped and one line says so.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded: waiting threads do not spin

import pytest  # noqa: E402
import torch  # noqa: E402

NO_DEVICE = "no CUDA device: GPU tests not run"


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a CUDA device")


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=NO_DEVICE))


def pytest_terminal_summary(terminalreporter):
    if any(NO_DEVICE in str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(NO_DEVICE)


@pytest.fixture(autouse=True)
def one_thread():
    """Thousands of tiny calls run faster on one thread than they take to wake a second."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    """Each device in turn."""
    return request.param
