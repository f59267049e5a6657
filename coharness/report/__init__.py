"""What people look at: the page of a run, the terminal summary, metrics files, all projected from the run directory.

Nothing here is read back for a decision. Sealed readings alone carry claims; see `sealed_view` for what may be claimed.
"""

from coharness.report.history import read_history
from coharness.report.html import write_report
from coharness.report.summary import terminal_summary

__all__ = ["read_history", "terminal_summary", "write_report"]
