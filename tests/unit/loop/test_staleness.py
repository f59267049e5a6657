"""An update starts only where all groups that it leaves can still be used in time."""

import random

import pytest

from coharness.loop.practice import keeps_bound


@pytest.mark.parametrize(
    ("head", "waiting", "running", "expected"),
    [
        (0, [0] * 4, {}, True),
        (2, [2] * 4, {0: 4}, False),
        (1, [1] * 4, {0: 4}, True),
        (1, [1] * 4, {0: 8}, False),  # a slow batch that holds two updates' groups
        (2, [0] * 4, {1: 4}, True),
        (2, [0] * 8, {}, False),
    ],
)
def test_what_is_left_must_be_used_in_time(head, waiting, running, expected):
    assert keeps_bound(head, waiting, running, size=4, bound=2) is expected


@pytest.mark.parametrize("bound", [0, 1, 2, 3])
@pytest.mark.parametrize("batch", [3, 4, 8, 13])
def test_whatever_order_batches_return_in_no_group_is_too_old_and_nothing_waits_for_ever(bound, batch):
    size = 4
    for seed in range(40):
        rng = random.Random(seed)
        head, waiting, running, oldest_used = 0, [], [], 0
        for _ in range(400):
            room = (bound + 1) * size - len(waiting) - sum(n for _, n in running)
            if room > 0 and rng.random() < 0.6:
                running.append((head, min(room, batch)))
            elif running and rng.random() < 0.5:
                version, count = running.pop(rng.randrange(len(running)) if rng.random() < 0.7 else -1)
                waiting += [version] * count
            abroad = {}
            for version, count in running:
                abroad[version] = abroad.get(version, 0) + count
            may = len(waiting) >= size and keeps_bound(head, waiting, abroad, size, bound)
            assert may or running or len(waiting) < size
            if may:
                waiting.sort()
                oldest_used = max(oldest_used, head - waiting[0])
                waiting = waiting[size:]
                head += 1
        assert head > 20
        assert oldest_used <= bound
