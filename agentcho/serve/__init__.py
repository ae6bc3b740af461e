"""A server that speaks OpenAI's HTTP API, in front of one choreographer a model."""
