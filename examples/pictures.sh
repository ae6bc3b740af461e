# Pictures of a game: one page with every word, and one with what Ben may read, to hand on.
set -e
agentcho run "$(dirname "$0")/werewolf.py" --model fake --seed 1 --display none
agentcho view last --html werewolf.html
agentcho view last --eyes ben --html ben.html
