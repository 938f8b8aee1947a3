"""How precise a device is: its widest numbers, and how float32 is rounded on a GPU, by either interface of PyTorch"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Rounding = Literal["ieee", "tf32"]


def widest(device: torch.device) -> torch.dtype:
    """Float64, where the device has it: Apple's MPS does not."""
    return torch.float32 if device.type == "mps" else torch.float64


@contextmanager
def rounding(products: Rounding, convolutions: Rounding | None = None) -> Iterator[None]:
    """Within it float32 products and convolutions are rounded so (None: as before); afterwards all is as it was.

    Where a program has chosen by `torch.backends...fp32_precision`, the older switches refuse to answer; where it has
    not, they must be the ones that are turned, for a compiler looks at them.
    """
    write = _write_older if _older_answers() else _write_newer
    before = write(products, convolutions)
    try:
        yield
    finally:
        write(*before)


def _older_answers() -> bool:
    try:
        torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return False
    return True


def _write_older(products: str, convolutions: str | None) -> tuple[str, str | None]:
    """Turn the switches; what they were. Products may also be "medium", convolutions cannot."""
    words = {"ieee": "highest", "tf32": "high"}
    before = torch.get_float32_matmul_precision(), "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"
    if before[0] != words.get(products, products):  # a switch that is turned to where it stands marks others as chosen
        torch.set_float32_matmul_precision(words.get(products, products))
    if convolutions and before[1] != convolutions:
        torch.backends.cudnn.allow_tf32 = convolutions == "tf32"
    return before


def _write_newer(products: str, convolutions: str | None) -> tuple[str, str | None]:
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = matmul.fp32_precision, conv.fp32_precision
    matmul.fp32_precision, conv.fp32_precision = products, convolutions or before[1]
    return before
