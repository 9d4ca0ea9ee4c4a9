"""A user's table: its columns and their kinds, checked and read."""

from sigmax.tables.levels import GAP, Levels
from sigmax.tables.schema import Column, Kind, Schema
from sigmax.tables.table import Table, infer_schema

__all__ = ["GAP", "Column", "Kind", "Levels", "Schema", "Table", "infer_schema"]
