"""Tables for tests."""

import numpy as np

from sigmax.tables import Kind, Schema, Table
from sigmax.tables.table import columns_of_array


def table_of(numbers: np.ndarray) -> Table:
    """Table of numbers, also where a column has none."""
    columns = columns_of_array(numbers)
    schema = Schema(tuple(column.describe(Kind.NUMBER) for column in columns))
    return Table.from_columns(columns, schema)
