"""The reward service: scores, pairs and rankings over HTTP, for trainers that are not this one.

    request ─► limits ─► token ─► items ─► judge (threads) ─► results bound to the request ─► signed reply

Invariants: nothing is answered without a token that has the scope; a body is bounded before it is parsed; every result names the
digest of the item that it is of, and the reply is signed over request and body, so that a swapped, replayed or altered one is
seen; a failure is an outcome and never a number; no text of an exception leaves the process.
"""
