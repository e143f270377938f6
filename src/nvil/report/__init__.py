"""A run, or several beside each other, as one page for people; `figures` draws its parts on matplotlib axes."""

from nvil.report.estimators import write_estimators
from nvil.report.page import write_comparison, write_report, write_sweep
from nvil.report.summary import Summary

__all__ = ["Summary", "write_comparison", "write_estimators", "write_report", "write_sweep"]
