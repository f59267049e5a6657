"""Shadow traffic: a share of what the student answered is judged by its teacher as well, out of sight, and compared.

Which items are shadowed is a hash of their content and a secret of the run: a policy that could tell them from others could
please the student everywhere else. Disagreement is watched by the e-detector of conflicts: its chance of a false alarm within
the horizon is bounded, so that an alarm may act by itself (no traffic to the student) and needs no one to look first.
"""

from dataclasses import dataclass, replace

from coharness.records.ids import hash_unit
from coharness.reward.monitors.conflict import ConflictDetector, healthy_rate_of
from coharness.reward.students.features import Item
from coharness.stats.interval import Interval
from coharness.stats.proportions import wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """The comparison so far."""

    share: float
    "Of the student's answers that are shadowed."
    secret: str
    tolerance: float
    "Difference of two scores up to which they agree."
    detector: ConflictDetector
    num_compared: int = 0
    num_disagreed: int = 0

    @classmethod
    def start(
        cls,
        *,
        secret: str,
        num_disagreed: int,
        num_compared: int,
        share: float = 0.02,
        tolerance: float = 0.25,
        horizon: int = 10_000,
        alpha: float = 0.05,
    ) -> "Shadow":
        """Before any traffic.

        Args:
            secret: Of the run.
            num_disagreed: Items on which student and teacher disagreed when the student was tested.
            num_compared: Of so many.
            share: Of the student's answers that are shadowed.
            tolerance: Difference up to which two scores agree.
            horizon: Batches of shadowed items for which the rate of false alarms is stated.
            alpha: Chance of a false alarm within the horizon.

        Raises:
            ValueError: a share or tolerance outside (0, 1], no secret, or impossible counts.
        """
        if not (0 < share <= 1 and 0 < tolerance <= 1 and secret):
            raise ValueError(
                f"got share={share!r}, tolerance={tolerance!r} and a secret of {len(secret)} characters; expected numbers in "
                "(0, 1] and a secret"
            )
        rate = healthy_rate_of(num_disagreed, num_compared)
        detector = ConflictDetector.start(rate, horizon=horizon, alpha=alpha)
        return cls(share=share, secret=secret, tolerance=tolerance, detector=detector)

    def takes(self, item: Item) -> bool:
        """Whether this item is shadowed; the same answer every time it is asked."""
        # As hex: a candidate may hold half of a surrogate pair, which has no UTF-8, and must be judged all the same.
        return hash_unit("shadow", self.secret, *(t.encode("utf-8", "surrogatepass").hex() for t in item)) < self.share

    def disagree(self, student: float, teacher: float) -> bool:
        """Whether two scores are too far apart."""
        return abs(student - teacher) > self.tolerance

    def observed(self, num_disagreed: int, num_compared: int) -> "Shadow":
        """After one batch's comparisons; a batch without any changes nothing."""
        if not num_compared:
            return self
        return replace(
            self,
            detector=self.detector.observed(num_disagreed, num_compared),
            num_compared=self.num_compared + num_compared,
            num_disagreed=self.num_disagreed + num_disagreed,
        )

    @property
    def alarms(self) -> bool:
        """Whether the student has drifted from its teacher."""
        return self.detector.alarms

    @property
    def disagreement(self) -> Interval | None:
        """Rate on shadowed traffic with Wilson's interval, for display; None before any."""
        return wilson(self.num_disagreed, self.num_compared) if self.num_compared else None
