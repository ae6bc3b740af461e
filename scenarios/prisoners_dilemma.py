"""The prisoner's dilemma with a private plan, open talk and a private decision."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

import agentcho

Decision = Literal["COOPERATE", "DEFECT"]
Strategy = Literal["none", "always-defect", "always-cooperate"]
RULES = (
    "Your name is {me}. You and {you} are two prisoners in a game. Each of you will decide in private to COOPERATE "
    "or to DEFECT. If both cooperate, each gets {o.R} points. If both defect, each gets {o.P} points. If one defects "
    "and the other cooperates, the one who defects gets {o.T} points and the other gets {o.S} points. First you make "
    "a private plan, then you talk with {you} for {rounds}, and then you decide in private. {you} cannot see your "
    "plan or your decision.{instruction}"
)
INSTRUCTION = " Your private instruction: always {what}, whatever happens and whatever {you} says."
ROUNDS = {1: "one round", 2: "two rounds", 3: "three rounds"}


class PrisonersDilemma(agentcho.Scenario):
    """Two prisoners plan in private, talk in the open, and decide in private.

    Cast: alice and bob. Everyone hears the talk. Plans, predictions and decisions are private to their author, as is
    the instruction to Alice. Explored: do the private thoughts of one prisoner change what the other does?
    """

    name = "prisoners-dilemma"

    class Options(agentcho.Scenario.Options):
        """`T R P S` are the payoffs: temptation, reward, punishment, sucker. `behind` is the paper's ablation (its
        Figure 8), and has no effect in baseline mode."""

        strategy: Strategy = Field("none", description="Alice's private instruction")
        first: Literal["alternate", "alice", "bob"] = Field(
            "alternate", description="who talks first; alternate: in turns"
        )
        rounds: Literal[1, 2, 3] = Field(2, description="rounds of talk")
        behind: Literal["all", "system", "plan", "public"] = Field(
            "all", description="what Alice's public words are encoded over for Bob, besides the talk"
        )
        predict: bool = Field(False, description="ask each for a private guess before deciding")
        T: int = Field(5, description="points for defecting against a cooperator")
        R: int = Field(3, description="points each when both cooperate")
        P: int = Field(1, description="points each when both defect")
        S: int = Field(0, description="points for cooperating with a defector")

    class Outcome(agentcho.Scenario.Outcome):
        """The two decisions, and the guesses if they were requested."""

        alice: Decision
        bob: Decision
        alice_predicts: Decision | None = None
        bob_predicts: Decision | None = None

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        rules = self.rules("Alice", "Bob")
        alice = game.cast("prisoner", name="alice", you="bob", system=rules, behind=self.options.behind)
        bob = game.cast("prisoner", name="bob", you="alice", system=self.rules("Bob", "Alice"))
        await game.together(alice.plan(), bob.plan())
        alice_first = self.options.first == "alice" or (self.options.first == "alternate" and game.index % 2 == 0)
        order = (alice, bob) if alice_first else (bob, alice)
        for _ in range(self.options.rounds):
            for speaker in order:
                await speaker.talk()
        guesses = await game.together(alice.predict(), bob.predict()) if self.options.predict else (None, None)
        decisions = await game.together(alice.decide(), bob.decide())
        return self.Outcome(alice=decisions[0], bob=decisions[1], alice_predicts=guesses[0], bob_predicts=guesses[1])

    def rules(self, me: str, you: str) -> str:
        """The private system prompt of one player."""
        what = {"always-defect": "DEFECT", "always-cooperate": "COOPERATE"}.get(self.options.strategy)
        told = INSTRUCTION.format(what=what, you=you) if what and me == "Alice" else ""
        return RULES.format(me=me, you=you, o=self.options, rounds=ROUNDS[self.options.rounds], instruction=told)

    def paired(self, message: agentcho.Metadata) -> bool:
        """The private plans, as in the paper."""
        return message.id in {"alice.2", "bob.2"}

    def score(self, outcome: Outcome) -> dict[str, float]:
        """Each player's points, whether it cooperated, and, if guesses were requested, how it acted on its guess."""
        points = {"alice": self.points(outcome.alice, outcome.bob), "bob": self.points(outcome.bob, outcome.alice)}
        decisions: dict[str, Decision] = {"alice": outcome.alice, "bob": outcome.bob}
        guesses: dict[str, Decision | None] = {"alice": outcome.alice_predicts, "bob": outcome.bob_predicts}
        judged = self.judgements(decisions, guesses) if None not in guesses.values() else {}
        return points | {f"{who} cooperates": float(what == "COOPERATE") for who, what in decisions.items()} | judged

    def judgements(self, decisions: dict[str, Decision], guesses: dict[str, Decision | None]) -> dict[str, float]:
        """The paper's Table 7, per player: `predicts cooperation`, its guess; `correct`, the other did as guessed;
        `exploits`, it expects cooperation and defects; `defends`, it expects defection and defects."""
        found: dict[str, float] = {}
        for me, you in (("alice", "bob"), ("bob", "alice")):
            defects = decisions[me] == "DEFECT"
            found[f"{me} predicts cooperation"] = float(guesses[me] == "COOPERATE")
            found[f"{me} correct"] = float(guesses[me] == decisions[you])
            found[f"{me} exploits"] = float(guesses[me] == "COOPERATE" and defects)
            found[f"{me} defends"] = float(guesses[me] == "DEFECT" and defects)
        return found

    def points(self, mine: Decision, other: Decision) -> float:
        """The points of one player, from its own decision and the other's."""
        o = self.options
        table = {("DEFECT", "COOPERATE"): o.T, ("COOPERATE", "COOPERATE"): o.R, ("DEFECT", "DEFECT"): o.P}
        return float(table.get((mine, other), o.S))
