"""Games of agents: one game (`play`), runs of many (`runs`), their `results`, and the `tools` that agents may call."""
