"""Raft over a log of bytes: the pure core, and the seam to whoever feeds it.

`Core` takes messages, time and disk results and gives out effects: messages, writes, roles and
confirmations. `Member` carries effects out through the ports of `ports.py`; it has no I/O of its
own either. The replicated log is the CommitLog, addressed by byte offset; the core never looks
into records. In which order effects have to happen, and why, stands in `effects.py`.
"""
