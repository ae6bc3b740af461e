"""Mutants of what people who play agents are shown, and of how their words are handled."""

from __future__ import annotations

from .mutant import Mutant

HUMAN = "tests/people/test_human.py"
DESK = "tests/people/test_desk.py"

PEOPLE = (
    Mutant(
        "what comes out meanwhile is heard by whoever is asked",
        "what a person says would be recorded as said over less than the person had seen",
        "agentcho/games/play/people.py",
        "[agent for agent, open_ in self._asked.items() if not open_]",
        "list(self._asked)",
        (HUMAN,),
    ),
    Mutant(
        "words of people are on no record before they are encoded",
        "a run that dies meanwhile would ask twice",
        "agentcho/games/play/turn.py",
        "words = recorded.typed.get(id)",
        "words = None",
        (HUMAN,),
    ),
    Mutant(
        "the next person finds the screen of the last",
        "what is secret between two people at one keyboard would be seen as it is passed on",
        "agentcho/display/people/session.py",
        "return isinstance(self.current, Question) and self.current.agent != self.at",
        "return False",
        (DESK,),
    ),
    Mutant(
        "what is cut stays in the clipboard",
        "the next person at the keyboard could paste what the last one typed",
        "agentcho/display/people/terminal.py",
        "self._app.clipboard, self._app.emacs_state = InMemoryClipboard(), EmacsState()",
        "pass",
        (DESK,),
    ),
    Mutant(
        "what a scenario prints is shown at once",
        "a secret that is printed would stand on the screen of who must not read it",
        "agentcho/display/people/output_capture.py",
        "sys.stdout, sys.stderr = kept",
        "pass",
        (DESK,),
    ),
)
