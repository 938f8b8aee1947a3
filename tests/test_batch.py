"""Batches: which rows a step draws, what is known of them, with and without a pool."""

import numpy as np
import pytest
import torch
from torch import nn

from ns3l.batch import BatchSize, Source, unchanged
from ns3l.data.dataset import Dataset
from ns3l.draw import Draw
from ns3l.split import SplitRequest, make_split
from ns3l.store import Resident, positions

ROWS, EXTRA = 60, 20


def data():
    """Feature rows that carry their own number; the last ten rows of x have no label."""
    rows = np.arange(ROWS + EXTRA, dtype=np.float32)[:, None].repeat(2, 1)
    y = np.where(np.arange(ROWS) < 50, np.arange(ROWS) % 3, -1)
    return Dataset("numbered", rows[:ROWS], y, ("a", "b", "c"), x_extra=rows[ROWS:])


def source(sizes=BatchSize(6, 40), split=None, **options):
    given = data()
    split = split or make_split(given, SplitRequest(labels=9, validation=6), seed=1)
    device = torch.device("cpu")
    made = Source(Resident(given, device), given, split, sizes, nn.Identity(), unchanged, device, **options)
    return made, split, given


def test_only_members_are_drawn_and_labels_belong_to_rows():
    made, split, given = source()
    labels = np.append(given.y, np.full(EXTRA, -1))
    seen = {"labeled": set(), "unlabeled": set()}
    for step in range(40):
        batch = made.batch(Draw(0, step))
        assert {view: len(x) for view, x in batch.x.items()} == {"labeled": 6, "unlabeled": 40}
        index = {view: x[:, 0].long() for view, x in batch.x.items()}
        assert batch.y.keys() == {"labeled"} and batch.y["labeled"].tolist() == labels[index["labeled"]].tolist()
        assert batch.truth["unlabeled"].tolist() == labels[index["unlabeled"]].tolist()
        for view, rows in index.items():
            seen[view] |= set(rows.tolist())
    assert seen["labeled"] == set(split.labeled.tolist())
    assert seen["unlabeled"] == set(split.unlabeled.tolist())
    assert not seen["unlabeled"] & set(split.validation.tolist())
    assert max(seen["unlabeled"]) >= ROWS


def test_seed_and_step_decide(untouched_random_state):
    made, _, _ = source()
    rows = [made.batch(draw).x["unlabeled"] for draw in (Draw(0, 3), Draw(0, 3), Draw(0, 4), Draw(1, 3))]
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], rows[2]) and not torch.equal(rows[0], rows[3])
    onboard = made.batch(Draw(torch.tensor(0), torch.tensor(3)))
    assert torch.equal(onboard.x["unlabeled"], rows[0])


def test_positions_are_those_of_the_draw():
    made, split, _ = source()
    draw = Draw(5, 7)
    for view, size in (("labeled", 6), ("unlabeled", 40)):
        place = positions(draw, view, len(getattr(split, view)), size).numpy()
        assert made.batch(draw).x[view][:, 0].tolist() == getattr(split, view)[place].tolist()


def test_views_are_drawn_apart():
    """A labeled and an unlabeled view of as many members and rows do not take the same places."""
    assert not torch.equal(positions(Draw(0), "labeled", 1000, 50), positions(Draw(0), "unlabeled", 1000, 50))


def test_shards_share_one_batch():
    whole = source(BatchSize(6, 12))[0].batch(Draw(0, 2))
    shards = [source(BatchSize(2, 4))[0].batch(Draw(0, 2, shard=(rank, 3))) for rank in range(3)]
    for view in whole.x:
        assert torch.equal(torch.cat([shard.x[view] for shard in shards]), whole.x[view])


def test_no_unlabeled_rows_where_none_are_wanted_or_there_are_none():
    batch = source(BatchSize(6, 0))[0].batch(Draw(0))
    assert set(batch.x) == {"labeled"} and not batch.truth
    split = make_split(data(), SplitRequest(labels=9), seed=1)
    empty = type(split)(split.labeled, np.empty(0, np.int64), split.validation, split.seed, split.data_hash)
    assert set(source(split=empty)[0].batch(Draw(0)).x) == {"labeled"}


def test_neighbors_belong_to_the_rows_of_the_pool():
    pool = len(source()[1].unlabeled)
    made, split, _ = source(neighbors=torch.arange(pool)[:, None].repeat(1, 3))
    batch = made.batch(Draw(0, 1))
    expected = split.unlabeled[batch.neighbors["unlabeled"][:, 0].numpy()]
    assert batch.x["unlabeled"][:, 0].tolist() == expected.tolist()


@pytest.mark.parametrize(("labeled", "unlabeled"), [(0, 5), (5, -1), (2.5, 5), (5, "5"), (True, 5)])
def test_bad_sizes(labeled, unlabeled):
    with pytest.raises(ValueError, match=rf"labeled >= 1 and unlabeled >= 0, got {labeled!r} and {unlabeled!r}"):
        BatchSize(labeled, unlabeled)
