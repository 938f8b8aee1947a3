"""Stateless randomness: every draw is a function of (seed, stream name, step).

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) in int64 tensor arithmetic. All
that turns bits into numbers is integer arithmetic, table lookup and exact scaling, so the same bits come on a CPU and
on a GPU, eager, compiled or captured. Nothing here reads or moves a global random state. Eagerly on a CPU NumPy makes
the same words, three times as fast, and those of small draws for some steps at once.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import index
from statistics import NormalDist
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_UNIT = 26  # tables hold numbers in units of 2^-26
_CELLS = 2048  # cells of a table, one more entry than that
_LEVELS = 8192  # of coarse noise
_AHEAD = 16  # steps whose small draws are made at once on a CPU
_SMALL = 1024  # blocks of four words


F = TypeVar("F", bound=Callable[..., object])


def _constant(function: F) -> F:
    """Mark a result that a compiler may keep: torch.compiler.assume_constant_result without its import time."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def philox(counter: Sequence[int | Tensor] | Tensor, key: Sequence[int | Tensor]) -> Tensor:
    """Philox4x32-10 of counters (four words) under a key of two 32-bit words: four random 32-bit words each, as int64.

    Word by word, so that a compiler makes one kernel of it. The multipliers are taken less 2^32, for then no product
    overflows, which C++ leaves undefined; and from a tensor, for Triton would multiply places by numbers in 32 bits.
    """
    c0, c1, c2, c3 = counter
    below = _integers("multipliers", 0.0, torch.as_tensor(c0).device)
    for i in range(_ROUNDS):
        k0, k1 = ((word + i * weyl) & _MASK for word, weyl in zip(key, _WEYL, strict=True))
        first, second = c0 * below[0], c2 * below[1]
        c0, c2 = (((second >> 32) + c2) & _MASK) ^ c1 ^ k0, (((first >> 32) + c0) & _MASK) ^ c3 ^ k1
        c1, c3 = second & _MASK, first & _MASK
    return torch.stack((c0, c1, c2, c3))  # type: ignore[arg-type]  # tensors by now


def host_words(seed: int, stream: int, step: int, blocks: int, steps: int = 1) -> np.ndarray:
    """The words [4, steps, blocks] of a stream from a step on: `philox` in NumPy, in place where it can."""
    number = np.arange(step, step + steps, dtype=np.int64).view(np.uint64)
    shape = (steps, blocks)
    c0, c1, c2, c3 = words = np.empty((4, *shape), np.uint64)
    c0[:], c1[:] = np.arange(blocks, dtype=np.uint64), (number & np.uint64(_MASK))[:, None]
    c2[:], c3[:] = stream, (number >> np.uint64(32))[:, None]
    first, second = np.empty(shape, np.uint64), np.empty(shape, np.uint64)
    for i in range(_ROUNDS):
        keys = [np.uint64((word + i * weyl) & _MASK) for word, weyl in zip(_words(seed), _WEYL, strict=True)]
        np.multiply(c0, np.uint64(_MULTIPLIERS[0]), out=first)
        np.multiply(c2, np.uint64(_MULTIPLIERS[1]), out=second)
        np.right_shift(second, np.uint64(32), out=c0)
        c0 ^= c1
        c0 ^= keys[0]
        np.right_shift(first, np.uint64(32), out=c2)
        c2 ^= c3
        c2 ^= keys[1]
        np.bitwise_and(second, np.uint64(_MASK), out=c1)
        np.bitwise_and(first, np.uint64(_MASK), out=c3)
    return words


@lru_cache(maxsize=256)
def _words_ahead(seed: int, stream: int, first: int, blocks: int) -> np.ndarray:
    return host_words(seed, stream, first, blocks, _AHEAD).astype(np.uint32)


def _some_words(seed: int, stream: int, step: int, count: int) -> np.ndarray:
    blocks = (count + 3) // 4
    if blocks > _SMALL or not 0 <= step < 2**62:
        words = host_words(seed, stream, step, blocks)[:, 0]
    else:
        words = _words_ahead(seed, stream, step - step % _AHEAD, blocks)[:, step % _AHEAD]
    return words.reshape(-1)[:count]


@lru_cache(maxsize=1)
def _noise_table() -> np.ndarray:
    return (np.array(_values("noise", 0.0)).astype(np.float32) * 2.0**-_UNIT).astype(np.float32)


def _eager(device: torch.device) -> bool:
    """Whether a draw may be made by NumPy: on a CPU, with no compiler or transform looking on."""
    return (
        device.type == "cpu"
        and not torch.compiler.is_compiling()
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
    )


_KEPT: dict[tuple[str, float, str], Tensor] = {}


def _integers(kind: str, alpha: float, device: torch.device) -> Tensor:
    """A table of integers on a device, made once (inside a compiled step: where it is not there yet, a constant)."""
    known = _KEPT.get((kind, alpha, str(device)))
    if known is None:
        known = torch.tensor(_values(kind, alpha), dtype=torch.int64, device=device)
        if not torch.compiler.is_compiling():
            _KEPT[kind, alpha, str(device)] = known
    return known


@_constant
def _values(kind: str, alpha: float) -> list:
    if kind == "multipliers":
        return [multiplier - 2**32 for multiplier in _MULTIPLIERS]
    if kind == "noise":
        return [round(value * 2**_UNIT) for value in _noise_levels()]
    quantiles = _half_normal_quantiles() if kind == "normal" else _beta_quantiles(alpha)
    return [round(value * 2**_UNIT) for value in quantiles]


@_constant
def _stream_number(path: str) -> int:
    return zlib.crc32(path.encode())


def _half_normal_quantiles() -> list[float]:
    """|z| in equal steps of probability, for the outermost 1/256 (2049 entries), then for all (2049 more)."""
    quantile = NormalDist().inv_cdf
    tails = [i / (256 * _CELLS) for i in range(_CELLS + 1)] + [i / _CELLS for i in range(_CELLS + 1)]
    tails[0] = tails[_CELLS + 1] = 0.25 / (256 * _CELLS)  # where the outermost cell ends: |z| <= 5.2
    return [-quantile(tail / 2) for tail in tails]


def _noise_levels() -> list[float]:
    """The normal quantiles in the middle of 8,192 equal steps of probability, scaled to variance 1."""
    levels = [NormalDist().inv_cdf((i + 0.5) / _LEVELS) for i in range(_LEVELS)]
    deviation = math.sqrt(math.fsum(level * level for level in levels) / _LEVELS)
    return [level / deviation for level in levels]


def _beta_quantiles(alpha: float) -> list[float]:
    """Beta(alpha, alpha) in equal steps of probability."""
    from scipy.special import betaincinv

    return [float(betaincinv(alpha, alpha, i / _CELLS)) for i in range(_CELLS + 1)]


def _interpolate(table: Tensor, cell: Tensor, part: Tensor, part_bits: int) -> Tensor:
    """Between two entries of a table, in whole numbers: exact, so alike on every device."""
    low = table[cell]
    return low + (((table[cell + 1] - low) * part) >> part_bits)


@dataclass(frozen=True)
class Draw:
    """Random numbers as a function of (seed, stream, step); `seed` and `step` may be int64 tensors on the device."""

    seed: int | Tensor
    step: int | Tensor = 0
    device: torch.device | str = "cpu"
    path: str = ""
    shard: tuple[int, int] = (0, 1)  # this process and how many share every batch
    parts: tuple[int, ...] = ()  # rows here of each part of a shared batch, see `rows`

    def stream(self, name: str) -> "Draw":
        """The draws of one name (a view, a term); names nest."""
        return Draw(self.seed, self.step, self.device, f"{self.path}/{name}", self.shard, self.parts)

    def at(self, step: int | Tensor) -> "Draw":
        """The same stream at another step."""
        return replace(self, step=step)

    def rows(self, *parts: int) -> "Draw":
        """Draws whose first dimension is these rows of a batch that several processes share.

        Every process draws for the whole batch and keeps what belongs to its rows: N processes see together just what
        one would.
        """
        return replace(self, parts=parts) if self.shard[1] > 1 else self

    def alone(self) -> "Draw":
        """Draws that concern this process's rows only, where they must stay among themselves: partners to mix with."""
        return self.stream(f"process/{self.shard[0]}") if self.shard[1] > 1 else self

    def bits(self, shape: int | Sequence[int]) -> Tensor:
        """Independent 32-bit words as int64."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if not self.parts:
            return self._bits(shape)
        if not shape or shape[0] != sum(self.parts):
            raise ValueError(f"these draws are for {sum(self.parts)} rows of a shared batch, not for the shape {shape}")
        rank, world = self.shard
        whole = self._bits((world * sum(self.parts), *shape[1:])).split([world * part for part in self.parts])
        return torch.cat([w[rank * part : (rank + 1) * part] for w, part in zip(whole, self.parts, strict=True)])

    def _words_on_host(self, count: int) -> np.ndarray:
        return _some_words(index(self.seed), _stream_number(self.path), index(self.step), count)

    def _bits(self, shape: tuple[int, ...]) -> Tensor:
        count = math.prod(shape)
        device = torch.device(self.device)
        if _eager(device):
            return torch.from_numpy(self._words_on_host(count).astype(np.int64)).reshape(shape)
        block = torch.arange((count + 3) // 4, dtype=torch.int64, device=device)
        low, high = _words(self.step)
        words = philox((block, low, _stream_number(self.path), high), _words(self.seed))
        return words.reshape(-1)[:count].reshape(shape)

    def integers(self, low: int, high: int, shape: int | Sequence[int]) -> Tensor:
        """Whole numbers low <= i < high (int64); each is met with probability 1/(high - low) to within 2^-32."""
        if not low < high <= low + 2**31:
            raise ValueError(f"integers needs low < high <= low + 2^31, got low={low}, high={high}")
        return low + ((self.bits(shape) * (high - low)) >> 32)

    def uniform(self, shape: int | Sequence[int]) -> Tensor:
        """Float32 strictly between 0 and 1, symmetric about 1/2, in steps of 2^-23."""
        return (((self.bits(shape) >> 9) << 1) + 1).float() * 2.0**-24

    def normal(self, shape: int | Sequence[int]) -> Tensor:
        """Standard normal float32 by a tabulated quantile function; |z| stays under 5.2."""
        bits = self.bits(shape)
        table = _integers("normal", 0.0, torch.device(self.device))
        tail = bits & 0x7FFFFFFF  # 31 bits say how far out, one bit gives the sign
        outer = tail < 2**23  # the outermost 1/256, where a cell is 2^12 wide instead of 2^20
        cell = torch.where(outer, tail >> 12, (tail >> 20) + _CELLS + 1)
        part = torch.where(outer, (tail & 0xFFF) << 8, tail & 0xFFFFF)
        size = _interpolate(table, cell, part, 20)
        return torch.where(bits > 0x7FFFFFFF, -size, size).float() * 2.0**-_UNIT

    def noise(self, shape: Sequence[int]) -> Tensor:
        """Standard normal float32 in 8,192 levels, |z| < 3.9: for augmentation, at a fraction of the cost of `normal`.

        Two numbers from every 32-bit word, each by one look into a table.
        """
        rows, each = shape[0], math.prod(shape[1:])
        half = (each + 1) // 2
        if not self.parts and _eager(torch.device(self.device)):
            words, levels = self._words_on_host(rows * half).reshape(rows, half), _noise_table()
            noise = np.empty((rows, 2 * half), np.float32)
            noise[:, :half], noise[:, half:] = levels[words >> 19], levels[(words >> 3) & (_LEVELS - 1)]
            return torch.from_numpy(noise)[:, :each].reshape(tuple(shape))
        bits = self.bits((rows, half))
        table = _integers("noise", 0.0, torch.device(self.device))
        level = torch.cat((bits >> 19, (bits >> 3) & (_LEVELS - 1)), 1)[:, :each]
        return (table.float() * 2.0**-_UNIT)[level].reshape(tuple(shape))

    def beta(self, alpha: float, shape: int | Sequence[int]) -> Tensor:
        """Beta(alpha, alpha) float32 by a tabulated quantile function: no rejection, no loop."""
        if not 0 < alpha < math.inf:
            raise ValueError(f"beta needs a finite alpha > 0, got {alpha}")
        bits = self.bits(shape)
        table = _integers("beta", float(alpha), torch.device(self.device))
        return _interpolate(table, bits >> 21, bits & 0x1FFFFF, 21).float() * 2.0**-_UNIT

    def permutation(self, n: int) -> Tensor:
        """A uniformly random order of 0 .. n-1."""
        return self.shuffles(1, n)[0]

    def shuffles(self, rows: int, n: int) -> Tensor:
        """An independent random order of 0 .. n-1 in every row."""
        return self.keys(rows, n).argsort(1)

    def keys(self, rows: int, n: int) -> Tensor:
        """Random int64 keys [rows, n], no two alike within a row: their order is a random order."""
        width = max(n - 1, 1).bit_length()
        return (self.bits((rows, n)) << width) | torch.arange(n, device=torch.device(self.device))


def _words(number: int | Tensor) -> tuple[int | Tensor, int | Tensor]:
    """The low and the high 32-bit word of a number."""
    return number & _MASK, (number >> 32) & _MASK
