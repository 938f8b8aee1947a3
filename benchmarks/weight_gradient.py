"""The gradient of the weights of a 3 x 3 convolution: cuDNN's kernels beside one in Triton, right and in microseconds.

    python benchmarks/weight_gradient.py [--json FILE]          # on a GPU: compare and time
    TRITON_INTERPRET=1 python benchmarks/weight_gradient.py     # without one: only whether it is right, slowly

For the layers of WRN-28-2 with stride 1, images in channels_last, bfloat16. The profile of a training step shows these
kernels as the largest part of it. Deterministic: every program adds up its share of the pixels, a second kernel adds up
the shares in their order.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
    import triton.testing
except ImportError:
    print("nothing to try: this needs Triton, which comes with PyTorch for GPUs")
    sys.exit()

LAYERS = ((100, 32, 3, 16), (100, 32, 16, 32), (100, 32, 32, 32), (100, 16, 64, 64))
"""Images, side, channels in and out; with 128 channels the sums of a program do not fit into its registers."""


@triton.jit
def _shares(
    x,  # [pixels, inputs]
    gradient,  # [pixels, outputs]
    shares,  # [programs, 3, columns, outputs]
    pixels,
    each,  # pixels of a program, a multiple of `block`
    side: tl.constexpr,
    inputs: tl.constexpr,
    outputs: tl.constexpr,
    wide: tl.constexpr,  # inputs rounded up to a power of two
    block: tl.constexpr,
):
    program, down = tl.program_id(0), tl.program_id(1)
    column = tl.arange(0, 4 * wide)
    across, channel = column // wide, column % wide  # the fourth of the places across is empty
    out = tl.arange(0, outputs)
    total = tl.zeros((4 * wide, outputs), tl.float32)
    for begin in range(program * each, program * each + each, block):
        pixel = begin + tl.arange(0, block)
        row, place = (pixel // side) % side + down - 1, (pixel % side)[:, None] + across[None, :] - 1
        inside = (pixel < pixels) & (row >= 0) & (row < side)
        seen = inside[:, None] & (place >= 0) & (place < side) & (across < 3)[None, :] & (channel < inputs)[None, :]
        near = (pixel + (down - 1) * side)[:, None] + across[None, :] - 1
        value = tl.load(x + near * inputs + channel[None, :], seen, 0.0)
        slope = tl.load(gradient + pixel[:, None] * outputs + out[None, :], (pixel < pixels)[:, None], 0.0)
        total += tl.dot(tl.trans(value), slope)
    at = ((program * 3 + down) * 4 * wide + column)[:, None] * outputs + out[None, :]
    tl.store(shares + at, total, (across < 3)[:, None] & (channel < inputs)[:, None])


@triton.jit
def _added(
    shares,
    result,  # [outputs, 3, 3, inputs]
    programs,
    inputs: tl.constexpr,
    outputs: tl.constexpr,
    wide: tl.constexpr,
    block: tl.constexpr,
):
    place = tl.program_id(0) * block + tl.arange(0, block)  # outputs fastest, as the shares lie
    out, channel = place % outputs, (place // outputs) % inputs
    across, down = (place // (outputs * inputs)) % 3, place // (outputs * inputs * 3)
    fine = place < 9 * inputs * outputs
    at = ((down * 4 + across) * wide + channel) * outputs + out
    total = tl.zeros((block,), tl.float32)
    for program in range(programs):
        total += tl.load(shares + program * (12 * wide * outputs) + at, fine, 0.0)
    tl.store(result + ((out * 3 + down) * 3 + across) * inputs + channel, total.to(result.dtype.element_ty), fine)


def ours(x: Tensor, gradient: Tensor, programs: int, block: int, warps: int, stages: int) -> Tensor:
    """The gradient of the weights, [outputs, inputs, 3, 3] in channels_last."""
    (images, inputs, side, _), outputs = x.shape, gradient.shape[1]
    wide = max(8, triton.next_power_of_2(inputs))
    pixels = images * side * side
    each = triton.cdiv(triton.cdiv(pixels, programs), block) * block
    programs = triton.cdiv(pixels, each)
    shares = torch.empty(programs, 3, 4 * wide, outputs, device=x.device)
    result = torch.empty(outputs, 3, 3, inputs, device=x.device, dtype=x.dtype)
    _shares[programs, 3](
        x, gradient, shares, pixels, each, side, inputs, outputs, wide, block, num_warps=warps, num_stages=stages
    )
    _added[(triton.cdiv(result.numel(), 128),)](shares, result, programs, inputs, outputs, wide, 128, num_warps=4)
    return result.permute(0, 3, 1, 2)


def theirs(x: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
    """The same by cuDNN (on a CPU by PyTorch)."""
    one = [1, 1]
    only = [False, True, False]
    found = torch.ops.aten.convolution_backward(gradient, x, weight, [0], one, one, one, False, [0, 0], 1, only)
    return found[1]  # type: ignore[no-any-return]


def microseconds(call: Callable[[], Any]) -> dict[str, float]:
    """Of one call, in a CUDA graph."""
    middle, low, high = triton.testing.do_bench_cudagraph(call, quantiles=[0.5, 0.25, 0.75])
    return {"median": 1e3 * middle, "lower": 1e3 * low, "upper": 1e3 * high}


def layer(shape: tuple[int, ...], device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Random rows, gradients and weights of a layer."""
    images, side, inputs, outputs = shape
    draw = torch.Generator().manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    shapes = ((images, inputs, side, side), (images, outputs, side, side), (outputs, inputs, 3, 3))
    made = [torch.randn(shape, generator=draw).to(device, dtype) for shape in shapes]
    x, gradient, weight = (tensor.contiguous(memory_format=torch.channels_last) for tensor in made)
    return x, gradient, weight


def compared(shape: tuple[int, ...], device: str) -> dict[str, Any]:
    """How far ours is from float64, and the time of each choice beside cuDNN's."""
    x, gradient, weight = layer(shape, device)
    exact = theirs(x.cpu().double(), gradient.cpu().double(), weight.cpu().double())
    choices = [(132, 64, 4, 3)] if device == "cpu" else [
        (programs, block, warps, stages)
        for programs in (44, 88, 132) for block in (64, 128) for warps in (4, 8) for stages in (2, 4)
    ]  # fmt: skip
    told: dict[str, Any] = {"layer": shape, "ours": {}}
    for choice in choices:
        try:
            found = ours(x, gradient, *choice)
        except triton.runtime.errors.OutOfResources:  # too much shared memory
            continue
        told["error"] = float((found.cpu().double() - exact).norm() / exact.norm())
        again = torch.equal(found, ours(x, gradient, *choice))
        assert again and told["error"] < (1e-2 if device == "cuda" else 1e-5), (shape, choice, told["error"], again)
        if device == "cuda":
            told["ours"][str(choice)] = microseconds(lambda c=choice: ours(x, gradient, *c))
    if device == "cuda":
        told["cudnn"] = microseconds(lambda: theirs(x, gradient, weight))
        told["best"] = min(told["ours"], key=lambda name: told["ours"][name]["median"])
    return told


def main() -> None:
    """Compare, time, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        print("without a GPU this needs TRITON_INTERPRET=1")
        return
    torch.backends.cudnn.deterministic = True
    found = []
    for shape in LAYERS if device == "cuda" else [(2, side, *rest) for _, side, *rest in LAYERS]:
        found.append(told := compared(shape, device))
        line = f"{shape!s:22} error {told['error']:.1e}"
        if device == "cuda":
            best = told["ours"][told["best"]]["median"]
            line += f"  cuDNN {told['cudnn']['median']:6.1f} us  ours {best:6.1f} us  {told['best']}"
        print(line, flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
