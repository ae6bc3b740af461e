"""A server that speaks OpenAI's HTTP API, with one choreographer per model."""
