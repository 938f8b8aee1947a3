"""Checkpoints and metrics: exact, damaged, on a failing disk, and under kills at random moments."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from ns3l.errors import RunError
from ns3l.record import RunFolder, read_tensors, write_tensors

ENVIRONMENT = {"python": "3"}


def opened(path, seed=0, **options):
    return RunFolder.open(path, {"method": "x"}, {"labeled": [1]}, seed, ENVIRONMENT, **options)


def state(step):
    return {"w": torch.full((4, 3), float(step)), "step": torch.tensor(step)}


def saved(path, *steps):
    """A closed run folder with metrics and a checkpoint at each of these steps."""
    with opened(path) as folder:
        for step in steps:
            folder.append({"step": step, "test_error": step / 7})
            folder.save_checkpoint(state(step), {"step": step})
    return folder


def files(path):
    return sorted(p.name for p in (path / "checkpoint").iterdir())


def lines(path):
    return [json.loads(line)["step"] for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_every_kind_of_tensor_comes_back_exactly(tmp_path):
    base = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    tensors = {
        "view": base.t(),
        "slice": base[:, ::2],
        "same": base,
        "alias": base,
        "channels last": torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "expanded": torch.ones(1).expand(5),
        "scalar": torch.tensor(7),
        "flag": torch.tensor([True, False]),
        "half": base.bfloat16(),
        "double": base.double(),
        "empty": torch.zeros(0, 3),
        "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
        "needs gradient": torch.nn.Parameter(base.clone()),
    }
    meta = {"step": 3, "nested": {"history": [[1, 0.1, None]]}, "tiny": 5e-324, "text": "ü\ud800"}
    with opened(tmp_path) as folder:
        folder.save_checkpoint(tensors, meta)
        found, told = folder.load_checkpoint()
    assert told == meta
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape
        assert found[name].contiguous().reshape(-1).view(torch.uint8).tolist() == (
            value.detach().contiguous().reshape(-1).view(torch.uint8).tolist()
        ), name
    assert load_file(folder.checkpoints.path(3)).keys() == tensors.keys()  # readable without this library


def test_only_the_newest_two_are_kept_and_no_temporary(tmp_path):
    saved(tmp_path, 10, 20, 30)
    assert files(tmp_path) == ["step-00000020.safetensors", "step-00000030.safetensors"]
    assert not list(tmp_path.rglob("*.tmp"))


def damage(path, kind):
    content = path.read_bytes()
    if kind == "bit":
        content = content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]
    elif kind == "header":
        content = b"\xff" * 8 + content[8:]
    elif kind == "shape":  # the same bytes under another shape
        content = content.replace(b'"shape":[4,3]', b'"shape":[3,4]')
    elif kind == "note":
        content = content.replace(b'\\"step\\":20', b'\\"step\\":21')
    else:
        content = content[: {"cut": len(content) // 2, "empty": 0}[kind]]
    assert content != path.read_bytes()
    path.write_bytes(content)


@pytest.mark.parametrize("kind", ["bit", "header", "shape", "note", "cut", "empty"])
def test_a_damaged_newest_falls_back_and_says_so(tmp_path, kind):
    folder = saved(tmp_path, 10, 20)
    damage(folder.checkpoints.path(20), kind)
    told = []
    with opened(tmp_path, tell=told.append) as folder:
        tensors, meta = folder.load_checkpoint()
        assert meta["step"] == 10 and torch.equal(tensors["w"], state(10)["w"])
        assert "damaged" in told[0] and "continues from step 10" in told[1] and folder.notices == told
        assert lines(tmp_path) == [10]
        for step in (12, 14):  # what was damaged does not count among the newest two any more
            folder.save_checkpoint(state(step), {"step": step})
    assert files(tmp_path) == ["step-00000012.safetensors", "step-00000014.safetensors", "step-00000020.damaged"]


def test_a_missing_newest_falls_back(tmp_path):
    saved(tmp_path, 10, 20).checkpoints.path(20).unlink()
    with opened(tmp_path) as folder:
        assert folder.load_checkpoint()[1]["step"] == 10


def test_nothing_sound_left_is_an_error_and_never_a_restart(tmp_path):
    folder = saved(tmp_path, 10, 20)
    for step in (10, 20):
        damage(folder.checkpoints.path(step), "cut")
    before = files(tmp_path)
    with opened(tmp_path) as folder, pytest.raises(RunError, match=r"Every checkpoint .*steps 10, 20"):
        folder.load_checkpoint()
    with opened(tmp_path) as folder, pytest.raises(RunError, match="load_checkpoint must succeed"):
        folder.append({"step": 0})
    assert files(tmp_path) == before and lines(tmp_path) == [10, 20]
    for name in before:
        (tmp_path / "checkpoint" / name).unlink()
    with opened(tmp_path) as folder, pytest.raises(RunError, match="had a checkpoint at step 20, but none is left"):
        folder.load_checkpoint()
    (tmp_path / "result.json").unlink()  # what the message advises
    with opened(tmp_path) as folder:
        assert folder.load_checkpoint() is None and lines(tmp_path) == []


def test_the_checkpoint_of_another_run_is_refused(tmp_path):
    other = saved(tmp_path / "other", 20)
    with opened(tmp_path / "mine", seed=1) as folder:
        folder.save_checkpoint(state(10), {"step": 10})
        other.checkpoints.path(20).rename(folder.checkpoints.path(20))
        assert folder.load_checkpoint()[1]["step"] == 10
        assert "belongs to another run" in folder.notices[0]


@pytest.mark.parametrize("meta", [{}, {"step": "3"}, {"step": True}, {"step": -1}])
def test_a_checkpoint_needs_its_step(tmp_path, meta):
    with opened(tmp_path) as folder, pytest.raises(ValueError, match="whole number"):
        folder.save_checkpoint({}, meta)


def test_meta_and_tensors_are_checked(tmp_path):
    with opened(tmp_path) as folder:
        with pytest.raises(ValueError, match=r"meta\.best is inf"):
            folder.save_checkpoint({}, {"step": 1, "best": float("inf")})
        with pytest.raises(TypeError, match="'w' is a list"):
            folder.save_checkpoint({"w": [1]}, {"step": 1})
        with pytest.raises(ValueError, match="step as a whole number"):
            folder.append({"loss": 1})


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_previous_checkpoint(tmp_path, monkeypatch, number, where):
    saved(tmp_path, 10)

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    with opened(tmp_path) as folder:
        folder.load_checkpoint()
        monkeypatch.setattr(f"os.{where}", refuse)
        with pytest.raises(RunError, match=os.strerror(number)):
            folder.save_checkpoint(state(20), {"step": 20})
        folder.fail("disk")  # told, not raised
        assert os.strerror(number) in folder.notices[-1]
        monkeypatch.undo()
        assert not list(tmp_path.rglob("*.tmp"))
        assert folder.load_checkpoint()[1]["step"] == 10
        folder.save_checkpoint(state(20), {"step": 20})
        assert folder.load_checkpoint()[1]["step"] == 20


class TornFile:
    """A file that writes half of what it is given, then says that the disk is full."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, content):
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_tears_no_line_and_no_file(tmp_path, monkeypatch):
    real = Path.open
    with opened(tmp_path) as folder:
        folder.append({"step": 1})
        folder.save_checkpoint(state(1), {"step": 1})
        monkeypatch.setattr(Path, "open", lambda path, mode="r", **o: TornFile(real(path, mode, **o)))
        with pytest.raises(RunError, match=r"metrics\.jsonl: No space left"):
            folder.append({"step": 2})
        with pytest.raises(RunError, match=r"step-00000002\.safetensors: No space left"):
            folder.checkpoints.save(state(2), {"step": 2})
        monkeypatch.undo()
        assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"step":1}\n'
        assert files(tmp_path) == ["step-00000001.safetensors"]


def test_a_read_only_folder_is_said_to_be_so(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(RunError, match="Read-only file system"):
        opened(tmp_path / "run")
    monkeypatch.undo()
    monkeypatch.setattr("ns3l.record.lock.FileLock.acquire", refuse)
    with pytest.raises(RunError, match="Read-only file system"):
        opened(tmp_path / "run")


def test_metrics_after_the_checkpoint_are_cut_so_that_resumed_is_uninterrupted(tmp_path):
    saved(tmp_path, 10, 20)
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    with opened(tmp_path) as folder:
        folder.load_checkpoint()
        folder.append({"step": 25})
        with (tmp_path / "metrics.jsonl").open("ab") as file:
            file.write(b'{"step":30,"lo')
    with opened(tmp_path) as folder:
        assert folder.load_checkpoint()[1]["step"] == 20
        assert "line 4: left out, it is cut off" in folder.notices[0]
    assert (tmp_path / "metrics.jsonl").read_bytes() == whole


@pytest.mark.parametrize(
    "bad", [b"\x00\xff\n", b"[1]\n", b'{"step":true}\n', b"[" * 100_000 + b"\n", b'{"step":NaN}\n']
)
def test_a_damaged_line_in_the_middle_is_reported_and_not_fatal(tmp_path, bad):
    saved(tmp_path, 10, 20)
    first, second = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_bytes(first + bad + second)
    with opened(tmp_path) as folder:
        assert folder.load_checkpoint()[1]["step"] == 20
        assert "line 2: left out" in folder.notices[0]
    assert lines(tmp_path) == [10, 20]


def test_metrics_without_any_checkpoint_start_again(tmp_path):
    with opened(tmp_path) as folder:
        folder.append({"step": 0})
        folder.append({"step": 10})
    with opened(tmp_path) as folder:
        assert folder.load_checkpoint() is None
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


@given(st.data())
def test_no_flipped_byte_goes_unnoticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("flip") / "file.safetensors"
    write_tensors(path, state(5), {"a": 1})
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        tensors, note = read_tensors(path)
    except RunError:
        return
    assert note == {"a": 1} and all(torch.equal(tensors[n], v) for n, v in state(5).items())  # JSON white space


@given(st.binary(max_size=200) | st.integers(0, 2**64 - 1).map(lambda n: n.to_bytes(8, "little") + b"{}"))
def test_foreign_bytes_are_our_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("foreign") / "file.safetensors"
    path.write_bytes(content)
    with pytest.raises(RunError):
        read_tensors(path)


def test_a_safetensors_file_of_others_is_told_apart(tmp_path):
    from safetensors.torch import save_file

    save_file(state(1), tmp_path / "a.safetensors")
    with pytest.raises(RunError, match="no checksum"):
        read_tensors(tmp_path / "a.safetensors")
    with pytest.raises(RunError, match="No such file"):
        read_tensors(tmp_path / "b.safetensors")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts handles in /proc")
def test_no_file_handle_is_left_open(tmp_path):
    with opened(tmp_path) as folder:
        folder.save_checkpoint(state(0), {"step": 0})
        before = len(list(Path("/proc/self/fd").iterdir()))
        for step in range(1, 40):
            folder.append({"step": step})
            folder.save_checkpoint(state(step), {"step": step})
            folder.load_checkpoint()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 1


KILLS = """
import os, random, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from ns3l.errors import RunError
from ns3l.record import RunFolder

def run(path, steps):
    with RunFolder.open(path, {"method": "x"}, {"labeled": [1]}, 0, {}) as folder:
        found = folder.load_checkpoint()
        value = torch.zeros(50_000, dtype=torch.int64) if found is None else found[0]["value"]
        first = 0 if found is None else found[1]["step"]
        assert bool((value == sum(range(1, first + 1))).all())
        for step in range(first + 1, steps + 1):
            value += step
            folder.append({"step": step, "value": int(value[0])})
            if step % 3 == 0:
                folder.save_checkpoint({"value": value}, {"step": step})
        folder.save_model({"value": value}, {})
        folder.finish({"step": steps})
    assert not folder.notices or all("cut off" in n for n in folder.notices), folder.notices

def hold(path):
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        folder = RunFolder.open(path, {"method": "x"}, {"labeled": [1]}, 0, {})
        os.write(writer, b"h")
        time.sleep(60)
    os.read(reader, 1)
    try:
        run(path, 1)
    except RunError as problem:
        assert f"is being written by process {child} on " in str(problem), problem
    else:
        raise AssertionError("two writers")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert (path / ".lock").exists()

path, kills, draw = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
hold(path / "killed")
for kill in range(kills):
    child = os.fork()
    if child == 0:
        run(path / "killed", 10**9)
        os._exit(0)
    time.sleep(draw.uniform(0.01, 0.15))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
reached = max((int(p.stem[5:]) for p in (path / "killed" / "checkpoint").glob("step-*.safetensors")), default=0)
run(path / "killed", reached + 10)
run(path / "whole", reached + 10)
print(reached)
"""


def killed(tmp_path, kills, seed):
    command = [sys.executable, "-W", "error", "-c", KILLS, str(tmp_path), str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 0
    for name in ("metrics.jsonl", "result.json", "model.safetensors", "recipe.json", "split.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert not list(tmp_path.rglob("*.tmp")) and not (tmp_path / "killed" / "checkpoint").exists()


def test_killed_at_random_moments_ends_as_if_never_killed(tmp_path):
    """Also: the lock of a living process refuses a second one, that of a killed one never blocks."""
    killed(tmp_path, 12, seed=0)


@pytest.mark.faults
@pytest.mark.slow
def test_killed_at_a_hundred_random_moments(tmp_path):
    killed(tmp_path, 100, seed=1)
