"""Settings of all tests."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Thousands of tiny calls run faster on one thread than they take to wake a second."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
