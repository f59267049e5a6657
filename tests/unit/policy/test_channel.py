"""JSON values between two ends of a socket pair: whole, in order, or an error in time."""

import math
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coharness.policy.generation.channel import Channel, ChannelClosed, ChannelSilent

WAIT_S = 30.0
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def pair() -> tuple[Channel, Channel]:
    a, b = socket.socketpair()
    return Channel(a), Channel(b)


@settings(deadline=None)
@given(st.lists(VALUES, max_size=6))
def test_values_arrive_whole_and_in_order(values: list[object]) -> None:
    here, there = pair()
    for value in values:
        here.send(value, WAIT_S)
    assert [there.receive(WAIT_S) for _ in values] == values
    here.close()
    there.close()


def test_a_value_larger_than_the_socket_s_buffer_arrives_whole() -> None:
    here, there = pair()
    value = list(range(2_000_000))
    sender = threading.Thread(target=here.send, args=(value, WAIT_S))
    sender.start()
    assert there.receive(WAIT_S) == value
    sender.join(WAIT_S)


def test_threads_that_send_at_once_do_not_mix_their_values() -> None:
    here, there = pair()
    senders = [threading.Thread(target=here.send, args=([i] * 100_000, WAIT_S)) for i in range(4)]
    for sender in senders:
        sender.start()
    got = [there.receive(WAIT_S) for _ in senders]
    assert sorted(value[0] for value in got) == [0, 1, 2, 3]
    assert all(len(set(value)) == 1 and len(value) == 100_000 for value in got)


def test_silence_is_an_error_in_time_and_does_not_lose_what_came_so_far() -> None:
    a, b = socket.socketpair()
    there = Channel(b)
    a.sendall(b'{"half":')
    with pytest.raises(ChannelSilent):
        there.receive(0.05)
    a.sendall(b"1}\n")
    assert there.receive(WAIT_S) == {"half": 1}
    a.close()


def test_one_that_takes_nothing_is_an_error_in_time() -> None:
    here, _there = pair()
    with pytest.raises(ChannelSilent):
        here.send("x" * 10_000_000, 0.05)


def test_a_far_end_that_hung_up_is_known_after_its_last_value() -> None:
    here, there = pair()
    here.send("last", WAIT_S)
    here.close()
    assert there.receive(WAIT_S) == "last"
    with pytest.raises(ChannelClosed):
        there.receive(WAIT_S)
    with pytest.raises(ChannelClosed):
        there.send("x" * 10_000_000, WAIT_S)


def test_what_json_cannot_write_is_refused_before_anything_is_sent() -> None:
    here, there = pair()
    with pytest.raises(ValueError, match="JSON"):
        here.send([math.nan], WAIT_S)
    here.send("next", WAIT_S)
    assert there.receive(WAIT_S) == "next"
