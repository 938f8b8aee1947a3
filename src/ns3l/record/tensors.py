"""Named tensors in a safetensors file that carries its own checksum, so that damage is always noticed."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ns3l.errors import RunError
from ns3l.record.files import parse_json, size_of, to_json, write_bytes

KEPT_AS = "ns3l"


def checksum(tensors: dict[str, Tensor], note: str) -> str:
    """sha256 over names, types, shapes and bytes of tensors, and over the note kept with them."""
    total = hashlib.sha256(note.encode())
    for name in sorted(tensors):
        value = tensors[name]
        total.update(f"\0{name}\0{value.dtype}\0{list(value.shape)}\0".encode())
        total.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def write_tensors(path: Path, tensors: dict[str, Tensor], note: dict[str, Any]) -> None:
    """Write tensors (on any device, of any layout, aliasing or not) and a JSON note atomically into one file."""
    held = {name: _own(name, value) for name, value in tensors.items()}
    text = to_json(note)
    # one entry, since safetensors writes several in random order, and equal states must be equal files
    write_bytes(path, save(held, metadata={KEPT_AS: f"{checksum(held, text)} {text}"}))


def _own(name: str, value: Tensor) -> Tensor:
    if not isinstance(name, str) or not isinstance(value, Tensor):
        raise TypeError(f"tensors must map text to tensors, but {name!r} is a {type(value).__name__}")
    return value.detach().to("cpu").clone(memory_format=torch.contiguous_format)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and note of a file written by `write_tensors`; RunError where it is missing, damaged or foreign."""
    try:
        tensors, kept = _load(path)
        sha256, _, text = kept.partition(" ")
        note = parse_json(text)
    except OSError as problem:
        raise RunError(f"Cannot read {path}: {problem.strerror or problem}.") from problem
    except KeyError:
        raise RunError(f"{path} is no file of a run folder: it has no checksum.") from None
    except (SafetensorError, ValueError, RuntimeError, OverflowError, MemoryError) as problem:
        raise RunError(f"{path} is damaged: {problem}.") from None
    if checksum(tensors, text) != sha256:
        raise RunError(f"{path} is damaged: its checksum does not match.")
    return tensors, note


def _load(path: Path) -> tuple[dict[str, Tensor], str]:
    size_of(path)  # a missing file is an OSError with its reason
    with safe_open(path, framework="pt", device="cpu") as file:
        return {name: file.get_tensor(name) for name in _names(file.keys())}, (file.metadata() or {})[KEPT_AS]


def _names(found: Iterable[str]) -> list[str]:
    return [str(name) for name in found]
