"""Tables of users: their columns, kinds and cells, read from files and checked."""

from sigmax.tables.table import MISSING, CategoryColumn, Column, Kind, Schema, Table, infer_schema

__all__ = ["MISSING", "CategoryColumn", "Column", "Kind", "Schema", "Table", "infer_schema"]
