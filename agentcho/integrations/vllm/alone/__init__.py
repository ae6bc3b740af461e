"""A connector for a user's own vLLM server: agents of a society share encodings of the messages that they may read."""
