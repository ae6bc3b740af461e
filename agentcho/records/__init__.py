"""What lies on disk: transcripts, traces, the folders of runs."""
