# Pages of a game: one with every word, and one to share with only what Ben may read.
set -e
agentcho run "$(dirname "$0")/werewolf.py" --model fake --seed 1 --display none
agentcho view last --html werewolf.html
agentcho view last --eyes ben --html ben.html
