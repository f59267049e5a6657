"""Where problems come from: task sources, one file each, the answer formats they render references in, and drawing by pool.

A source is a pure function of (family, level, seed): two processes that build the same recipe get the same task, and the
content hash in the recipe proves it. Sources hold no randomness, no clock and no open files. Heavy packages that a source
needs are imported when a config names that source, never before.
"""

from coharness.tasks.draw import draw_task, pool_seeds, pool_size
from coharness.tasks.formats import FORMATS, AnswerFormat, Solution
from coharness.tasks.python_source import simple_source
from coharness.tasks.sources import TaskSources, build_sources

__all__ = [
    "FORMATS",
    "AnswerFormat",
    "Solution",
    "TaskSources",
    "build_sources",
    "draw_task",
    "pool_seeds",
    "pool_size",
    "simple_source",
]
