import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ns3l.data.dataset import Dataset
from ns3l.errors import DataError, RecipeError
from ns3l.split import Split, SplitRequest, make_split


def dataset(sizes, unlabeled=0, extra=0, folds=()):
    """Features that are row numbers; classes in a fixed mixed order."""
    y = np.concatenate([np.full(size, k) for k, size in enumerate(sizes)] + [np.full(unlabeled, -1)]).astype(np.int64)
    y = y[np.random.default_rng(0).permutation(len(y))]
    x = np.arange(len(y), dtype=np.float32)[:, None]
    more = np.full((extra, 1), -5, np.float32) if extra else None
    return Dataset("toy", x, y, tuple(f"class {k}" for k in range(len(sizes))), x_extra=more, folds=folds)


def per_class(data, rows):
    return np.bincount(data.y[rows], minlength=len(data.classes)).tolist()


@pytest.mark.parametrize(
    "total, validation, labels, pool", [(50_000, 5_000, 4_000, 45_000), (73_257, 7_325, 1_000, 65_932)]
)
def test_sizes_of_the_papers_protocols(total, validation, labels, pool):
    sizes = np.diff(np.linspace(0, total, 11).astype(int))
    data = dataset(sizes)
    for inside in (True, False):
        split = make_split(data, SplitRequest(labels, validation, labeled_in_pool=inside), seed=3)
        assert per_class(data, split.labeled) == [labels // 10] * 10
        assert len(split.validation) == validation
        assert len(split.unlabeled) == (pool if inside else pool - labels)
        assert np.isin(split.labeled, split.unlabeled).all() == inside
        assert not np.intersect1d(split.validation, np.concatenate((split.labeled, split.unlabeled))).size


def test_sets_are_the_whole_and_do_not_meet():
    data = dataset([7, 9, 11], unlabeled=5, extra=4)
    split = make_split(data, SplitRequest(6, 3, labeled_in_pool=False), seed=1)
    everything = np.concatenate((split.labeled, split.validation, split.unlabeled))
    assert sorted(everything.tolist()) == list(range(7 + 9 + 11 + 5 + 4))
    assert (data.y[split.labeled] >= 0).all() and (data.y[split.validation] >= 0).all()
    assert np.isin(np.flatnonzero(data.y == -1), split.unlabeled).all()
    assert np.isin(np.arange(32, 36), split.unlabeled).all()


def test_without_a_number_every_label_stays():
    data = dataset([4, 5], unlabeled=6)
    split = make_split(data, SplitRequest(), seed=0)
    assert split.labeled.tolist() == np.flatnonzero(data.y >= 0).tolist()
    assert split.unlabeled.tolist() == list(range(15))
    assert not len(split.validation)


def test_shares_count_known_rows():
    data = dataset([50, 50], unlabeled=100)
    split = make_split(data, SplitRequest(0.1, 0.2), seed=0)
    assert len(split.validation) == 20 and len(split.labeled) == 8
    assert len(make_split(data, SplitRequest(1.0), seed=0).labeled) == 100


def test_stratified_is_the_largest_remainder():
    data = dataset([500, 310, 190])
    assert per_class(data, make_split(data, SplitRequest(26, balance="stratified"), 0).labeled) == [13, 8, 5]
    assert per_class(data, make_split(data, SplitRequest(21, balance="stratified"), 0).labeled) == [10, 7, 4]
    rare = dataset([990, 9, 1])
    assert per_class(rare, make_split(rare, SplitRequest(10, balance="stratified"), 0).labeled) == [8, 1, 1]


def test_remainder_of_balanced_is_drawn_by_the_seed():
    data = dataset([20] * 5)
    counts = [per_class(data, make_split(data, SplitRequest(12), seed).labeled) for seed in range(30)]
    assert all(sorted(count) == [2, 2, 2, 3, 3] for count in counts)
    assert len(set(map(tuple, counts))) > 5


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=6),
    balance=st.sampled_from(["balanced", "stratified"]),
    validation=st.sampled_from([0, 0.25]),
    seed=st.integers(0, 2**40),
)
def test_nested_sets_grow(sizes, balance, validation, seed):
    data = dataset(sizes)
    last, apart = set(), None
    for labels in range(len(sizes), sum(sizes) + 1):
        try:
            split = make_split(data, SplitRequest(labels, validation, balance, nested=True), seed)
        except DataError as error:
            assert any(said in str(error) for said in ("at most", "more than there are", "can spare 0"))
            break
        chosen = set(split.labeled.tolist())
        assert len(chosen) == labels and last < chosen
        assert min(per_class(data, split.labeled)) >= 1
        assert apart is None or apart == split.validation.tolist()
        last, apart = chosen, split.validation.tolist()


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=2, max_size=7),
    share=st.floats(0.01, 1.0),
    nested=st.booleans(),
)
def test_stratified_stays_within_one_row_or_two_of_proportion(sizes, share, nested):
    data = dataset(sizes)
    labels = max(len(sizes), round(share * sum(sizes)))
    split = make_split(data, SplitRequest(labels, balance="stratified", nested=nested), seed=5)
    counts = np.array(per_class(data, split.labeled))
    quota = labels * np.array(sizes) / sum(sizes)
    assert counts.sum() == labels and (counts <= sizes).all() and (counts >= 1).all()
    if (quota >= 1).all() and not nested:
        assert (np.abs(counts - quota) < 1).all()


def test_nested_seats_go_by_sainte_lague():
    """One for each class; then each seat to the class with the largest size over 1, 3, 5, ... for each seat it has."""
    sizes = [50, 24, 11]
    seats = [1, 1, 1]
    for _ in range(17):
        worth = [size / (2 * held + 1) for size, held in zip(sizes, seats, strict=True)]
        seats[worth.index(max(worth))] += 1
    data = dataset(sizes)
    split = make_split(data, SplitRequest(20, balance="stratified", nested=True), seed=1)
    assert per_class(data, split.labeled) == seats


def test_not_nested_counts_are_fresh_draws_with_the_same_validation():
    data = dataset([400] * 4)
    few, many = (make_split(data, SplitRequest(n, 100), seed=2) for n in (100, 400))
    assert np.isin(few.labeled, many.labeled).mean() < 0.6
    assert few.validation.tolist() == many.validation.tolist()


def test_every_row_is_as_likely_as_its_neighbour():
    data = dataset([12, 12])
    counts = np.zeros(24)
    for seed in range(600):
        counts[make_split(data, SplitRequest(8, 0), seed).labeled] += 1
    chi_square = ((counts - 200) ** 2 / 200).sum()
    assert chi_square < 45  # 23 degrees of freedom or fewer: exceeded with probability < 0.4 %


def test_golden():
    y = np.arange(12) % 2
    split = make_split(Dataset("toy", np.zeros((12, 1), np.float32), y, ("a", "b")), SplitRequest(4, 2), seed=7)
    assert split.labeled.tolist() == [0, 1, 2, 9]
    assert split.validation.tolist() == [3, 10]


def test_same_in_same_out_and_no_global_state():
    data = dataset([9, 9])
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    one, two, other = (make_split(data, SplitRequest(6, 4), seed) for seed in (0, 0, 1))
    assert one.hash == two.hash != other.hash
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def folded():
    folds = tuple(np.random.default_rng(k).permutation(20)[:8].astype(np.int64) for k in range(3))
    return dataset([10, 10], extra=30, folds=folds)


def test_official_fold():
    data = folded()
    split = make_split(data, SplitRequest(fold=1, validation=4, labeled_in_pool=False), seed=0)
    assert split.labeled.tolist() == sorted(data.folds[1].tolist())
    assert len(split.validation) == 4 and len(split.unlabeled) == 20 - 8 - 4 + 30
    assert make_split(data, SplitRequest(8, fold=1), seed=0).labeled.tolist() == split.labeled.tolist()
    for seed in range(4):
        labeled = make_split(data, SplitRequest(fold="seed"), seed).labeled
        assert labeled.tolist() == sorted(data.folds[seed % 3].tolist())
    with pytest.raises(DataError, match=r"no official folds; leave fold out"):
        make_split(dataset([5, 5]), SplitRequest(fold="seed"), seed=0)
    with pytest.raises(DataError, match=r"fold 3 was asked for, toy has folds 0 to 2"):
        make_split(data, SplitRequest(fold=3), seed=0)
    with pytest.raises(DataError, match=r"no official folds; leave fold out"):
        make_split(dataset([5, 5]), SplitRequest(fold=0), seed=0)
    with pytest.raises(DataError, match=r"fold 1 has 8 labels, but labels=9"):
        make_split(data, SplitRequest(9, fold=1), seed=0)


@pytest.mark.parametrize(
    "request_", [SplitRequest(4, 0.2), SplitRequest(labels=0.5, nested=True), SplitRequest(fold=2)]
)
def test_manifest_round_trip(request_):
    data = folded()
    split = make_split(data, request_, seed=11)
    back = Split.from_dict(json.loads(json.dumps(split.to_dict())))
    for part in ("labeled", "unlabeled", "validation"):
        assert getattr(back, part).tolist() == getattr(split, part).tolist()
        assert getattr(back, part).dtype == np.int64
    assert (back.hash, back.seed, back.request, back.generator) == (split.hash, 11, request_, split.generator)
    back.check(data)


def test_a_row_that_changes_its_set_changes_the_hash():
    """Also where all rows written one after the other are the same numbers."""
    none = np.empty(0, np.int64)
    splits = [Split(np.arange(cut), np.arange(cut, 4), none, 0, "data") for cut in range(5)]
    assert len({split.hash for split in splits}) == 5


def test_pool_is_written_in_few_ranges():
    split = make_split(dataset([500, 500], extra=100_000), SplitRequest(4, 3), seed=0)
    assert len(split.to_dict()["unlabeled_ranges"]) <= 4


def test_refused_manifests():
    data = dataset([5, 5], unlabeled=2)
    split = make_split(data, SplitRequest(4, 2), seed=0)
    other = dataset([6, 4], unlabeled=2)
    with pytest.raises(DataError, match=f"{data.hash}.*{other.hash}"):
        split.check(other)
    with pytest.raises(DataError, match="changed by hand"):
        Split.from_dict({**split.to_dict(), "labeled": split.to_dict()["labeled"][1:]})
    with pytest.raises(DataError, match="manifest of a split"):
        Split.from_dict({"labeled": [1, 2]})
    with pytest.raises(DataError, match="unknown entries"):
        Split.from_dict({**split.to_dict(), "request": {"label": 3}})
    with pytest.raises(DataError, match="no known label"):
        unlabeled = np.flatnonzero(data.y < 0)
        Split(unlabeled, split.unlabeled, split.validation, 0, data.hash).check(data)
    with pytest.raises(DataError, match="both hold row"):
        Split(split.labeled, split.unlabeled, split.labeled, 0, data.hash)
    with pytest.raises(DataError, match="rising"):
        Split(split.labeled[::-1].copy(), split.unlabeled, split.validation, 0, data.hash)
    with pytest.raises(DataError, match="pool reaches row 12"):
        Split(split.labeled, np.array([12]), split.validation, 0, data.hash).check(data)


@pytest.mark.parametrize(
    "sizes, asked, message",
    [
        ([5, 5], {"labels": 11}, "labels=11 is more than there are: toy has 10 labeled rows"),
        ([5, 5, 5], {"labels": 2}, "fewer than one per class: ask for 3 or more"),
        ([5, 5, 5], {"labels": 0.1}, r"labels=0.1 \(2 rows\) is fewer than one per class"),
        ([2, 9, 9], {"labels": 12}, 'needs 4 rows of each class, but class "class 0" has 2 left: at most 8'),
        ([5, 5], {"validation": 9}, "validation=9 means 9 rows, but toy can spare 8"),
        ([5, 0], {"labels": 2}, r"no labeled row is left of 1 classes \(class 1\)"),
        ([0, 0], {}, "no row with a known label"),
    ],
)
def test_impossible_requests_say_what_is_possible(sizes, asked, message):
    with pytest.raises(DataError, match=message):
        make_split(dataset(sizes, unlabeled=3), SplitRequest(**asked), seed=0)


def test_the_most_that_is_said_to_be_possible_is():
    data = dataset([2, 9, 9], unlabeled=3)
    assert per_class(data, make_split(data, SplitRequest(8), seed=0).labeled) == [2, 3, 3]
    assert make_split(dataset([5, 5]), SplitRequest(validation=8), seed=0).labeled.shape == (2,)


@pytest.mark.parametrize(
    "asked",
    [{"labels": 0}, {"labels": 4000.0}, {"labels": True}, {"labels": "many"}, {"validation": -1}, {"validation": 1.5},
     {"balance": "even"}, {"fold": -1}, {"fold": 1.0}, {"fold": "1"}],
)  # fmt: skip
def test_wrong_requests(asked):
    with pytest.raises(RecipeError, match=next(iter(asked))):
        SplitRequest(**asked)


def test_numpy_counts_are_counts():
    assert SplitRequest(labels=np.int64(40)) == SplitRequest(labels=40)
