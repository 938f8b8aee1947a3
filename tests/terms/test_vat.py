"""Virtual adversarial training: its direction against float64, its loss against a plain recomputation."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from tests.terms import scene

from ns3l.augment import Augmentation, Noise
from ns3l.batch import Batch, unchanged
from ns3l.divergence import kl
from ns3l.draw import Draw
from ns3l.networks import SmallConvNet, build
from ns3l.objective import Forward, Objective
from ns3l.passes import FIRST, Passes
from ns3l.terms.cross_entropy import CrossEntropy
from ns3l.terms.vat import VirtualAdversarial, unit

EXACT_XI = 1e-3
"""In float64 rounding is no matter, and a smaller probe only meets fewer kinks of the leaky ReLU."""


@pytest.fixture(scope="module")
def trained():
    """A small conv net after 100 steps on the digits, and rows that it has not seen."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x, y = torch.tensor(digits.images[:, None] / 8 - 1).float(), torch.tensor(digits.target)
    net = build(lambda: SmallConvNet(10), Draw(0))
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for step in range(100):
        rows = Draw(0, step).integers(0, 1400, 64)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    return net, x[1400:1500], y[1400:1500]


def ready(net, x, y, precision=None, augment=unchanged):
    """The passes and the clean forward pass of one step."""
    half = len(x) // 2
    batch = Batch({"labeled": x[:half], "unlabeled": x[half:]}, {"labeled": y[:half]}, augment)
    passes = Passes(net, None, batch, Draw(3, 1, x.device), precision)
    logits = passes.named(FIRST, passes.run(passes.render("first")))
    return passes, Forward(batch, logits, passes.draw.stream("term/vat"))


def direction(net, x, y, term, precision=None, augment=unchanged):
    return term.direction(*ready(net, x, y, precision, augment)).double()


def cosine(left, right):
    return (left.flatten(1).cpu() * right.flatten(1).cpu()).sum(1)


def against_exact(trained, precision, device="cpu", **options):
    """Cosine of every row's direction with the float64 one."""
    net, x, y = trained
    term = VirtualAdversarial(augmentation="same", **options)
    exact = direction(copy.deepcopy(net).double(), x.double(), y, VirtualAdversarial(xi=EXACT_XI, augmentation="same"))
    found = direction(copy.deepcopy(net).to(device), x.to(device), y.to(device), term, precision)
    return cosine(found, exact)


def test_direction_in_float32(trained):
    found = against_exact(trained, None)
    assert found.mean() > 0.99 and found.min() > 0.95


def test_direction_in_half_precision(trained):
    found = against_exact(trained, torch.bfloat16)
    assert found.mean() > 0.99 and found.min() > 0.95


@pytest.mark.parametrize(("xi", "precision"), [(1e-6, None), (10.0, None), (1e-3, torch.bfloat16)])
def test_a_wrong_probe_is_seen(trained, xi, precision):
    assert against_exact(trained, precision, xi=xi).mean() < 0.7


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_the_default_probe_follows_the_scale_of_the_data(trained, factor):
    net, x, y = trained
    scaled = copy.deepcopy(net)
    with torch.no_grad():
        scaled.body[0].weight /= factor
    term = VirtualAdversarial(augmentation="same")
    found = direction(scaled, x * factor, y, term, torch.bfloat16)
    exact = VirtualAdversarial(xi=EXACT_XI * factor, augmentation="same")
    assert cosine(found, direction(scaled.double(), (x * factor).double(), y, exact)).mean() > 0.95


@pytest.mark.parametrize(("precision", "share"), [(None, 1 / 1000), (torch.bfloat16, 1 / 100)])
def test_the_default_probe_is_a_share_of_the_norm_of_the_example(trained, precision, share):
    """Pinned: stored runs depend on it."""
    xi = VirtualAdversarial()._xi(ready(*trained, precision)[0])
    torch.testing.assert_close(xi.flatten(), share * trained[1].flatten(1).norm(dim=1))


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_direction_on_a_gpu(trained, precision):
    found = against_exact(trained, precision, "cuda")
    assert found.mean() > 0.95


@pytest.mark.parametrize("eps", [0.1, 1.0])
@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_it_raises_kl_far_more_than_a_random_direction(trained, eps, precision):
    net, x, y = trained
    found = direction(net, x, y, VirtualAdversarial(augmentation="same"), precision).float()
    passes, _ = ready(net, x, y)
    clean = passes.run(x).detach()
    rise = [kl(clean, passes.run(x + eps * way)).mean() for way in (found, unit(Draw(9).normal(x.shape)))]
    assert rise[0] > 3 * rise[1]


def test_more_iterations_come_nearer_to_the_worst_direction(trained):
    net, x, y = trained
    passes, _ = ready(net, x, y)
    clean = passes.run(x).detach()
    ways = [direction(net, x, y, VirtualAdversarial(augmentation="same", iterations=n)).float() for n in (1, 4)]
    rise = [kl(clean, passes.run(x + 0.1 * way)).mean() for way in ways]
    assert rise[1] > rise[0]


def plain_vat(net, batch, term, draw):
    """VAT in float64 by central differences, one coordinate at a time: no automatic derivative."""
    x = torch.cat(list(batch.x.values())).numpy()
    shape = (len(x), scene.FEATURES)

    streams = ["first"] * 3 if term.augmentation == "same" else ["first", "probe_0", "adversarial"]
    first, probing, adversarial = (draw.stream(f"augment/{name}") for name in streams)

    def logits(rows, stream):
        with torch.no_grad():
            return Passes(net, None, batch, draw).run(batch.augment(torch.from_numpy(rows), stream)).numpy()

    def divergence(p, q):
        return np.sum(softmax(p, axis=1) * (log_softmax(p, axis=1) - log_softmax(q, axis=1)), axis=1)

    clean = logits(x, first)
    d = draw.stream("term/vat").normal(shape).double().numpy()
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    gradient = np.zeros(shape)
    for place in np.ndindex(shape):
        sides = []
        for sign in (1, -1):
            probe = x + term.xi * d
            probe[place] += sign * 1e-6
            sides.append(divergence(clean, logits(probe, probing)).sum())
        gradient[place] = (sides[0] - sides[1]) / 2e-6
    worst = logits(x + term.eps * gradient / np.linalg.norm(gradient, axis=1, keepdims=True), adversarial)
    pair = (clean, worst) if term.divergence == "clean||adversarial" else (worst, clean)
    return divergence(*(side[scene.LABELED :] for side in pair)).mean()


def stretched(x, draw):
    """An augmentation that does not commute with a sum: a perturbation is added before it."""
    return x * (1 + 0.3 * draw.normal(x.shape)).to(x.dtype)


@pytest.mark.parametrize("divergence", ["adversarial||clean", "clean||adversarial"])
@pytest.mark.parametrize("augmentation", ["same", "fresh"])
def test_reference(divergence, augmentation):
    term = VirtualAdversarial(eps=0.7, xi=0.1, divergence=divergence, augmentation=augmentation)
    net, batch, draw = scene.network().double(), scene.batch(torch.float64, stretched), Draw(3, 10)
    value = Objective(vat=(1.0, term))(net, batch, draw).parts["vat"].item()
    assert value == pytest.approx(plain_vat(net, batch, term, draw), rel=1e-5)
    assert value >= 0


def test_golden_value():
    z = {"unlabeled": torch.zeros(1, 2), "adversarial": torch.tensor([[math.log(3.0), 0.0]])}
    to_clean, from_clean = 0.75 * math.log(1.5) - 0.25 * math.log(2), 0.5 * math.log(2 / 3) + 0.5 * math.log(2)
    assert VirtualAdversarial()(scene.forward(z)).item() == pytest.approx(to_clean, rel=1e-6)
    other = VirtualAdversarial(divergence="clean||adversarial")
    assert other(scene.forward(z)).item() == pytest.approx(from_clean, rel=1e-6)


def test_the_clean_prediction_takes_no_gradient():
    z = {name: x.requires_grad_() for name, x in scene.some_logits("unlabeled", "adversarial").items()}
    VirtualAdversarial()(scene.forward(z)).backward()
    assert z["unlabeled"].grad is None and z["adversarial"].grad.abs().sum() > 0


@pytest.mark.parametrize(("augmentation", "renders"), [("same", 1), ("fresh", 4)])
def test_augmentation_same_or_fresh(augmentation, renders):
    """Of the first pass, of two probes and of the adversarial pass."""
    seen = []

    def spy(x, draw):
        seen.append(draw.path)
        return scene.noise(x, draw)

    term = VirtualAdversarial(augmentation=augmentation, iterations=2)
    Objective(vat=(1.0, term))(scene.network(), scene.batch(augment=spy), Draw(0))
    assert len(seen) == 4 and len(set(seen)) == renders


class Watched(torch.nn.Module):
    """A network that notes of every pass its precision, whether there is a gradient, and of which weights."""

    def __init__(self, inner, fails_at=None):
        super().__init__()
        self.inner, self.fails_at, self.precisions, self.learning, self.graphs = inner, fails_at, [], [], []

    def forward(self, x):
        if len(self.precisions) == self.fails_at:
            raise RuntimeError("out of memory")
        half = torch.is_autocast_enabled("cpu")
        self.precisions.append(torch.get_autocast_dtype("cpu") if half else torch.float32)
        self.graphs.append(torch.is_grad_enabled())
        self.learning.append([weight.requires_grad for weight in self.inner.parameters()])
        return self.inner(x)


def watch(term, augment=scene.noise, precision=torch.bfloat16, **options):
    """The passes of a step with VAT alone."""
    net = Watched(scene.network(), **options)
    Objective(vat=(1.0, term))(net, scene.batch(augment=augment), Draw(0), precision=precision)
    return net


ALIKE = {"no augmentation": unchanged, "an empty one": Augmentation()}


@pytest.mark.parametrize("augment", ALIKE.values(), ids=ALIKE)
def test_where_renderings_are_alike_half_precision_is_left_for_the_direction(augment):
    """First pass, then clean target and probe in float32, then the adversarial pass."""
    half, whole = torch.bfloat16, torch.float32
    assert watch(VirtualAdversarial(), augment).precisions == [half, whole, whole, half]
    assert watch(VirtualAdversarial(), augment).graphs == [True, False, True, True]
    assert watch(VirtualAdversarial(iterations=2), augment).precisions == [half, whole, whole, whole, half]
    assert watch(VirtualAdversarial(augmentation="same")).precisions == [half, whole, whole, half]


@pytest.mark.parametrize(
    ("term", "augment"),
    [
        (VirtualAdversarial(), scene.noise),
        (VirtualAdversarial(), Augmentation((Noise(0.2),))),
        (VirtualAdversarial(xi=0.1), unchanged),
        (VirtualAdversarial(xi=0.1, augmentation="same"), scene.noise),
    ],
)
def test_elsewhere_every_pass_has_the_precision_asked_for(term, augment):
    assert watch(term, augment).precisions == [torch.bfloat16] * 3


@pytest.mark.parametrize("augment", [unchanged, scene.noise])
def test_in_float32_on_a_cpu_there_is_no_further_pass(augment):
    assert watch(VirtualAdversarial(), augment, None).precisions == [torch.float32] * 3


@pytest.mark.parametrize("augment", [unchanged, scene.noise])
def test_a_surrounding_autocast_is_half_precision_too(augment):
    """The probe must know of it: its norm and its float32 depend on what the passes run in."""
    objective = Objective(ce=(1.0, CrossEntropy()), vat=(1.0, VirtualAdversarial()))
    batch = scene.batch(augment=augment)
    told = objective(scene.network(), batch, Draw(0), precision=torch.bfloat16).parts
    with torch.autocast("cpu", torch.bfloat16):
        around = objective(scene.network(), batch, Draw(0)).parts
    assert scene.same(told, around)


def test_the_direction_without_augmentation_in_half_precision(trained):
    """The default term, on data that are not augmented: as near to float64 as under `augmentation="same"`."""
    net, x, y = trained
    exact = direction(copy.deepcopy(net).double(), x.double(), y, VirtualAdversarial(xi=EXACT_XI, augmentation="same"))
    found = cosine(direction(net, x, y, VirtualAdversarial(), torch.bfloat16), exact)
    assert found.mean() > 0.99 and found.min() > 0.95


def test_the_direction_under_fresh_augmentation_in_half_precision(trained):
    """Each against float64 on the same renderings: what the norm of the probe in half precision is chosen for."""
    net, x, y = trained
    found, exact = (
        direction(model, inputs, y, VirtualAdversarial(), precision, scene.noise)
        for model, inputs, precision in ((net, x, torch.bfloat16), (copy.deepcopy(net).double(), x.double(), None))
    )
    assert cosine(found, exact).mean() > 0.95


def test_the_probe_asks_for_no_gradient_of_the_weights():
    """All other passes do, and a weight that was frozen before stays so."""
    net = Watched(scene.network())
    first = next(net.inner.parameters()).requires_grad_(False)
    Objective(vat=(1.0, VirtualAdversarial(iterations=2)))(net, scene.batch(), Draw(0)).total.backward()
    learns = [[weight is not first for weight in net.inner.parameters()]]
    rests = [[False] * len(learns[0])]
    assert net.learning == learns + 2 * rests + learns
    assert [weight.requires_grad for weight in net.inner.parameters()] == learns[0]
    assert first.grad is None and all(w.grad is not None for w in net.inner.parameters() if w is not first)


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_weights_learn_again_after_a_failed_probe(fails_at):
    net = Watched(scene.network(), fails_at)
    with pytest.raises(RuntimeError, match="out of memory"):
        Objective(vat=(1.0, VirtualAdversarial()))(net, scene.batch(augment=unchanged), Draw(0), None, torch.bfloat16)
    assert len(net.precisions) == fails_at
    assert all(weight.requires_grad for weight in net.inner.parameters())
    assert all(layer.track_running_stats for layer in net.modules() if isinstance(layer, torch.nn.BatchNorm1d))


def test_unit_is_safe():
    x = torch.tensor([[3e-38, 4e-38], [3e38, 3e38], [0.0, 0.0], [3.0, 4.0]])
    found = unit(x)
    assert torch.allclose(found.norm(dim=1), torch.tensor([1.0, 1.0, 0.0, 1.0]), rtol=1e-5)
    assert torch.allclose(found[3], torch.tensor([0.6, 0.8]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": 0.0}, "eps > 0"),
        ({"xi": -1.0}, "xi > 0"),
        ({"eps": "6"}, "eps > 0.*eps='6'"),
        ({"eps": math.inf}, "eps > 0.*eps=inf"),
        ({"xi": math.nan}, "xi > 0.*xi=nan"),
        ({"iterations": 0}, "at least one iteration"),
        ({"iterations": 1.5}, "a whole number.*iterations=1.5"),
        ({"iterations": True}, "a whole number.*iterations=True"),
        ({"divergence": "both"}, "'adversarial\\|\\|clean' or 'clean\\|\\|adversarial', got 'both'"),
        ({"augmentation": "none"}, "'fresh' or 'same', got 'none'"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        VirtualAdversarial(**options)
