import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ns3l.data.labels import encode, parse_text
from ns3l.errors import DataError


@pytest.mark.parametrize(
    ("labels", "numbers", "classes"),
    [
        ([0, 1, -1, 1], [0, 1, -1, 1], ("0", "1")),
        (np.array([10, 2, -1]), [1, 0, -1], ("2", "10")),
        ([1.0, np.nan, 3.0], [0, -1, 1], ("1", "3")),
        (["dog", "cat", "", None, "-1"], [1, 0, -1, -1, -1], ("cat", "dog")),
        (np.array(["b", "a", ""]), [1, 0, -1], ("a", "b")),
        (np.array([b"b", b"a"]), [1, 0], ("a", "b")),
        ([True, False, None], [1, 0, -1], ("False", "True")),
        ([[3], [4]], [0, 1], ("3", "4")),
        ([-5, 5], [0, 1], ("-5", "5")),
    ],
)
def test_labels_become_numbers_in_sorted_order(labels, numbers, classes):
    if isinstance(labels, list) and isinstance(labels[0], list):
        labels = np.array(labels)
    y, y_test, names = encode(labels)
    assert y.dtype == np.int64 and y.tolist() == numbers and names == classes and y_test is None


def test_given_classes_fix_the_order():
    assert encode(["b", 0, -1], ["b", 1], classes=["b", "a"])[:2] == (pytest.approx([0, 0, -1]), pytest.approx([0, 1]))


@pytest.mark.parametrize(
    ("labels", "test", "message"),
    [
        ([1, -1, 1], None, "name them 0 and 1"),
        ([0.5, 1], None, "looks like regression"),
        ([0, float("inf")], None, "looks like regression"),
        ([0, "a"], None, "numbers and text are mixed"),
        (np.eye(3), None, r"y\.argmax\(axis=1\)"),
        ([-1, -1], None, "at least 2 classes are needed, found none"),
        (np.array([1 + 1j]), None, "whole numbers or text"),
        ([0, 1], [0, 2], "no labeled training example has: 2; the classes are 0, 1"),
        ([0, 1], [0, -1], "1 of 2 labels are missing"),
    ],
)
def test_labels_that_make_no_sense_are_refused(labels, test, message):
    with pytest.raises(DataError, match=message):
        encode(labels, test)


@given(st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=1, max_size=30))
def test_equal_labels_get_equal_numbers_and_gaps_stay_gaps(labels):
    known = {label for label in labels if label not in (None, -1)}
    if len(known) < 2:
        return
    y, _, names = encode(labels)
    back = [None if k < 0 else int(names[k]) for k in y]
    assert back == [None if label in (None, -1) else label for label in labels]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["10", "2", "", "nan", "-1"], [10, 2, None, None, -1]),
        (["1.0", "2.0", ""], [1, 2, None]),
        (["01", "2"], ["01", "2"]),
        (["NA", " b ", None], ["NA", "b", None]),
        (["1.5", "2"], ["1.5", "2"]),
    ],
)
def test_text_is_read_as_numbers_only_where_all_of_it_is(texts, expected):
    assert parse_text(texts) == expected
