"""All tests, one process: architecture, units, properties, contracts, the local Ray, and whole runs."""
