"""Names of categories and columns, ranges as text, patterns of files, and units of rows."""

import pytest

from sigmax.features.categories import most_categories
from sigmax.tables import Column, Kind
from sigmax.tables.profile import range_texts
from sigmax.tables.reading import cut_groups
from sigmax.tables.sources import matches, split_pattern
from sigmax.tables.table import category_name, split_columns


def test_a_category_has_one_name_as_text_number_and_boolean():
    names = [category_name(value) for value in ("a", 1, 1.0, 1.5, True)]
    assert names == ["a", "1", "1", "1.5", "True"]


def test_columns_on_the_command_line_may_be_separated_by_commas():
    given, columns = ["a,b", "net, gross"], ["a", "b", "net, gross"]
    assert split_columns(given, columns) == ("a", "b", "net, gross")


def test_ranges_have_the_precision_that_they_need():
    size = Column("size", Kind.NUMBER, low=0.1234567, high=9.0)
    assert range_texts(size) == ("0.123457", "9")
    assert range_texts(Column("day", Kind.TIME, low=0.0, high=1e7)) == ("1970-01-01", "1970-04-26")


def test_a_pattern_is_split_at_its_first_wildcard():
    base, pattern = split_pattern("s3://bucket/2024/*/new.parquet?region=eu-north-1")
    assert base == "s3://bucket/2024?region=eu-north-1" and pattern == ["*", "new.parquet"]


def test_two_asterisks_match_any_folders():
    assert matches(["a", "b", "c.csv"], ["**", "*.csv"])
    assert not matches(["a", "c.csv"], ["*.csv"])


@pytest.mark.parametrize(
    ("sizes", "units"),
    [
        ([40, 40, 40, 150], [(0, 2, 0, 80), (2, 1, 0, 40), (3, 1, 0, 150)]),
        ([250], [(0, 1, 0, 100), (0, 1, 100, 100), (0, 1, 200, 50)]),
        ([], [(0, 0, 0, 0)]),
    ],
)
def test_units_are_whole_row_groups_unless_a_group_is_far_larger(sizes, units):
    assert list(cut_groups(sizes, 100)) == units


def test_columns_of_many_rows_have_fewer_coordinates():
    assert [most_categories(n) for n in (1000, 50_000, 1_000_000)] == [200, 40, 20]
