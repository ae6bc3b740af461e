"""Games of TextArena as scenarios: `agentcho run textarena:NAME`."""
