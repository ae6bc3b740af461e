"""A person plays an agent through your own program, such as a web page or a chat room; here, standard input.

python examples/person.py understudy
"""

import sys

import anyio.to_thread

import agentcho


class Somebody(agentcho.Person):
    """Sees what the agent may read, and types a line when asked."""

    def hear(self, game: int, agent: str, message: agentcho.Message) -> None:
        print(f"{message.author or 'scenario'}: {message.header}{message.text}")

    async def ask(self, asked: agentcho.PersonPrompt) -> str:
        print(f"? {asked.header}", *asked.labels, sep="\n  ")
        while True:
            typed = (await anyio.to_thread.run_sync(sys.stdin.readline)).rstrip("\n")
            words: str = dict(zip(asked.labels, asked.choices, strict=True)).get(typed, typed)
            if (fault := asked.fault(words)) is None:
                return words
            print(f"! {fault}")


class Guess(agentcho.Scenario):
    """Ann chooses a word that Bob may not read, and describes it; Bob guesses."""

    name = "guess"

    class Outcome(agentcho.Scenario.Outcome):
        right: bool

    async def play(self, game: agentcho.Game) -> Outcome:
        ann = game.cast(agentcho.Agent, name="ann", system="Describe the word that you choose, and never say it.")
        bob = game.cast(agentcho.Agent, name="bob", system="Guess Ann's word.")
        word = await ann.choose(["moon", "bread", "clock"], "Choose a word.", to=())
        await ann.say(to="bob", header="My word: ", max_tokens=20)
        guess = await bob.choose(["moon", "bread", "clock"], "Which is it?", to=())
        return self.Outcome(right=word == guess)


if __name__ == "__main__":
    played = agentcho.run(Guess(), model=sys.argv[1], people={"bob": Somebody()}, display="none")
    print(played.games[0].outcome)
