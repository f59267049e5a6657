"""Policies: bases and their codecs, generation engines, the weight store, objectives and trainers.

The only layer beside `evolution.merging` that may import torch, transformers and peft. It sees records, config, stats and
spaces; it knows nothing of tasks, harnesses or the loop. Importing this package loads none of the heavy libraries; its modules
that need them say so.
"""
