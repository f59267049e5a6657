"""How many threads a process computes with; said once, by whoever owns the process, before any work."""

import os

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def set_threads(num_threads: int) -> None:
    """Use `num_threads` from now on, here and in processes started from here.

    Oversubscribed threads make small models 10 to 50 times slower, so no process leaves the number to chance.
    """
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(num_threads)
    import torch

    torch.set_num_threads(num_threads)
