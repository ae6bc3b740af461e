"""A connector for a vLLM server of one's own: agents of a society share what they may read of each other's messages."""
