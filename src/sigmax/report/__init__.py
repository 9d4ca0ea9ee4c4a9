"""Reports that stand alone: what a model is worth on rows that it had not seen, as one page."""

from sigmax.report.comparison_page import ComparedMethod, Comparison
from sigmax.report.held_out import HeldOutRows
from sigmax.report.model_page import ModelReport
from sigmax.report.page import Page
from sigmax.report.rows import LearnedRows

__all__ = ["ComparedMethod", "Comparison", "HeldOutRows", "LearnedRows", "ModelReport", "Page"]
