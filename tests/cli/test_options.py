"""What the words of options mean, and what is said of those that mean nothing."""

import pytest

from ns3l.cli import options
from ns3l.errors import UserError


@pytest.mark.parametrize(("text", "value"), [("4000", 4000), ("0.1", 0.1), (None, None)])
def test_labels(text, value):
    assert options.labels_of(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "1.0", "1.5", "many", "0.0", "nan.", "1e3"])
def test_wrong_labels(text):
    with pytest.raises(UserError, match="count"):
        options.labels_of(text)


def test_held_out_may_be_nothing():
    assert options.held_out("0") == 0
    assert options.held_out("0.2") == 0.2
    assert options.held_out(None) is None


@pytest.mark.parametrize(
    ("seeds", "seed", "numbers"),
    [(None, None, (0,)), (None, 7, (7,)), ("3", None, (0, 1, 2)), ("0,2,7", None, (0, 2, 7)), ("5,", None, None)],
)
def test_seeds(seeds, seed, numbers):
    if numbers is None:
        with pytest.raises(UserError, match="--seeds"):
            options.seeds_of(seeds, seed)
    else:
        assert options.seeds_of(seeds, seed) == numbers


@pytest.mark.parametrize(("seeds", "seed"), [("2", 1), ("0", None), ("1,1", None), ("a", None), (None, -1)])
def test_wrong_seeds(seeds, seed):
    with pytest.raises(UserError, match="seed"):
        options.seeds_of(seeds, seed)


def test_settings():
    assert options.settings_of(["a.b = 3", "c=True", "d=x=y"]) == {"a.b": "3", "c": "true", "d": "x=y"}
    for words in (["a"], ["=3"], ["a=1", "a=2"]):
        with pytest.raises(UserError, match="--set"):
            options.settings_of(words)


def test_sizes():
    assert options.sides_of("32") == (32, 32)
    assert options.sides_of("32x48") == (32, 48)
    for text in ("0", "a", "1x2x3", ""):
        with pytest.raises(UserError, match="--size"):
            options.sides_of(text)


def test_options_of_another_kind_of_data_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,label\n1,x\n")
    with pytest.raises(UserError, match="--size is for folders"):
        options.load_options("digits", size="32")
    with pytest.raises(UserError, match="--skip-damaged is for folders"):
        options.load_options(str(tmp_path / "t.csv"), skip_damaged=True)
    with pytest.raises(UserError, match="--label-column is for CSV"):
        options.load_options("digits", label="label")
    assert options.load_options(str(tmp_path / "t.csv"), label="a") == {"label": "a"}
    assert options.load_options(str(tmp_path), size="8") == {"size": (8, 8)}


def test_a_summand_is_completed_by_what_begins_like_it():
    assert options.complete_method("vat+mean") == ["vat+mean-teacher"]
    assert set(options.complete_method("pl")) == {"pl", "pl-one-pass"}
