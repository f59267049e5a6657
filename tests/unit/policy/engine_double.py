"""A process that speaks the vLLM engine's language without vLLM; what it does stands in the first token of a prompt.

7 die · 8 fall silent · 9 refuse the weights · 10 refuse the value · 11 fail · 12 write slowly until aborted · else write
"""

import os
import socket
import sys
import time

from coharness.policy.generation.channel import Channel, ChannelClosed, ChannelSilent
from coharness.policy.generation.vllm_messages import (
    Abort,
    Alive,
    Open,
    Ready,
    Refused,
    Report,
    Write,
    Written,
    order_from_json,
    report_to_json,
)
from coharness.records.episode import StopReason
from coharness.records.protocols import Generation

DIE, SILENT, WEIGHTS, VALUE, FAIL, SLOW = 7, 8, 9, 10, 11, 12
SEND_S = 10.0


def answers(order: Write, stop: StopReason) -> Written:
    return Written(
        answers=tuple(
            Generation(
                output_ids=list(r.prompt_ids),
                logprobs=[-0.5] * len(r.prompt_ids),
                stop_reason=stop,
                written_by=r.weights.digest,
            )
            for r in order.requests
        )
    )


def carry_out(channel: Channel, order: Write) -> Report:
    match order.requests[0].prompt_ids[0]:
        case 7:
            sys.stderr.write("the engine says why it died\n")
            sys.stderr.flush()
            os._exit(3)
        case 8:
            time.sleep(600)
        case 9:
            return Refused(error="weights", message="these weights are not right")
        case 10:
            return Refused(error="value", message="this value is not right")
        case 11:
            return Refused(error="engine", message="a kernel failed")
        case 12:
            while True:
                channel.send(report_to_json(Alive()), SEND_S)
                try:
                    if isinstance(order_from_json(channel.receive(0.05)), Abort):
                        return answers(order, StopReason.ABORTED)
                except ChannelSilent:
                    continue
    return answers(order, StopReason.LENGTH)


def main() -> None:
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    while True:
        try:
            order = order_from_json(channel.receive(None))
        except ChannelClosed:
            return
        match order:
            case Open(eager=False):
                report: Report = Refused(error="engine", message="no compiler here")
            case Open():
                report = Ready(device="double")
            case Write():
                report = carry_out(channel, order)
            case _:
                continue
        channel.send(report_to_json(report), SEND_S)


if __name__ == "__main__":
    main()
