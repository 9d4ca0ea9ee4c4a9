"""Reports as single HTML pages: a model on held-out rows, or a comparison of methods."""

from sigmax.report.comparison_page import ComparedMethod, Comparison
from sigmax.report.held_out import HeldOutRows, LearnedRows
from sigmax.report.model_page import ModelReport
from sigmax.report.page import Page

__all__ = ["ComparedMethod", "Comparison", "HeldOutRows", "LearnedRows", "ModelReport", "Page"]
