"""Configuration: the schema of a run, how files and overrides become one, and how it is written back.

The only pydantic in the project. `load.load_config` is what callers want; `schema` holds the sections and their defaults.
"""
