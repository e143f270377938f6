"""A run, or several beside each other, as one page for people; `figures` draws its parts on matplotlib axes."""

from nvil.report.contents import Contents
from nvil.report.page import write_comparison, write_report

__all__ = ["Contents", "write_comparison", "write_report"]
