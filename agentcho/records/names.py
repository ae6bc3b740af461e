"""The files in the folder of a record, by name: whoever writes, merges, checks or deletes them goes by this list.

Does not know: what is in them.
"""

from __future__ import annotations

from types import MappingProxyType

INFO = "run.json"
TRANSCRIPT = "transcript.jsonl"
HEARD = "heard.jsonl"
OUTCOMES = "outcomes.jsonl"
CALLS, TYPED = "calls.jsonl", "typed.jsonl"
LINES = MappingProxyType({TRANSCRIPT: True, HEARD: True, OUTCOMES: True, CALLS: False, TYPED: False})
"""All files of lines, and whether every record has one; the others are there from their first line on. Records of
format 1 have no `heard.jsonl`."""
