# A debate as an Inspect log. Writing it does not need Inspect; `inspect view --log-dir .` opens it.
set -e
agentcho run debate --model fake --seed 1 --display none
agentcho show last --inspect debate.eval
