"""Reads bodies of OpenAI's APIs into requests, and writes answers as their objects and events, without sockets."""
