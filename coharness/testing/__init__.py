"""Doubles and conformance suites for users: what an implementation of each protocol must keep, and toy data to try it on.

Tests import from here; nothing that runs in production does.
"""
