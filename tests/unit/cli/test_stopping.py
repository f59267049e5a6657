import os
import signal

import pytest

from coharness.cli.stopping import StopSwitch


def press(number: signal.Signals = signal.SIGINT) -> None:
    # A signal to this very process is delivered before kill returns, so nothing needs to be waited for.
    os.kill(os.getpid(), number)


def is_hard(switch: StopSwitch) -> bool:
    assert switch.wanted is not None
    return switch.wanted.hard


def test_nobody_asked() -> None:
    with StopSwitch() as switch:
        assert switch.wanted is None


def test_once_asks_to_drain_twice_to_stop_at_once_three_times_leaves() -> None:
    with StopSwitch() as switch:
        press()
        assert not is_hard(switch)
        press()
        assert is_hard(switch)
        with pytest.raises(KeyboardInterrupt):
            press()


def test_a_scheduler_s_signal_asks_to_drain() -> None:
    with StopSwitch() as switch:
        press(signal.SIGTERM)
        assert not is_hard(switch)
        assert switch.wanted is not None
        assert "SIGTERM" in switch.wanted.reason


def test_the_handlers_are_given_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopSwitch():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
