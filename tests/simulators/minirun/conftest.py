"""One thread, as a worker has: more of them spin on shared cores, and sum in another order."""

from importlib.util import find_spec

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)
