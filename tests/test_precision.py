"""The rounding of float32: turned and put back by whichever interface a program has used before."""

import subprocess
import sys

import pytest
import torch

BEGINNINGS = {
    "nothing chosen": "pass",
    "older, products": "torch.set_float32_matmul_precision('medium')",
    "older, convolutions": "torch.backends.cudnn.allow_tf32 = False",
    "newer, everything": "torch.backends.fp32_precision = 'tf32'",
    "newer, products": "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "newer, convolutions": "torch.backends.cudnn.fp32_precision = 'tf32'",
}
QUICK = ["nothing chosen", "newer, everything"]  # a process takes some seconds to begin
SLOW = [name for name in BEGINNINGS if name not in QUICK]
PROGRAM = """
import torch
from ns3l.precision import rounding
{beginning}

def older():
    try:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return "refused"

def state():
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    return older(), matmul.fp32_precision, conv.fp32_precision, torch.backends.fp32_precision

def fails():
    with rounding("ieee", "ieee"):
        raise KeyError

before = state()
with rounding("ieee", "ieee"):
    inside = torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision
    assert not set(inside) & {{"tf32", "bf16"}}, inside
assert state() == before, (before, state())
try:
    fails()
except KeyError:
    assert state() == before, (before, state())
with rounding("tf32"):
    assert before[0] == "refused" or older()[0] == "high", older()  # a compiler looks at the older switches
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert torch.backends.cudnn.conv.fp32_precision == before[2]
    with rounding("ieee", "ieee"):
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
assert older() == before[0]
"""


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="PyTorch has one interface")
@pytest.mark.parametrize("beginning", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_it_is_turned_and_put_back(beginning):
    """In a process of its own: PyTorch cannot forget which interface was used."""
    code = PROGRAM.format(beginning=BEGINNINGS[beginning])
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
