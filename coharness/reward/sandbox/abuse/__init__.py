"""Thirty kinds of abuse, what each layer is expected to do with them, and the battery that checks it."""

from coharness.reward.sandbox.abuse.attempt import Attempt, Goal, Verdict
from coharness.reward.sandbox.abuse.battery import ATTEMPTS, Finding, expected_verdict, run_attempt, run_battery

__all__ = ["ATTEMPTS", "Attempt", "Finding", "Goal", "Verdict", "expected_verdict", "run_attempt", "run_battery"]
