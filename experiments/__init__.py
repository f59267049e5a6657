"""What is run: the quickstart, and studies that each ask one question, write down a prediction, and report what came.

A study is imported as `experiments.<name>.study` from the project's root; `coharness` never imports this package.
"""
