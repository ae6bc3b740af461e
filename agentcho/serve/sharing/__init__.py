"""Who shares which encodings: societies, and prompts without one."""
