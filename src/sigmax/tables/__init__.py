"""Tables of users: their columns, kinds and cells, read from files and checked."""

from sigmax.tables.columns import MISSING, CategoryColumn
from sigmax.tables.schema import Column, Kind, Schema
from sigmax.tables.table import Table, infer_schema

__all__ = ["MISSING", "CategoryColumn", "Column", "Kind", "Schema", "Table", "infer_schema"]
