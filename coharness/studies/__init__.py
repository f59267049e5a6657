"""Studies: one contract for everything under experiments/ that claims a number, benchmarks included.

    contract   what a study is: cells to run, a summary of them, figures and tables
    place      where a study stands, and how its module is loaded
    sources    which source files a result depends on; `source_file` is what one of them does, as a digest, and `processes`
               notices what a cell starts, whose imports nobody sees
    results    results.json: written once a study's cells are all there, never from two versions of the code
    cells      one cell's folder and the process that fills it
    runner     all cells of a study, a few at a time, resumable
    bars       bars.json: the ranges that figures must lie in
    check      results against bars, or the reason why they cannot be compared
    listing    all studies with their state
    coverage   which operators, rules and objectives the studies' runs have exercised
    table      tables as text
    ablation_* the planner: a YAML of factors, or a study over another's cells, becomes arms, planned contrasts and tables

Imported by the command line alone; it imports nothing of `experiments` but by the name that the user gives.
"""
