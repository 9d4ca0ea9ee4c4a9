"""Reports as single HTML pages: a model on held-out rows, or a comparison of methods."""

from sigmax.report.model_page import ModelReport
from sigmax.report.page import Page
from sigmax.report.validation import HeldOutRows, LearnedRows

__all__ = ["HeldOutRows", "LearnedRows", "ModelReport", "Page"]
