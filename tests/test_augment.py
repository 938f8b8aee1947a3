import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from ns3l.augment import AUGMENTATIONS, Augmentation, Crop, Cutout, Flip, Mask, Noise, Shift, Step, Strong
from ns3l.augment.geometric import sampled
from ns3l.augment.strong import PLACES, VALUES, _placed, _valued
from ns3l.draw import Draw
from ns3l.errors import RecipeError
from ns3l.preprocess import GcnZca, Scale

STEPS = [Shift(2), Flip(), Crop(0.6), Noise(0.15), Mask(0.2), Cutout(3), Strong(2, 0.8), Strong(1, 1.0, False)]
DRAW = Draw(seed=3, step=7)


def images(n=6, channels=3, height=8, width=7, dtype=torch.float32, lowest=0, above=256):
    bytes_ = np.random.default_rng(1).integers(lowest, above, (n, channels, height, width))
    return (torch.from_numpy(bytes_).to(dtype) - 127.5) / 127.5


def mirrored(i, size):
    """Reflection about the middle of the edge pixels, by walking back and forth."""
    walk = [*range(size), *range(size - 2, 0, -1)]
    return walk[i % len(walk)]


# Independent references, one pixel at a time


def test_shift_moves_every_pixel_as_drawn():
    x = images()
    out = Shift(3)(x, DRAW)
    by = DRAW.integers(-3, 4, (6, 2)).tolist()
    for i in range(6):
        for row in range(8):
            for column in range(7):
                source = x[i, :, mirrored(row + by[i][0], 8), mirrored(column + by[i][1], 7)]
                assert torch.equal(out[i, :, row, column], source)
    assert len(set(map(tuple, by))) > 1


def test_shift_is_reflect_pad_and_crop():
    x = images()
    padded = np.pad(x.numpy(), [(0, 0), (0, 0), (2, 2), (2, 2)], mode="reflect")
    out = Shift(2)(x, DRAW).numpy()
    for i in range(6):
        windows = [padded[i, :, r : r + 8, c : c + 7] for r in range(5) for c in range(5)]
        assert sum(np.array_equal(out[i], window) for window in windows) == 1


def test_flip_mirrors_those_drawn():
    x = images(40)
    out = Flip()(x, DRAW)
    drawn = DRAW.integers(0, 2, 40).tolist()
    for i, one in enumerate(drawn):
        assert np.array_equal(out[i].numpy(), np.flip(x[i].numpy(), 2) if one else x[i].numpy())
    assert 0 < sum(drawn) < 40


def test_noise_and_mask_use_one_draw_per_value():
    x = images()
    np.testing.assert_allclose(Noise(0.3)(x, DRAW) - x, 0.3 * DRAW.noise(x.shape), atol=1e-6)
    masked = Mask(0.3)(x, DRAW).numpy()
    gone = DRAW.uniform(x.shape).numpy() < 0.3
    assert np.array_equal(masked, np.where(gone, 0, x.numpy()))


@pytest.mark.parametrize("size", [1, 2, 3, 8, 30])
def test_cutout_is_a_square_around_the_drawn_center(size):
    x = images(20)
    out = Cutout(size)(x, DRAW)
    down, across = (DRAW.stream(name).integers(0, n, (20, 1)).tolist() for name, n in (("down", 8), ("across", 7)))
    for i in range(20):
        expected = x[i].clone()
        top, left = down[i][0] - size // 2, across[i][0] - size // 2
        expected[:, max(top, 0) : max(top + size, 0), max(left, 0) : max(left + size, 0)] = 0
        assert torch.equal(out[i], expected)


def bilinear(image, row, column):
    """The value of one channel-first image at a real place, its border reflected."""
    height, width = image.shape[1:]
    row, column = abs(row), abs(column)
    row = (height - 1) - abs((height - 1) - row % (2 * (height - 1)))
    column = (width - 1) - abs((width - 1) - column % (2 * (width - 1)))
    r, c = min(int(row), height - 2), min(int(column), width - 2)
    a, b = row - r, column - c
    upper = (1 - b) * image[:, r, c] + b * image[:, r, c + 1]
    lower = (1 - b) * image[:, r + 1, c] + b * image[:, r + 1, c + 1]
    return (1 - a) * upper + a * lower


def warped(image, affine):
    out = np.empty_like(image)
    height, width = image.shape[1:]
    for row in range(height):
        for column in range(width):
            down, across = row - (height - 1) / 2, column - (width - 1) / 2
            from_across = affine[0] * across + affine[1] * down + affine[2] + (width - 1) / 2
            from_down = affine[3] * across + affine[4] * down + affine[5] + (height - 1) / 2
            out[:, row, column] = bilinear(image, from_down, from_across)
    return out


def test_affine_sampling():
    x = images(4, dtype=torch.float64)
    affine = torch.tensor(np.random.default_rng(0).normal(size=(4, 6)) * 0.5 + [1, 0, 0, 0, 1, 0])
    out = sampled(x, affine).numpy()
    for i in range(4):
        np.testing.assert_allclose(out[i], warped(x[i].numpy(), affine[i].tolist()), atol=1e-9)


def test_crop_resizes_a_part_inside():
    x = images(5, dtype=torch.float64)
    out = Crop(0.5)(x, DRAW).numpy()
    size, down, across = DRAW.uniform((5, 3)).double().T.tolist()
    for i in range(5):
        share = 0.5 + 0.5 * size[i]
        top, left = down[i] * (1 - share) * 7, across[i] * (1 - share) * 6
        expected = np.array(
            [[bilinear(x[i].numpy(), top + share * r, left + share * c) for c in range(7)] for r in range(8)]
        )
        np.testing.assert_allclose(out[i], expected.transpose(2, 0, 1), atol=1e-5)


def place_reference(name, s, height, width):
    angle = s * math.pi / 6
    return {
        "rotate": [math.cos(angle), -math.sin(angle), 0, math.sin(angle), math.cos(angle), 0],
        "shear-across": [1, 0.3 * s, 0, 0, 1, 0],
        "shear-down": [1, 0, 0, 0.3 * s, 1, 0],
        "translate-across": [1, 0, 0.3 * s * width, 0, 1, 0],
        "translate-down": [1, 0, 0, 0, 1, 0.3 * s * height],
    }[name]


@pytest.mark.parametrize("name", PLACES)
def test_strong_places(name):
    x = images(4, dtype=torch.float64)
    signed = torch.tensor([0.9, -0.7, 0.2, -1.0], dtype=torch.float64)
    which = torch.tensor([PLACES.index(name) + 1] * 3 + [0])
    out = _placed(x, which, signed)
    assert torch.equal(out[3], x[3])
    for i in range(3):
        affine = place_reference(name, signed[i].item(), 8, 7)
        np.testing.assert_allclose(out[i].numpy(), warped(x[i].numpy(), affine), atol=1e-9)


def value_reference(name, image, s):
    """One image, channels first, in [0, 1]."""
    from PIL import Image, ImageEnhance, ImageOps

    pixels = Image.fromarray((image.transpose(1, 2, 0) * 255).round().astype(np.uint8))
    enhance = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast,
               "saturation": ImageEnhance.Color, "sharpness": ImageEnhance.Sharpness}  # fmt: skip
    if name in enhance:
        changed = enhance[name](pixels).enhance(1 + 0.9 * s)
    elif name == "autocontrast":
        changed = ImageOps.autocontrast(pixels)
    elif name == "posterize":
        changed = ImageOps.posterize(pixels, 8 - round(4 * abs(s)))
    else:
        changed = ImageOps.solarize(pixels, math.floor(255 * (1 - abs(s))) + 1)
    return np.asarray(changed).transpose(2, 0, 1) / 255


@pytest.mark.parametrize("name", VALUES)
def test_strong_values_agree_with_pillow_to_its_rounding(name):
    x = images(5, lowest=40, above=200)
    signed = torch.tensor([0.9, -0.7, 0.3, -0.76, 1.0])
    which = torch.tensor([VALUES.index(name)] * 4 + [-1])
    out = _valued(x, which, signed)
    assert torch.equal(out[4], x[4])
    for i in range(4):
        expected = value_reference(name, ((x[i] + 1) / 2).numpy(), signed[i].item())
        got = ((out[i] + 1) / 2).numpy()
        inside = np.s_[:, 1:-1, 1:-1] if name == "sharpness" else np.s_[:]  # Pillow leaves the border unsmoothed
        exact = name in ("posterize", "solarize")
        np.testing.assert_allclose(got[inside], expected[inside], atol=1e-5 if exact else 2.1 / 255)
        assert np.abs(got - ((x[i] + 1) / 2).numpy()).max() > (0.003 if name == "posterize" else 0.02)


def test_strong_draws_its_operation_and_strength():
    x = images(30)
    step = Strong(operations=2, magnitude=0.9)
    expected = x
    for k in range(2):
        draw = DRAW.stream(f"operation-{k}")
        which = draw.stream("which").integers(0, 13, 30)
        level = 0.9 * draw.stream("level").uniform(30)
        signed = level * (2 * draw.stream("sign").integers(0, 2, 30) - 1)
        for i in range(30):
            one = slice(i, i + 1)
            kind = which[one]
            now = _placed(expected[one], kind, signed[one]) if 1 <= kind <= 5 else expected[one]
            now = _valued(now, kind - 6, signed[one]) if kind >= 6 else now
            expected = torch.cat((expected[:i], now, expected[i + 1 :]))
    torch.testing.assert_close(step(x, DRAW), expected, atol=1e-5, rtol=1e-5)
    assert step.names == ("nothing", *PLACES, *VALUES)


# What every step promises


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_same_draw_same_result_and_no_global_state(step):
    x = images(12)
    kept, states = x.clone(), (torch.get_rng_state(), np.random.get_state()[1].tolist())  # noqa: NPY002
    one, two = step(x, DRAW), step(x, DRAW)
    assert torch.equal(one, two) and torch.equal(x, kept)
    assert one.shape == x.shape and torch.isfinite(one).all()
    assert not torch.equal(one, x)
    assert not torch.equal(one, step(x, DRAW.at(8))) and not torch.equal(one, step(x, DRAW.stream("other")))
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == np.random.get_state()[1].tolist()  # noqa: NPY002


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_an_example_sees_only_its_own_draws(step):
    x = images(10)
    changed = x.clone()
    changed[3] = -changed[3]
    one, two = step(x, DRAW), step(changed, DRAW)
    others = [i for i in range(10) if i != 3]
    assert torch.equal(one[others], two[others])


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_processes_that_share_a_batch_augment_it_as_one_would(step):
    x = images(10)
    whole = step(x, DRAW)
    halves = [step(x[5 * rank : 5 * rank + 5], replace(DRAW, shard=(rank, 2)).rows(5)) for rank in (0, 1)]
    assert torch.equal(torch.cat(halves), whole)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_dtype_stays(step, dtype):
    x = images(dtype=dtype)
    out = step(x, DRAW)
    assert out.dtype == dtype
    coarse = {torch.bfloat16: 0.05, torch.float16: 0.01}.get(dtype, 1e-4)
    if not isinstance(step, Strong):  # rounding of the input may move a posterized value by a level
        torch.testing.assert_close(out.float(), step(x.float(), DRAW), atol=coarse, rtol=coarse)


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_gradient_reaches_the_input(step):
    x = images(4, dtype=torch.float64).mul(0.9).requires_grad_()
    out = step(x, DRAW)
    direction = torch.from_numpy(np.random.default_rng(2).normal(size=x.shape))
    weight = torch.from_numpy(np.random.default_rng(3).normal(size=x.shape))
    (gradient,) = torch.autograd.grad((out * weight).sum(), x)
    assert torch.isfinite(gradient).all() and gradient.abs().sum() > 0
    if not isinstance(step, Strong):  # posterize and solarize jump
        change = (step(x + 1e-6 * direction, DRAW) - step(x - 1e-6 * direction, DRAW)) / 2e-6
        np.testing.assert_allclose((gradient * direction).sum().item(), (change * weight).sum().item(), rtol=1e-5)


@pytest.mark.parametrize("step", [Noise(0.5), Mask(0.5)])
def test_features(step):
    x = torch.linspace(1, 2, 40).reshape(5, 8)
    assert step(x, DRAW).shape == (5, 8) and not torch.equal(step(x, DRAW), x)


@pytest.mark.parametrize("step", [step for step in STEPS if step.images_only], ids=repr)
def test_images_only(step):
    with pytest.raises(ValueError, match=rf'augmentation "{step.name}" is for images.*\[5, 8\]'):
        step(torch.ones(5, 8), DRAW)
    with pytest.raises(RecipeError, match="the data are features: use noise, mask"):
        Augmentation((Noise(), step)).check(Scale(), (8,))


@pytest.mark.parametrize("shape", [(4, 1, 8, 8), (4, 5, 6, 9), (1, 3, 5, 5)])
@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_channels_and_sizes(step, shape):
    out = step(torch.zeros(shape), DRAW)
    assert out.shape == shape and torch.isfinite(out).all()


@pytest.mark.slow
@pytest.mark.parametrize("step", [Shift(2), Flip(), Mask(0.2), Cutout(3), Noise(0.15)], ids=repr)
def test_compiled_gives_the_same_bits(step):
    x = images(9)
    compiled = torch.compile(lambda x, step_number: step(x, Draw(1, step_number)), fullgraph=True)
    for number in (0, 5):
        number = torch.tensor(number)
        if isinstance(step, Noise):  # a multiplication and an addition may be fused into one rounding
            torch.testing.assert_close(compiled(x, number), step(x, Draw(1, number)), atol=1e-6, rtol=1e-6)
        else:
            assert torch.equal(compiled(x, number), step(x, Draw(1, number)))


# Statistics


def chi_square(counts):
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


def test_shifts_and_flips_are_uniform():
    n, p = 20_000, 2
    x = torch.arange(49.0).reshape(1, 1, 7, 7).expand(n, 1, 7, 7)
    center = Shift(p)(x, DRAW)[:, 0, 3, 3].long()  # tells the move down and across
    counts = torch.bincount((center // 7 - 1) * 5 + center % 7 - 1, minlength=25).tolist()
    assert len(counts) == 25
    assert chi_square(counts) < 56  # 24 degrees of freedom: exceeded with probability 2e-4
    flipped = int((Flip()(x, DRAW)[:, 0, 0, 0] > 0).sum())
    assert chi_square([flipped, n - flipped]) < 14


def test_noise_mask_cutout_and_strong_have_their_statistics():
    x = torch.ones(200, 3, 16, 16)
    noise = Noise(0.15)(x, DRAW) - 1
    assert abs(noise.mean()) < 0.15 * 4 / math.sqrt(x.numel()) and abs(noise.std() / 0.15 - 1) < 0.01
    assert abs((Mask(0.2)(x, DRAW) == 0).float().mean() - 0.2) < 0.004
    centers = Cutout(1)(torch.ones(20_000, 1, 4, 4), DRAW).flatten(1).argmin(1)
    assert chi_square(torch.bincount(centers, minlength=16).tolist()) < 45
    which = DRAW.stream("operation-0").stream("which").integers(0, 13, 20_000)
    assert chi_square(torch.bincount(which, minlength=13).tolist()) < 40


# Golden values, the composition and wrong use


def test_golden():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert Augmentation((Shift(2), Flip()))(x, Draw(0, 0)).flatten().tolist() == [
        2,
        3,
        2,
        1,
        6,
        7,
        6,
        5,
        10,
        11,
        10,
        9,
        14,
        15,
        14,
        13,
    ]


def test_augmentation_is_its_steps_in_order_each_with_its_own_stream():
    x = images()
    both = Augmentation((Shift(2), Noise(0.1), Noise(0.1)))
    by_hand = Shift(2)(x, DRAW.stream("0-shift"))
    by_hand = Noise(0.1)(by_hand, DRAW.stream("1-noise"))
    assert torch.equal(both(x, DRAW), Noise(0.1)(by_hand, DRAW.stream("2-noise")))
    assert Augmentation(())(x, DRAW) is x


def test_registry_and_equality():
    assert {name: kind.name for name, kind in AUGMENTATIONS.items()} == {name: name for name in AUGMENTATIONS}
    assert {type(step) for step in STEPS} == set(AUGMENTATIONS.values())
    assert all(issubclass(kind, Step) for kind in AUGMENTATIONS.values())
    assert Shift(2) == Shift(2) != Shift(4)
    with pytest.raises(FrozenInstanceError):
        Shift(2).pixels = 3


def test_strong_needs_the_range_of_scale():
    strong, places = Augmentation((Strong(),)), Augmentation((Strong(photometric=False),))
    strong.check(Scale(), (32, 32, 3))
    places.check(GcnZca(), (32, 32, 3))
    with pytest.raises(RecipeError, match=r'values in \[-1.0, 1.0\], but preprocessing is "gcn-zca"'):
        strong.check(GcnZca(), (32, 32, 3))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Shift(0), 'pixels of "shift" must be a whole number of at least 1, got 0'),
        (lambda: Shift(1.5), "whole number"),
        (lambda: Shift(True), "whole number"),
        (lambda: Noise(-0.1), 'std of "noise" must be a number'),
        (lambda: Noise(math.nan), "must be a number"),
        (lambda: Noise("0.1"), "must be a number"),
        (lambda: Mask(1.5), r"in \[0.0, 1.0\]"),
        (lambda: Cutout(-2), "whole number"),
        (lambda: Crop(0.0), r"in \(0.0, 1.0\]"),
        (lambda: Strong(magnitude=2.0), "magnitude of"),
        (lambda: Strong(operations=0), "operations of"),
        (lambda: Strong(photometric="yes"), "True or False"),
        (lambda: Augmentation([Shift()]), "tuple of steps"),
        (lambda: Augmentation((Shift,)), "tuple of steps"),
    ],
)
def test_wrong_settings(make, message):
    with pytest.raises(RecipeError, match=message):
        make()


def test_shift_needs_room():
    with pytest.raises(ValueError, match="needs images larger than that, got 4 x 9"):
        Shift(4)(torch.zeros(2, 1, 4, 9), DRAW)
