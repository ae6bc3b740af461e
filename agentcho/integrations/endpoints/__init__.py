"""Models behind APIs of servers: a `TextPort` by the package `openai`, which only `client` and `wire` import."""
