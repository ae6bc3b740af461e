"""Files on disk: transcripts, traces, the folders of runs."""
