"""What the cases of `torch_ranks.py` and `torch_ends.py` look at."""

import torch


def same(tensor, expected):
    assert torch.equal(tensor, torch.as_tensor(expected, dtype=tensor.dtype)), (tensor, expected)


def fails(text, call, error=Exception):
    """What a call says that fails, when it is made or when it is waited for."""
    try:
        work = call()
        if work is not None:
            work.wait()
    except error as said:
        # Through a future torch makes errors its own; the text stays.
        assert text in str(said), said
    else:
        raise AssertionError(f"nothing said {text!r}")
