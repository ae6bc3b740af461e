# A debate as a log of Inspect, which need not be installed to write it: `inspect view --log-dir .` opens it.
set -e
agentcho run debate --model fake --seed 1 --display none
agentcho show last --inspect debate.eval
