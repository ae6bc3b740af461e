"""Reads a log with Inspect: as a log, with its dataframes, and with its command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from inspect_ai.analysis import evals_df, events_df, messages_df, samples_df
from inspect_ai.log import read_eval_log

path = sys.stdin.read()
log = read_eval_log(path)
samples = log.samples or []
dump = subprocess.run(
    [str(Path(sys.executable).parent / "inspect"), "log", "dump", path], capture_output=True, check=True
)
frames = (evals_df, samples_df, messages_df, events_df)
found = {
    "status": log.status,
    "samples": len(samples),
    "prompts": [len(event.input) for event in samples[0].events if event.event == "model"],
    "events": sum(len(sample.events) for sample in samples),
    "rows": {frame.__name__: len(frame(path, quiet=True)) for frame in frames},
    "dumped": json.loads(dump.stdout)["status"],
}
print(json.dumps(found))
