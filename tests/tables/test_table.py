"""Kinds of columns for every type of cells, and tables that raise errors."""

from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator

from sigmax.documents import decode, encode
from sigmax.errors import InvalidArgumentError, InvalidDataError
from sigmax.tables import Kind, Schema, Table, infer_schema
from sigmax.tables.table import find_time_format, parse_times


class Reader(BaseEstimator):
    """An estimator that reads tables and learns nothing."""

    def __init__(self, categorical=None, numeric=None):
        self.categorical, self.numeric = categorical, numeric

    def fit(self, X, y=None):
        y = np.arange(len(X), dtype=float) if y is None else y
        kinds = {"categorical": self.categorical, "numeric": self.numeric}
        self.table_, self.y_, *_ = Table.read_training(self, X, y, **kinds)
        return self

    def read(self, X):
        return Table.read(self, X, self.table_.schema)


CELLS = {
    "size": [1.5, 2.5, None, 4.0],
    "rooms": [1, 2, 3, 4],
    "cut": ["good", None, "bad", "good"],
    "is_new": [True, False, True, True],
    "sold": ["09/22/1986", "12/01/1999", "01/31/2001", None],
}
KINDS = {
    "size": Kind.NUMBER,
    "rooms": Kind.NUMBER,
    "cut": Kind.CATEGORY,
    "is_new": Kind.CATEGORY,
    "sold": Kind.TIME,
}


@pytest.fixture(params=["pandas", "polars", "objects"])
def frame(request):
    if request.param == "polars":
        return pl.DataFrame(CELLS)
    frame = pd.DataFrame(CELLS)
    return frame.astype(object) if request.param == "objects" else frame


def test_kinds_categories_ranges_and_missing_values_are_found(frame):
    schema = infer_schema(frame)
    assert {column.name: column.kind for column in schema} == KINDS
    by_name = {column.name: column for column in schema}
    assert by_name["cut"].categories == ("bad", "good") and by_name["cut"].has_missing
    assert by_name["is_new"].categories == ("False", "True") and not by_name["is_new"].has_missing
    assert (by_name["size"].low, by_name["size"].high) == (1.5, 4.0) and by_name["size"].has_missing
    assert by_name["sold"].time_format == "%m/%d/%Y" and by_name["sold"].has_missing
    assert decode(Schema, *encode(schema)) == schema


def test_cells_are_the_same_whatever_frame_they_came_in(frame):
    table = Reader().fit(frame).table_
    np.testing.assert_array_equal(table.numbers[:, 1], [1.5, 2.5, np.nan, 4.0])
    codes = {
        c.name: column.codes.tolist()
        for c, column in zip(table.schema.of_kind(Kind.CATEGORY), table.categories, strict=True)
    }
    assert codes == {"cut": [1, -1, 0, 1], "is_new": [1, 0, 1, 1]}
    assert table.times[0, 0] == datetime(1986, 9, 22, tzinfo=UTC).timestamp()
    assert np.isnan(table.times[3, 0])


@pytest.mark.parametrize(
    "cells",
    [
        pd.Series(["1", "2", None], dtype="category"),
        pd.Series(["1", "2", None], dtype=object),
        pd.Series([1, 2, None], dtype="Int64"),
        pd.Series([1.0, 2.0, None]),
        pd.Series([1, 2, None], dtype="Int64").astype("category"),
        pd.Series(["1", "2", ""], dtype="string"),
    ],
    ids=str,
)
def test_categories_do_not_depend_on_their_type(cells):
    column = infer_schema(pd.DataFrame({"code": cells}), categorical=["code"]).columns[0]
    assert column.categories == ("1", "2") and column.has_missing and column.kind is Kind.CATEGORY


def test_numbers_stay_numbers_whatever_their_type():
    frame = pd.DataFrame(
        {
            "int8": np.array([1, 2], dtype=np.int8),
            "nullable": pd.array([1, 2], dtype="Int64"),
            "float32": np.array([1, 2], dtype=np.float32),
            "object": np.array([1, 2], dtype=object),
            "duration": pd.to_timedelta([1, 2], unit="s"),
        }
    )
    schema = infer_schema(frame)
    assert {(column.kind, column.low, column.high) for column in schema} == {(Kind.NUMBER, 1, 2)}


def test_times_of_every_type_are_seconds_since_1970():
    frame = pd.DataFrame(
        {
            "texts": ["1970-01-02", "1970-01-03"],
            "stamps": pd.to_datetime(["1970-01-02", "1970-01-03"]),
            "zoned": pd.to_datetime(["1970-01-02", "1970-01-03"]).tz_localize("UTC"),
            "dates": [date(1970, 1, 2), date(1970, 1, 3)],
            "category": pd.Series(["1970-01-02", "1970-01-03"], dtype="category"),
        }
    )
    table = Reader().fit(frame).table_
    np.testing.assert_array_equal(table.times, [[86400.0] * 5, [172800.0] * 5])
    polars = Reader().fit(pl.DataFrame({"day": [date(1970, 1, 2), date(1970, 1, 3)]})).table_
    np.testing.assert_array_equal(polars.times[:, 0], [86400.0, 172800.0])


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2014-10-13", "2014-10-14 12:00"], "ISO8601"),
        (["13/10/2014", "01/02/2014"], "%d/%m/%Y"),
        (["03/10/2014", "01/02/2014"], "%m/%d/%Y"),
        (["13.10.2014", "01.02.2014"], "%d.%m.%Y"),
        (["20141013T000000", "20141231T000000"], "%Y%m%dT%H%M%S"),
        (["13-Oct-2014", "01-Feb-2014"], "%d-%b-%Y"),
        (["10/13/2014 03:20 PM", "02/01/2014 11:00 AM"], "%m/%d/%Y %I:%M %p"),
        (["2014-10-13", "soon"], None),
        (["98178", "98125"], None),
        (["1.5.3", "2.0.1"], None),
        (["room 12-10-2014", "room 2"], None),
        (["2014-13-45", "2014-10-10"], None),
        ([], None),
    ],
)
def test_formats_of_dates(texts, expected):
    assert find_time_format(np.array(texts, dtype=object)) == expected


def test_dates_that_are_none_are_named():
    with pytest.raises(InvalidDataError, match="Column 'sold' holds times, but row 2 is 'soon'"):
        parse_times(np.array(["2014-10-13", "soon"], dtype=object), "ISO8601", "sold")


def test_columns_of_a_frame_are_found_by_name():
    frame = pd.DataFrame(CELLS)
    reader = Reader().fit(frame)
    table, other = reader.read(frame), reader.read(frame[frame.columns[::-1]])
    np.testing.assert_array_equal(table.values, other.values)
    np.testing.assert_array_equal(reader.table_.values, table.values)


@pytest.mark.parametrize("module", [pd, pl])
def test_numbers_of_a_frame_are_found_by_name_and_other_names_raise_an_error(module):
    frame = module.DataFrame({"b": [1.0, 2.0], "a": [3.0, 4.0], "c": [5, 6]})
    reader = Reader().fit(frame)
    found = reader.read(frame[["c", "b", "a"]])
    np.testing.assert_array_equal(found.values, reader.table_.values)
    other = module.DataFrame({"b": [1.0, 2.0], "a": [3.0, 4.0], "d": [5, 6]})
    for wrong in (other, frame[["b", "a"]]):
        with pytest.raises(ValueError, match="feature names should match"):
            reader.read(wrong)


def test_the_order_of_columns_has_no_effect():
    frame = pd.DataFrame(CELLS)
    assert (
        Reader().fit(frame[frame.columns[::-1]]).table_.schema == Reader().fit(frame).table_.schema
    )


def test_missing_and_extra_columns_raise_an_error_with_their_name():
    frame = pd.DataFrame(CELLS)
    reader = Reader().fit(frame)
    with pytest.raises(InvalidDataError, match="Column 'cut' is missing"):
        reader.read(frame.drop(columns="cut"))
    with pytest.raises(InvalidDataError, match=r"Column 'a' \(and 1 more\) was not there in `fit`"):
        reader.read(frame.assign(a=1, b=2))


def test_cells_that_are_not_numbers_raise_an_error_with_their_row():
    reader = Reader().fit(pd.DataFrame(CELLS))
    with pytest.raises(InvalidDataError, match="Column 'rooms' holds numbers, but row 2 is 'two'"):
        reader.read(pd.DataFrame(CELLS | {"rooms": [1, "two", 3, 4]}))
    with pytest.raises(
        InvalidDataError, match="Column 'rooms' should hold numbers, but holds times"
    ):
        reader.read(pd.DataFrame(CELLS).assign(rooms=pd.Timestamp(0)))
    with pytest.raises(InvalidDataError, match="Column 'size' holds an infinite number in row 3"):
        reader.read(pd.DataFrame(CELLS | {"size": [1.0, 2.0, np.inf, None]}))


def test_numbers_that_come_as_text_are_read_where_numbers_were_learned():
    reader = Reader().fit(pd.DataFrame(CELLS))
    texts = pd.DataFrame(CELLS | {"rooms": ["1", "2", "3", "4.0"]})
    np.testing.assert_array_equal(reader.read(texts).values, reader.table_.values)


def test_kinds_can_be_chosen():
    frame = pd.DataFrame({"zip": [98178, 98125], "flag": [True, False], "n": ["1", "2"]})
    chosen = infer_schema(frame, categorical=["zip"], numeric=["flag", 2])
    assert [c.kind for c in chosen] == [Kind.CATEGORY, Kind.NUMBER, Kind.NUMBER]
    with pytest.raises(InvalidArgumentError, match="'nothing', which is no column of X"):
        infer_schema(frame, categorical=["nothing"])
    with pytest.raises(InvalidArgumentError, match="must be a list of columns, got 'zip'"):
        infer_schema(frame, categorical="zip")
    with pytest.raises(InvalidArgumentError, match="in `categorical_features` and in `numeric_f"):
        infer_schema(frame, categorical=["zip"], numeric=["zip"])


def test_arrays_of_objects_have_kinds_too():
    X = np.array([["a", 1.0, None], ["b", 2.0, 3.0]], dtype=object)
    reader = Reader().fit(X)
    assert [c.kind for c in reader.table_.schema] == [Kind.CATEGORY, Kind.NUMBER, Kind.NUMBER]
    np.testing.assert_array_equal(reader.read(X).values, reader.table_.values)


def test_plain_numbers_keep_their_order_and_copies_nothing():
    frame = pd.DataFrame({"b": [1.0, 2.0], "a": [3.0, 4.0]})
    table = Reader().fit(frame).table_
    assert table.schema.names == ["b", "a"] and table.schema.is_plain
    assert table.values is table.numbers


def test_columns_of_lists_and_repeated_names_raise_an_error():
    with pytest.raises(InvalidDataError, match="Column 'a' has the type List"):
        infer_schema(pl.DataFrame({"a": [[1], [2]]}))
    twice = pd.DataFrame([[1, "a"], [2, "b"]], columns=np.array(["a", "a"]))
    with pytest.raises((InvalidDataError, ValueError), match="a"):
        infer_schema(twice)


def test_the_order_of_rows_by_their_content_is_the_same_after_a_shuffle():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=50), "c": rng.choice(list("abc"), 50)})
    shuffle = rng.permutation(50)
    first, second = Reader().fit(frame).table_, Reader().fit(frame.iloc[shuffle]).table_
    order, other = first.canonical_order(), second.canonical_order()
    np.testing.assert_array_equal(first[order].values, second[other].values)


def test_rows_of_a_table_that_are_equal_have_equal_values():
    frame = pd.DataFrame(
        {"x": [np.nan, 1.0, np.nan, 1.0], "c": ["a", None, "a", None], "t": [pd.NaT, pd.NaT] * 2}
    )
    values = Reader().fit(frame).table_.values
    np.testing.assert_array_equal(values[:2], values[2:])
    assert np.all(np.isfinite(values)) and np.any(values[0] != values[1])


@pytest.mark.parametrize("empty", [np.nan, None, pd.NaT])
def test_a_column_without_any_cell_takes_whatever_comes(empty):
    frame = pd.DataFrame({"x": [1.0, 2.0], "nothing": [empty, empty]})
    reader = Reader().fit(frame)
    column = reader.table_.schema.columns[0]
    assert (column.name, column.kind, column.categories) == ("nothing", Kind.CATEGORY, ())
    for cell in (7, "seven", empty):
        reader.read(frame.assign(nothing=cell))


@pytest.mark.parametrize("cells", [[[1], [2]], [{"a": 1}, {"b": 1}], [1j, 2j]], ids=str)
def test_cells_of_unusable_types_raise_an_error(cells):
    column = pd.Series(cells, dtype=object)
    with pytest.raises(InvalidDataError, match=r"Column 'a' (contains .* objects|has the type)"):
        Reader().fit(pd.DataFrame({"a": column, "b": ["x", "y"]}))


def test_columns_may_be_numbered_and_must_be_there():
    frame = pd.DataFrame({0: [1.0, 2.0, 3.0], 1: ["a", "b", "a"]})
    reader = Reader().fit(frame)
    np.testing.assert_array_equal(reader.read(frame).values, reader.table_.values)
    with pytest.raises(InvalidDataError, match="X has no columns"):
        Reader().fit(pd.DataFrame(index=range(3)))
