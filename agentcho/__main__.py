"""`python -m agentcho`: the command line, if its script is not on the path."""

from agentcho.cli import main

if __name__ == "__main__":
    main()
