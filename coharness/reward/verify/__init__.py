"""Verifiers: what a task's VerifierSpec names, executed. Text is compared in-process; whatever evaluates an answer runs in
a guarded child process behind a literal gate.
"""

from coharness.reward.verify.router import VerifierRouter

__all__ = ["VerifierRouter"]
