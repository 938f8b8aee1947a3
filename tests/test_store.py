"""Stores: rows staged from the host are the very rows that a resident store gives."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from ns3l.batch import BatchSize, Source, unchanged
from ns3l.data.dataset import Dataset
from ns3l.draw import Draw
from ns3l.split import SplitRequest, make_split
from ns3l.store import Resident, Staged

SIZES = BatchSize(5, 9)
CPU = torch.device("cpu")


def data(tmp_path, kind):
    """Small images in memory or memory-mapped, with or without extra rows."""
    x = Draw(0).integers(0, 256, (50, 4, 4, 3)).to(torch.uint8).numpy()
    if kind == "features":
        return Dataset("f", x.reshape(50, -1).astype(np.float32), np.arange(50) % 2, ("a", "b"))
    if kind == "memmap":
        np.save(tmp_path / "x.npy", x)
        x = np.load(tmp_path / "x.npy", mmap_mode="r")
    extra = x[30:] if kind != "plain" else None
    return Dataset(
        "d",
        x[:30] if extra is not None else x,
        np.arange(len(x))[: 30 if extra is not None else 50] % 2,
        ("a", "b"),
        x_extra=extra,
    )


def both(tmp_path, kind, draw=Draw(3), ahead=2):
    """A source over resident rows, one over staged rows, and the staged store."""
    given = data(tmp_path, kind)
    split = make_split(given, SplitRequest(labels=6), seed=0)
    members = {"labeled": split.labeled, "unlabeled": split.unlabeled}
    staged = Staged(given, members, {"labeled": SIZES.labeled, "unlabeled": SIZES.unlabeled}, draw, ahead)
    sources = [Source(s, given, split, SIZES, nn.Identity(), unchanged, CPU) for s in (Resident(given, CPU), staged)]
    return *sources, staged


def equal(resident, staged_source, staged, draw):
    staged.stage(int(draw.step))
    left, right = resident.batch(draw), staged_source.batch(draw)
    return all(torch.equal(left.x[view], right.x[view]) for view in ("labeled", "unlabeled"))


@pytest.mark.parametrize("kind", ["plain", "extra", "memmap", "features"])
@pytest.mark.parametrize("steps", [range(6), [0, 1, 7, 8, 3, 4, 100], [41, 42]], ids=["run", "jumps", "resumed"])
def test_staged_rows_are_the_resident_rows(tmp_path, kind, steps, untouched_random_state):
    resident, source, staged = both(tmp_path, kind)
    for step in steps:
        assert equal(resident, source, staged, Draw(3, step))


def test_extra_rows_are_met(tmp_path):
    _, _, staged = both(tmp_path, "extra")
    index = np.array([29, 30, 49, 0])
    whole = np.concatenate(staged.parts)
    assert np.array_equal(staged._read(index), whole[index])


def test_the_steps_to_come_are_gathered_ahead(tmp_path, monkeypatch):
    _, _, staged = both(tmp_path, "plain", ahead=3)
    gathered, done, plain = [], threading.Event(), staged.gather

    def watch(step):
        gathered.append(step)
        if step == 13:
            done.set()
        return plain(step)

    monkeypatch.setattr(staged, "gather", watch)
    staged.stage(10)
    assert done.wait(10) and gathered == [10, 11, 12, 13]
    staged.stage(11)
    assert len(staged._coming) == 3


def test_a_seed_that_is_a_tensor_and_a_shard(tmp_path):
    draw = Draw(torch.tensor(3), torch.tensor(0), shard=(1, 2))
    resident, source, staged = both(tmp_path, "plain", draw)
    assert equal(resident, source, staged, draw.at(torch.tensor(4)))


def test_a_failing_read_is_raised_by_the_step_that_needs_it(tmp_path, monkeypatch):
    _, _, staged = both(tmp_path, "plain")

    def fail(index):
        raise OSError("disk gone")

    monkeypatch.setattr(staged, "_read", fail)
    with pytest.raises(OSError, match="disk gone"):
        staged.stage(0)


def test_no_rows_are_staged_for_a_view_without_any(tmp_path):
    given = data(tmp_path, "plain")
    staged = Staged(given, {"labeled": np.arange(5)}, {"labeled": 4, "unlabeled": 0}, Draw(0))
    staged.stage(0)
    assert set(staged.rows) == {"labeled"}


@pytest.mark.parametrize("mapped", [False, True])
def test_resident_rows_are_not_copied_on_the_host(tmp_path, mapped):
    x = np.zeros((4, 2, 2, 1), np.uint8)
    if mapped:
        np.save(tmp_path / "x.npy", x)
        x = np.load(tmp_path / "x.npy", mmap_mode="r")
    store = Resident(Dataset("d", x, np.arange(4) % 2, ("a", "b")), CPU)
    assert store.rows.data_ptr() == x.ctypes.data


def test_reversed_rows(tmp_path):
    x = data(tmp_path, "plain").x[::-1]
    store = Resident(Dataset("d", x, np.arange(50) % 2, ("a", "b")), CPU)
    assert np.array_equal(store.rows.numpy(), x)


def test_steps_that_were_passed_over_are_let_go(tmp_path):
    *_, staged = both(tmp_path, "plain")
    for step in (0, 50, 10):
        staged.stage(step)
    assert all(step > 10 for step in staged._coming)
