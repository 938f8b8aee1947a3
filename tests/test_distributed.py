"""Two processes on Gloo against one; a process that is lost; what is refused."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tests.training import QUIET, clouds, ended, lines, recipe, same
from torch import nn

from ns3l.distributed import Job, synchronize
from ns3l.draw import Draw
from ns3l.errors import RunError
from ns3l.record import read_tensors
from ns3l.store import positions
from ns3l.train import fit

ROOT = Path(__file__).parent.parent


def started(scenario, out, world=2):
    """A process for every rank, as torchrun starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tests.ranks", scenario, str(out)],
            cwd=ROOT,
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
        )
        for rank in range(world)
    ]


def finished(processes):
    ends = [process.communicate(timeout=200)[1].decode()[-2000:] for process in processes]
    return [process.returncode for process in processes], ends


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    out = tmp_path_factory.mktemp("ranks")
    codes, ends = finished(started("together", out))
    assert codes == [0, 0], ends
    return out


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    out = tmp_path_factory.mktemp("alone")
    fit(recipe("vat+ns3l", steps=8, every=4), clouds(), out=out, how=QUIET)
    return out


def weights(folder):
    return read_tensors(folder / "seed-0/model.safetensors")[0]


def test_two_processes_with_synchronized_batch_norm_are_one(together, alone):
    for name, value in weights(together / "synchronized").items():
        torch.testing.assert_close(value, weights(alone)[name], rtol=1e-3, atol=1e-4)
    for one, other in zip(lines(together / "synchronized/seed-0"), lines(alone / "seed-0"), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3, abs=1e-4)


def test_local_batch_norm_is_another_method(together, alone):
    one, other = weights(together / "local"), weights(alone)
    assert max((one[name].double() - other[name].double()).abs().max() for name in one) > 1e-3


def test_an_uneven_batch_is_refused_by_every_process(together):
    for rank in range(2):
        said = (together / f"refused-{rank}").read_text()
        assert said == "5 labeled examples a step cannot be shared evenly by 2 processes"


def test_a_signal_that_one_process_has_seen_stops_all(together):
    assert [(together / f"agreed-{rank}").read_text() for rank in range(2)] == ["15", "15"]


def test_a_lost_process_ends_the_job_with_a_checkpoint_to_continue_from(together, tmp_path):
    began = time.monotonic()
    codes, ends = finished(started("lost", tmp_path / "parts"))
    assert codes == [3, -signal.SIGKILL], ends
    assert time.monotonic() - began < 150
    said = json.loads((tmp_path / "parts/said.json").read_text())
    assert said.startswith("a process of this job was lost (") and "start it again" in said
    names = [path.name for path in (tmp_path / "parts/seed-0/checkpoint").glob("step*")]
    assert "step-00000006.safetensors" in names
    codes, ends = finished(started("whole", tmp_path / "parts"))
    assert codes == [0, 0], ends
    (result, model), (other, resumed) = ended(together / "whole/seed-0"), ended(tmp_path / "parts/seed-0")
    assert result == other and same(model, resumed)
    assert lines(together / "whole/seed-0") == lines(tmp_path / "parts/seed-0")


@pytest.mark.parametrize("world", [2, 3])
def test_processes_draw_together_what_one_draws(world):
    whole = positions(Draw(3, 5), "labeled", 1000, 6 * world)
    parts = [positions(Draw(3, 5, shard=(rank, world)), "labeled", 1000, 6) for rank in range(world)]
    assert torch.equal(torch.cat(parts), whole)


def test_a_process_alone_waits_for_nobody():
    place, x = Job(), torch.ones(2)
    assert place.first and place.share(7, "labeled") == 7 and place.agree(5) == 5 and place.mean(x) is x
    with pytest.raises(RunError, match="7 labeled examples a step cannot be shared evenly by 2 processes"):
        Job(1, 2).share(7, "labeled")


def test_synchronized_layers_are_as_they_were_in_evaluation():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    net(torch.randn(8, 3))
    net.eval()
    expected = net(torch.ones(2, 3))
    synchronize(net)
    assert torch.equal(net(torch.ones(2, 3)), expected)
    assert isinstance(net[1], nn.BatchNorm1d) and net.state_dict().keys() >= {"1.running_mean"}
