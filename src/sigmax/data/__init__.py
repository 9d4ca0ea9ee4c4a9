"""Files and formulas in, arrays and splits out."""

from sigmax.data.toy import ToyProblem

__all__ = ["ToyProblem"]
