"""The names of the files in a record's folder, for all code that writes, merges, checks or deletes them."""

from __future__ import annotations

from types import MappingProxyType

INFO = "run.json"
TRANSCRIPT = "transcript.jsonl"
HEARD = "heard.jsonl"
OUTCOMES = "outcomes.jsonl"
CALLS, TYPED = "calls.jsonl", "typed.jsonl"
LINES = MappingProxyType({TRANSCRIPT: True, HEARD: True, OUTCOMES: True, CALLS: False, TYPED: False})
"""All files of lines, and whether every record has one; the others are created with their first line. Records of format
1 have no `heard.jsonl`."""
