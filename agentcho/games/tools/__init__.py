"""Tools that agents may call: functions of the user's own, and those of MCP servers."""
