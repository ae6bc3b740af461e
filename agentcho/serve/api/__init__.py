"""Bodies of OpenAI's APIs to requests, and answers to their objects and events. Without sockets."""
