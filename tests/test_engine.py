"""The step: golden curve, latch, replicas side by side, modes; nothing global is moved."""

from dataclasses import dataclass, replace

import pytest
import torch
from tests.training import QUIET, clouds, recipe, same
from torch.utils._python_dispatch import TorchDispatchMode

from ns3l import engine, loss, optimize, schedule
from ns3l.distributed import Job
from ns3l.draw import Draw
from ns3l.engine import Engine, Fault, Replica, settings
from ns3l.errors import RecipeError
from ns3l.networks import build
from ns3l.objective import Term
from ns3l.optimize import SGD, Adam
from ns3l.recipe import Averaging, Execution, Weighted
from ns3l.shared import How, Plan, Shared
from ns3l.split import make_split

CURVE = [1.102432, 1.210136, 1.080344, 1.002187, 1.022338]


def replica(made, seed=0, how=QUIET, network=None, data=None):
    data = clouds() if data is None else data
    shared = Shared(data, how, Job())
    plan = Plan(made, make_split(data, made.split, seed), seed)
    net = build(network or (lambda: made.network_for(data.x.shape[1:])), Draw(seed).stream("initialization"))
    return Replica(made, shared.source(plan), net, seed, shared.device, Job())


def state(one):
    return {name: value.clone() for name, value in one.state().items()}


def after(made, steps, seed=0, **options):
    one = replica(made, seed, **options)
    Engine([one], made.execution).advance(0, steps)
    return state(one)


@dataclass(frozen=True)
class Breaks(Term):
    """Costs nothing, until at one step it is (or its gradient is) not a number."""

    step: int
    in_gradient: bool = False

    @property
    def reads(self):
        return ("unlabeled",)

    def __call__(self, fwd):
        now = torch.as_tensor(fwd.draw.step == self.step)
        zero, rest = fwd.logits["unlabeled"].sum() * 0, torch.where(now, 0.0, 1.0)
        if self.in_gradient:  # the root's slope at 0 is infinite
            return (zero + rest).sqrt() - rest
        return zero * torch.where(now, torch.nan, 1.0)


def with_term(made, name, term):
    return replace(made, terms={**made.terms, name: Weighted(1.0, term)})


def test_the_loss_curve_is_known(untouched_random_state):
    one = replica(recipe("vat+ns3l"))
    engine, told = Engine([one], Execution()), []
    for step in range(0, 40, 8):
        engine.advance(step, 8)
        told.append(one.losses()["total"])
    assert told == pytest.approx(CURVE, rel=1e-3)


@pytest.mark.parametrize("method", ["supervised", "ns3l", "pi", "mean-teacher", "vat+ns3l", "mixmatch+ns3l"])
def test_steps_repeat_and_move_no_random_state(method, untouched_random_state):
    made = recipe(method)
    assert same(after(made, 5), after(made, 5))
    assert not same(after(made, 5), after(made, 5, seed=1), but=("count", "fault", "sums"))


def test_a_term_that_is_not_finite_freezes_everything_before_its_step():
    made = recipe("mean-teacher")
    broken = replica(with_term(made, "breaks", Breaks(5)))
    engine = Engine([broken], made.execution)
    engine.advance(0, 5)
    before = state(broken)
    assert broken.found_fault() is None
    engine.advance(5, 4)
    assert broken.found_fault() == Fault(5, "breaks")
    assert same(state(broken), before, but=("fault",))
    assert int(broken.count) == 5


def test_gradients_and_weights_that_are_not_finite_are_named():
    for made, fault in [
        (with_term(recipe(), "breaks", Breaks(3, in_gradient=True)), Fault(3, "gradient")),
        (replace(recipe(), optimizer=SGD(1e300, 0.0)), Fault(0, "weights")),
    ]:
        one = replica(made)
        Engine([one], made.execution).advance(0, 6)
        assert one.found_fault() == fault
        assert all(value.isfinite().all() for value in one.state().values())


def test_the_latch_on_a_device_does_the_same():
    made = with_term(recipe("mean-teacher"), "breaks", Breaks(5))
    one = replica(made)
    one.asks = False  # as on a GPU
    Engine([one], made.execution).advance(0, 5)
    before = state(one)
    Engine([one], made.execution).advance(5, 3)
    assert one.found_fault() == Fault(5, "breaks")
    assert same(state(one), before, but=("fault",))


@pytest.mark.parametrize("method", ["mean-teacher", "vat+ns3l", "mixmatch"])
def test_numbers_on_the_device_give_what_numbers_on_the_host_give(method):
    made = recipe(method)
    one = replica(made)
    one.asks = False
    Engine([one], made.execution).advance(0, 6)
    host = after(made, 6)
    for name, value in one.state().items():
        torch.testing.assert_close(value, host[name], rtol=1e-4, atol=1e-5)


def test_a_replica_is_the_same_beside_others():
    made = [
        recipe("vat+ns3l"),
        replace(recipe("vat+ns3l"), optimizer=Adam(3e-2)),
        with_term(recipe("vat+ns3l"), "breaks", Breaks(2)),
    ]
    beside = [replica(each, seed) for seed, each in enumerate(made)]
    Engine(beside, made[0].execution).advance(0, 8)
    for seed, (each, one) in enumerate(zip(made, beside, strict=True)):
        assert same(after(each, 8, seed), state(one))


def test_a_resting_replica_stays_while_others_go_on():
    for asks in (True, False):
        one, other = replica(recipe("mean-teacher")), replica(recipe("mean-teacher"), 1)
        one.asks = asks
        engine = Engine([one, other], Execution())
        engine.advance(0, 3)
        one.rest()
        before = state(one)
        engine.advance(3, 3)
        assert same(state(one), before) and int(other.count) == 6


def test_a_resting_replica_in_a_captured_step_takes_no_step_and_finds_no_fault():
    one = replica(with_term(recipe("mean-teacher"), "breaks", Breaks(3)))
    one.asks = False
    Engine([one], Execution()).advance(0, 3)
    one.rest()
    before = state(one)
    one.step()  # a graph steps every replica
    assert same(state(one), before) and one.found_fault() is None


def test_a_loaded_state_continues_bit_for_bit():
    made = replace(recipe("mean-teacher"), average=Averaging(0.9, "average"))
    one = replica(made)
    Engine([one], made.execution).advance(0, 5)
    other = replica(made)
    other.load(state(one))
    Engine([other], made.execution).advance(5, 4)
    assert same(state(other), after(made, 9))


@pytest.mark.parametrize("extra", [0, 20])
def test_staged_rows_are_the_resident_ones(extra):
    made, data = recipe("vat+ns3l"), clouds(extra=extra)
    ends = [after(made, 7, how=replace(QUIET, resident=where), data=data) for where in (True, False, None)]
    assert same(ends[0], ends[1]) and same(ends[0], ends[2])


def test_losses_are_means_since_they_were_last_asked_for():
    one, other = replica(recipe()), replica(recipe())
    engine = Engine([one], Execution())
    each = []
    for step in range(4):
        engine.advance(step, 1)
        each.append(one.losses()["total"])
    Engine([other], Execution()).advance(0, 4)
    assert other.losses()["total"] == pytest.approx(sum(each) / 4)


def test_a_diagnosis_moves_nothing():
    one = replica(recipe("vat+ns3l"))
    before = state(one)
    told = one.diagnose()
    assert set(told) == {"ns3l"} and 0 <= told["ns3l"]["marked"] <= 1
    assert same(state(one), before)


def test_a_step_that_fails_leaves_the_state():
    one = replica(recipe())
    before = state(one)
    one.take = lambda *_: (_ for _ in ()).throw(RuntimeError("lost"))
    with pytest.raises(RuntimeError, match="lost"):
        one.step()
    assert same(state(one), before)


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_in_either_memory_format(channels_last):
    from ns3l.data import load
    from ns3l.preprocess import Scale
    from ns3l.recipe import Network

    made = recipe("pi", classes=10, network=Network("small-conv-net", {"width": 4}), preprocessing=Scale())
    made = replace(made, execution=Execution(channels_last=channels_last), split=replace(made.split, labels=20))
    plain = replace(made, execution=Execution())
    one, other = after(made, 3, data=load("digits")), after(plain, 3, data=load("digits"))
    torch.testing.assert_close(one["sums"], other["sums"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("deterministic", [True, False])
def test_global_settings_come_back(deterministic):
    def found():
        return (
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.deterministic,
            torch.get_float32_matmul_precision(),
            torch.utils.deterministic.fill_uninitialized_memory,
        )

    before = found()
    with pytest.raises(KeyError), settings(Execution(deterministic=deterministic), torch.device("cpu")):
        assert found() == (deterministic, not deterministic, deterministic, "highest", False)
        raise KeyError
    assert found() == before


def test_a_cpu_captures_nothing_and_says_so():
    engine = Engine([replica(recipe())], Execution(mode="captured"))
    assert engine.mode == "eager" and engine.reason == "a CUDA graph needs a CUDA device, steps run eagerly"
    assert Engine([replica(recipe())], Execution()).reason == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of the compiler
def test_compiled_steps_are_close_to_eager_ones():
    made = recipe("vat+ns3l", execution=Execution(mode="compiled"))
    one = replica(made)
    engine = Engine([one], made.execution)
    assert (engine.mode, engine.reason) == ("compiled", "")
    assert int(one.count) == 0
    engine.advance(0, 6)
    eager = after(recipe("vat+ns3l"), 6)
    for name, value in one.state().items():
        torch.testing.assert_close(value, eager[name], rtol=1e-3, atol=1e-4)


def test_what_cannot_be_compiled_runs_eagerly_with_a_reason(monkeypatch):
    def stubborn(*_, **__):
        raise RuntimeError("not with me\nnor ever")

    monkeypatch.setattr(torch, "compile", stubborn)
    made = recipe("ns3l", execution=Execution(mode="compiled"))
    one = replica(made)
    engine = Engine([one], made.execution)
    assert (engine.mode, engine.reason) == ("eager", "compiled failed: not with me")
    engine.advance(0, 3)
    assert same(state(one), after(recipe("ns3l"), 3))


def test_memory_that_does_not_suffice_is_no_reason_to_run_eagerly(monkeypatch):
    def fails(*_):
        raise torch.cuda.OutOfMemoryError("none left")

    monkeypatch.setattr(Engine, "_warm", fails)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        Engine([replica(recipe())], Execution(mode="compiled"))


GPU = How(device="cuda", progress="quiet")


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["ns3l", "mean-teacher", "vat+ns3l", "mixmatch+ns3l"])
def test_captured_steps_are_close_to_eager_ones(method):
    made = recipe(method)
    one = replica(made, how=GPU)
    engine = Engine([one], made.execution)
    assert (engine.mode, engine.reason) == ("captured", "")
    engine.advance(0, 6)
    eager = after(replace(made, execution=Execution(mode="eager")), 6, how=GPU)
    for name, value in one.state().items():
        torch.testing.assert_close(value, eager[name], rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
def test_captured_replicas_are_the_same_alone_and_beside_others():
    made = recipe("vat+ns3l")
    with settings(made.execution, torch.device("cuda")):
        alone = replica(made, how=GPU)
        Engine([alone], made.execution).advance(0, 200)
        beside = [replica(made, seed, how=GPU) for seed in range(5)]
        Engine(beside, made.execution).advance(0, 200)
        assert same(state(alone), state(beside[0]))


class WithoutFloat64(TorchDispatchMode):
    """Like Apple's GPUs: no number is wider than float32."""

    def __torch_dispatch__(self, operation, types, given=(), named=None):
        made = operation(*given, **(named or {}))
        tensors = [x for x in (made if isinstance(made, tuple | list) else [made]) if isinstance(x, torch.Tensor)]
        assert all(x.dtype != torch.float64 for x in tensors), f"{operation} makes float64"
        return made


@pytest.mark.parametrize("method", ["vat+pi+pl+ns3l", "mean-teacher", "mixmatch+ns3l"])
def test_a_device_without_float64_takes_steps(method, monkeypatch):
    for module in (engine, loss, optimize, schedule):
        monkeypatch.setattr(module, "widest", lambda _: torch.float32)
    made = recipe(method)
    one = replica(made)
    one.asks = False  # as on a device: numbers stay there
    with WithoutFloat64():
        Engine([one], made.execution).advance(0, 3)
    assert one.count == 3
    assert one.losses()["total"] > 0


def test_a_layer_that_cannot_be_repeated_is_named_with_the_way_out(monkeypatch):
    def refused(*_):
        raise RuntimeError("pool_backward_cuda does not have a deterministic implementation, but you set ...")

    monkeypatch.setattr(Replica, "step", refused)
    made = recipe()
    with (
        pytest.raises(RecipeError, match=r"^pool_backward_cuda, .*execution.deterministic=False"),
        settings(made.execution, torch.device("cpu")),
    ):
        Engine([replica(made)], made.execution).advance(0, 1)


class WholeHead(torch.nn.Module):
    """A network that computes its last layer in whole precision whatever its surroundings say."""

    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(5, 8), torch.nn.Linear(8, 3)

    def forward(self, x):
        x = self.body(x).relu()
        with torch.autocast(x.device.type, enabled=False):
            return self.head(x.float())


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_a_network_with_its_own_rounding_keeps_it_where_steps_are_compiled():
    made = recipe("ns3l", execution=Execution(mode="compiled", precision="bf16"))
    one = replica(made, network=WholeHead)
    engine = Engine([one], made.execution)
    assert (engine.mode, engine.reason) == ("compiled", "")
    engine.advance(0, 3)
    eager = after(replace(made, execution=Execution(mode="eager", precision="bf16")), 3, network=WholeHead)
    torch.testing.assert_close(one.flat.vector, eager["vector"], rtol=1e-2, atol=1e-3)
