"""Stateless randomness: the published vectors, a plain-Python twin, distributions, shards, goldens."""

import zlib
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ns3l import draw as module
from ns3l.draw import Draw, philox

WORDS = st.integers(0, 2**32 - 1)
SIZE = 100_000
TOO_UNLIKELY = 1e-4

KNOWN = {
    "zeros": ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}
GOLDEN = {
    "bits": [3538107355, 1797761276, 1118537305],
    "integers": [823, 219, 418, 389, 260],
    "uniform": ["0x1.a5c6760000000p-1", "0x1.ac9ea40000000p-2", "0x1.0aae1c0000000p-2"],
    "normal": ["-0x1.d420740000000p-2", "0x1.a4f3c80000000p-3", "0x1.48b6fc0000000p-1"],
    "beta": ["0x1.bbbfac0000000p-1", "0x1.9c6acc0000000p-2", "0x1.c505d60000000p-3"],
    "permutation": [1, 4, 3, 2, 0, 5],
}
MAKERS = {
    "bits": lambda draw, n: draw.bits(n),
    "integers": lambda draw, n: draw.integers(-3, 1000, n),
    "uniform": lambda draw, n: draw.uniform(n),
    "normal": lambda draw, n: draw.normal(n),
    "noise": lambda draw, n: draw.noise((n, 3)),
    "beta": lambda draw, n: draw.beta(0.75, n),
    "permutation": lambda draw, n: draw.permutation(n),
    "shuffles": lambda draw, n: draw.shuffles(3, n),
}


def one_philox(counter, key):
    """Philox4x32-10 of one counter, as the paper writes it."""
    c, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(c[0] * 0xD2511F53, 2**32)
        high1, low1 = divmod(c[2] * 0xCD9E8D57, 2**32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def words_of(seed, path, step, count):
    """The first `count` words of a stream, one block of four after the other kind of word, in plain Python."""
    blocks = (count + 3) // 4
    made = [
        one_philox(
            (i, step % 2**32, zlib.crc32(path.encode()), (step >> 32) % 2**32), (seed % 2**32, (seed >> 32) % 2**32)
        )
        for i in range(blocks)
    ]
    return [block[word] for word in range(4) for block in made][:count]


@pytest.mark.parametrize("name", KNOWN)
def test_philox_gives_the_published_vectors(name):
    counter, key, expected = KNOWN[name]
    assert philox(torch.tensor(counter)[:, None], key)[:, 0].tolist() == list(expected)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS), min_size=1, max_size=4), st.tuples(WORDS, WORDS))
def test_philox_is_its_plain_twin(counters, key):
    expected = [one_philox(counter, key) for counter in counters]
    assert philox(torch.tensor(counters).T.contiguous(), key).T.tolist() == expected


@given(
    seed=st.integers(-(2**63), 2**63 - 1), step=st.integers(0, 2**40), path=st.text(max_size=8), count=st.integers(0, 9)
)
def test_bits_are_the_words_of_seed_stream_and_step(seed, step, path, count):
    assert Draw(seed, step).stream(path).bits(count).tolist() == words_of(seed, f"/{path}", step, count)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("number", [0, 7, 2**31 + 5, 2**40 + 3, -1])
def test_whole_numbers_and_tensors_give_the_same_bits(name, number):
    plain = MAKERS[name](Draw(number, abs(number)), 9)
    onboard = MAKERS[name](Draw(torch.tensor(number), torch.tensor(abs(number))), 9)
    assert torch.equal(plain, onboard)


@pytest.mark.parametrize("name", MAKERS)
def test_draws_repeat_and_move_nothing(name, untouched_random_state):
    draw = Draw(3, 5).stream("view")
    assert torch.equal(MAKERS[name](draw, 50), MAKERS[name](Draw(3).at(5).stream("view"), 50))


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("other", [Draw(4, 5, path="/a"), Draw(3, 6, path="/a"), Draw(3, 5, path="/b")])
def test_another_seed_step_or_stream_gives_other_draws(name, other):
    assert not torch.equal(MAKERS[name](Draw(3, 5, path="/a"), 64), MAKERS[name](other, 64))


def test_streams_nest():
    draw = Draw(1, 2)
    assert draw.stream("a").stream("b") == draw.stream("a/b")
    streams = [draw, draw.stream("a"), draw.stream("b"), draw.stream("a").stream("b"), draw.stream("b").stream("a")]
    assert len({tuple(stream.bits(4).tolist()) for stream in streams}) == len(streams)


def test_golden_values():
    draw = Draw(2024, 7).stream("golden")
    assert draw.bits(3).tolist() == GOLDEN["bits"]
    assert draw.integers(0, 1000, 5).tolist() == GOLDEN["integers"]
    assert [x.hex() for x in draw.uniform(3).tolist()] == GOLDEN["uniform"]
    assert [x.hex() for x in draw.normal(3).tolist()] == GOLDEN["normal"]
    assert [x.hex() for x in draw.beta(0.75, 3).tolist()] == GOLDEN["beta"]
    assert draw.permutation(6).tolist() == GOLDEN["permutation"]


def test_uniform_is_uniform_and_strictly_inside():
    u = Draw(0).uniform(SIZE)
    assert u.dtype == torch.float32
    assert u.min() > 0 and u.max() < 1
    assert stats.kstest(u.numpy(), "uniform").pvalue > TOO_UNLIKELY


def test_uniform_reaches_its_ends_symmetrically(monkeypatch):
    ends = torch.tensor([0, 2**32 - 1])
    monkeypatch.setattr(Draw, "bits", lambda draw, shape: ends)
    low, high = Draw(0).uniform(2).tolist()
    assert 0 < low == 1 - high


def test_integers_are_uniform():
    counts = torch.bincount(Draw(1).integers(10, 17, SIZE) - 10, minlength=7)
    assert len(counts) == 7
    assert stats.chisquare(counts.numpy()).pvalue > TOO_UNLIKELY


def test_every_bit_is_fair():
    bits = Draw(2).bits(SIZE)[:, None] >> torch.arange(32) & 1
    z = (bits.double().mean(0) - 0.5) / (0.5 / SIZE**0.5)
    assert z.abs().max() < 5


def test_normal_has_its_moments_and_law():
    z = Draw(3).normal(SIZE).double()
    moments = [z.mean(), z.var() - 1, (z**3).mean(), (z**4).mean() - 3]
    spread = np.sqrt(np.array([1, 2, 15, 96]) / SIZE)
    assert np.all(np.abs(moments) < 5 * spread)
    assert z.abs().max() < 5.2
    assert stats.kstest(z.numpy(), "norm").pvalue > TOO_UNLIKELY


def test_noise_is_a_normal_of_8192_levels():
    drawn = Draw(2, 3).noise((1000, 99)).numpy()
    words = Draw(2, 3).bits((1000, 50)).numpy()
    place = np.concatenate((words // 2**19, words // 8 % 2**13), 1)[:, :99]
    np.testing.assert_allclose(drawn, stats.norm.ppf((place + 0.5) / 8192), atol=2e-3)
    assert abs(drawn.mean()) < 0.012 and abs(drawn.var() - 1) < 0.018 and 3.5 < np.abs(drawn).max() < 3.9
    assert stats.kstest(drawn.ravel(), "norm").pvalue > TOO_UNLIKELY
    assert abs(np.corrcoef(drawn[:, :49].ravel(), drawn[:, 50:].ravel())[0, 1]) < 0.02


def test_normal_follows_its_quantile_function_far_out(monkeypatch):
    tails = torch.tensor([2**12, 2**14, 2**20, 9 * 2**19, 2**23 - 1, 2**23, 2**28, 2**31 - 1])
    monkeypatch.setattr(Draw, "bits", lambda draw, shape: torch.cat([tails, tails | 2**31]))
    z = Draw(0).normal(16).double()
    expected = stats.norm.isf(tails.numpy() / 2**32)
    np.testing.assert_allclose(z[:8], expected, rtol=1e-4, atol=1e-6)
    assert torch.equal(z[8:], -z[:8])


@pytest.mark.parametrize("alpha", [0.25, 0.75, 1.0, 2.0, 16.0])
def test_beta_has_its_law(alpha):
    share = Draw(4).beta(alpha, 20_000).double()
    assert share.min() >= 0 and share.max() <= 1
    assert stats.kstest(share.numpy(), stats.beta(alpha, alpha).cdf).pvalue > TOO_UNLIKELY
    assert abs(share.mean() - 0.5) < 5 * stats.beta(alpha, alpha).std() / 20_000**0.5


@pytest.mark.parametrize("alpha", [0.1, 0.25, 0.75, 2.0])
def test_beta_follows_its_quantile_function(monkeypatch, alpha):
    words = torch.arange(2**18, 2**32, 2**22)
    monkeypatch.setattr(Draw, "bits", lambda draw, shape: words)
    share = Draw(0).beta(alpha, len(words)).double()
    np.testing.assert_allclose(share, stats.beta(alpha, alpha).ppf(words.numpy() / 2**32), atol=6e-3)


def test_beta_of_1_is_uniform_between_the_entries_of_its_table_too(monkeypatch):
    words = torch.arange(0, 2**32, 1_234_567)
    monkeypatch.setattr(Draw, "bits", lambda draw, shape: words)
    np.testing.assert_allclose(Draw(0).beta(1.0, len(words)), words.numpy() / 2**32, atol=2**-25)


def test_permutations_are_uniform():
    orders = Draw(5).shuffles(24_000, 4)
    codes = (orders * torch.tensor([64, 16, 4, 1])).sum(1)
    expected = {sum(p * c for p, c in zip(order, (64, 16, 4, 1), strict=True)) for order in permutations(range(4))}
    found, counts = codes.unique(return_counts=True)
    assert set(found.tolist()) == expected
    assert stats.chisquare(counts.numpy()).pvalue > TOO_UNLIKELY


@given(n=st.integers(1, 300), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_a_permutation_holds_every_number_once(n, seed):
    assert sorted(Draw(seed).permutation(n).tolist()) == list(range(n))
    keys = Draw(seed).keys(2, n)
    assert all(len(set(row)) == n for row in keys.tolist())


@pytest.mark.parametrize("word", [0, 5, 2**32 - 1])
@pytest.mark.parametrize("n", [1, 2, 4, 5, 8, 9, 300])
def test_equal_words_make_no_equal_keys(monkeypatch, word, n):
    """Two words of a row are alike one time in 2^32: then their place decides."""
    monkeypatch.setattr(Draw, "bits", lambda draw, shape: torch.full(shape, word))
    assert torch.equal(Draw(0).keys(2, n).argsort(1), torch.arange(n).expand(2, n))
    assert (Draw(0).keys(2, n).diff() > 0).all()


@pytest.mark.parametrize("other", [Draw(0, 1), Draw(1, 0), Draw(0).stream("a"), Draw(0, 2**32), Draw(2**32)])
def test_seeds_streams_and_steps_are_independent(other):
    a, b = Draw(0).uniform(SIZE).double(), other.uniform(SIZE).double()
    r = torch.corrcoef(torch.stack((a, b)))[0, 1]
    assert abs(r) < 5 / SIZE**0.5
    joint = torch.bincount((a * 8).long() * 8 + (b * 8).long(), minlength=64)
    assert stats.chisquare(joint.numpy()).pvalue > TOO_UNLIKELY


def test_successive_draws_and_steps_are_uncorrelated():
    u = Draw(6).uniform(SIZE).double()
    steps = torch.stack([Draw(6, step).uniform(1)[0] for step in range(2_000)]).double()
    for series in (u, steps):
        for lag in (1, 2, 3, 4, len(series) // 4):
            r = torch.corrcoef(torch.stack((series[:-lag], series[lag:])))[0, 1]
            assert abs(r) < 5 / (len(series) - lag) ** 0.5


@pytest.mark.parametrize("parts", [(4,), (3, 5), (1, 2, 7)])
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", ["bits", "uniform", "normal", "beta", "shuffles"])
def test_shards_see_together_what_one_process_sees(parts, world, name):
    rows = sum(parts)
    make = {**MAKERS, "shuffles": lambda draw, n: draw.shuffles(n, 4)}[name]
    whole = make(Draw(1, 2).stream("x"), world * rows).split([world * part for part in parts])
    shards = [
        make(Draw(1, 2, shard=(rank, world)).stream("x").rows(*parts), rows).split(parts) for rank in range(world)
    ]
    for i, expected in enumerate(whole):
        assert torch.equal(torch.cat([shard[i] for shard in shards]), expected)


def test_shards_share_further_dimensions():
    whole = Draw(1).normal((6, 2, 3))
    shards = [Draw(1, shard=(rank, 3)).rows(2).normal((2, 2, 3)) for rank in range(3)]
    assert torch.equal(torch.cat(shards), whole)


def test_draws_of_one_process_alone_are_its_own():
    """Every process has partners of its own; where there is one, its stream has no other name."""
    assert Draw(0).stream("x").alone() == Draw(0).stream("x")
    first, second = (Draw(0, shard=(rank, 2)).stream("x").alone().permutation(20) for rank in range(2))
    assert not torch.equal(first, second)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(20))


def test_one_process_needs_no_rows():
    draw = Draw(0)
    assert draw.rows(3, 4) is draw


def test_shapes():
    assert Draw(0).bits(()).shape == ()
    assert Draw(0).bits(0).shape == (0,)
    assert Draw(0).normal((2, 0, 3)).shape == (2, 0, 3)
    assert torch.equal(Draw(0).bits((2, 3)).flatten(), Draw(0).bits(6))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda draw: draw.integers(3, 3, 1), "low < high <= low \\+ 2\\^31, got low=3, high=3"),
        (lambda draw: draw.integers(0, 2**31 + 1, 1), "high=2147483649"),
        (lambda draw: draw.beta(0.0, 1), "alpha > 0, got 0.0"),
        (lambda draw: draw.beta(float("nan"), 1), "alpha > 0, got nan"),
        (lambda draw: draw.beta(float("inf"), 1), "finite alpha > 0, got inf"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(Draw(0))


@pytest.mark.parametrize("wrong", [0.5, "1", None, torch.tensor(0.5)])
def test_seeds_and_steps_are_whole_numbers(wrong):
    for draw in (Draw(wrong), Draw(0, wrong)):
        with pytest.raises(TypeError, match="integer"):
            draw.bits(3)


def test_rows_of_another_number_than_were_announced_are_refused():
    draw = Draw(0, shard=(0, 2)).rows(2, 3)
    with pytest.raises(ValueError, match=r"for 5 rows of a shared batch, not for the shape \(4, 2\)"):
        draw.bits((4, 2))


def everything(seed, step):
    draw = Draw(seed, step).stream("compiled")
    return [make(draw, 40) for make in MAKERS.values()]


@pytest.mark.slow
def test_compiled_gives_the_same_bits():
    seed, step = torch.tensor(11), torch.tensor(2**33 + 1)
    compiled = torch.compile(everything, fullgraph=True)
    for alone, fused in zip(everything(seed, step), compiled(seed, step), strict=True):
        assert torch.equal(alone, fused)


def test_compiled_words_are_right_for_streams_of_any_number(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", {})  # a compiler that knows the multipliers may reckon with them
    names = ["b", "term/vat", "first", "a"]  # numbers of 3e8 to 4e9: products of 64 bits and of fewer

    def words(seed, step):
        return [Draw(seed, step).stream(name).bits(20) for name in names]

    seed, step = torch.tensor(2**33 + 5), torch.tensor(3)
    for name, found in zip(names, torch.compile(words)(seed, step), strict=True):
        assert found.tolist() == words_of(2**33 + 5, f"/{name}", 3, 20)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_bits():
    for make in MAKERS.values():
        here = make(Draw(11, 5), 10_000)
        there = make(Draw(torch.tensor(11, device="cuda"), torch.tensor(5, device="cuda"), "cuda"), 10_000)
        assert torch.equal(here, there.cpu())


def in_tensors(draw, count):
    """The words of a draw by the tensor form, which compiled and captured steps use."""
    block = torch.arange((count + 3) // 4)
    low, high = draw.step & 0xFFFFFFFF, (draw.step >> 32) & 0xFFFFFFFF
    stream = zlib.crc32(draw.path.encode())
    counter = torch.stack([block, block * 0 + low, block * 0 + stream, block * 0 + high])
    return philox(counter, (draw.seed & 0xFFFFFFFF, (draw.seed >> 32) & 0xFFFFFFFF)).reshape(-1)[:count]


@given(
    seed=st.integers(-(2**63), 2**63 - 1),
    step=st.one_of(st.integers(0, 40), st.integers(-(2**40), 2**62 + 40)),
    count=st.one_of(st.integers(0, 30), st.sampled_from([1020, 1024, 1025, 1029])),
)
def test_words_made_on_the_host_are_those_of_the_tensor_form(seed, step, count):
    draw = Draw(seed, step).stream("words")
    assert torch.equal(draw.bits(count), in_tensors(draw, count))


@pytest.mark.parametrize(("seed", "step"), [(3, 5), (2**40 + 3, 7), (-1, 2**40 + 9)])
def test_what_no_host_may_make_has_the_same_words(monkeypatch, seed, step):
    expected = Draw(seed, step).stream("words").bits((3, 3))
    monkeypatch.setattr("ns3l.draw._eager", lambda device: False)
    assert torch.equal(Draw(seed, step).stream("words").bits((3, 3)), expected)
    onboard = Draw(torch.tensor(seed), torch.tensor(step)).stream("words")
    assert torch.equal(onboard.bits((3, 3)), expected)


@pytest.mark.parametrize("count", [8, 2000])
def test_what_a_caller_does_to_its_words_stays_with_it(count):
    draw = Draw(1, 2)
    before = draw.bits(count).clone()
    draw.bits(count).zero_()
    assert torch.equal(draw.bits(count), before)


def test_seeds_may_be_mapped_over():
    seeds = torch.tensor([3, 4])
    mapped = torch.func.vmap(lambda seed: Draw(seed, 5).bits(6))(seeds)
    assert torch.equal(mapped, torch.stack([Draw(3, 5).bits(6), Draw(4, 5).bits(6)]))


@pytest.mark.parametrize("shape", [(0, 3), (3, 5), (40, 1, 8, 8), (100, 3, 32, 32)])
def test_noise_made_on_the_host_is_that_of_the_tensor_form(monkeypatch, shape):
    quick = Draw(7, 21).stream("noise").noise(shape)
    monkeypatch.setattr("ns3l.draw._eager", lambda device: False)
    assert torch.equal(quick, Draw(7, 21).stream("noise").noise(shape)) and quick.shape == shape
