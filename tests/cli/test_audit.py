"""`agentcho audit` end to end on the fake engine: its inputs, its output files, its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from agentcho.audit.report import AuditReport
from agentcho.config import RunConfig
from agentcho.records.record import find
from agentcho.testing import FakeEngine

from .conftest import Command, one_line

AUDIT = ("audit", "prisoners-dilemma", "--model", "fake", "--leakage", "audit", "--set", "first=alice")
PLAY = Path(__file__).parents[2] / "scenarios" / "prisoners_dilemma.py"
FILES = ("--json", "r.json", "--sarif", "r.sarif", "--junit", "r.xml", "--html", "r.html", "--csv", "r.csv")
SECRET = "zanzibar at dawn"
WHISPER = f'''
import agentcho

class Whisper(agentcho.Scenario):
    """Ada knows a secret and speaks; Ben answers."""
    name = "whisper"

    class Options(agentcho.Scenario.Options):
        password: str = ""

    class Outcome(agentcho.Scenario.Outcome):
        pass

    async def play(self, game):
        ada = game.cast(agentcho.Agent, name="ada", system="{SECRET}", audience="everyone")
        ben = game.cast(agentcho.Agent, name="ben", system="You are Ben.", audience="everyone")
        await ada.think(prompt="{SECRET}")
        await ada.say(header="one ")
        await ben.say(header="two ")
        return self.Outcome()
'''


def report(path: str = "r.json") -> AuditReport:
    return AuditReport.model_validate_json(Path(path).read_bytes())


def findings(path: str = "r.json") -> dict[str, Any]:
    """The findings of a report by fingerprint, in the form in which they are reported."""
    return {f.fingerprint: (f.rule, f.message, f.path, f.games, f.edges) for f in report(path).findings}


def test_a_scenario_is_played_recorded_and_audited(agentcho: Command, here: Path) -> None:
    ran = agentcho(*AUDIT, "--games", "2", "--seed", "3", *FILES)
    assert (ran.code, ran.err) == (1, "")
    first, *lines = ran.out.splitlines()
    assert first == "LEAKS: alice can learn what bob keeps private, and bob can learn what alice keeps private"
    assert "      error  AC002  bob reads messages of alice that carry private messages of alice: 14 readings" in lines
    assert "                    bob ← alice.3 ← alice.2 · in 2 games · 1 hop" in lines
    talk = next(n for n, line in enumerate(PLAY.read_text().splitlines(), 1) if "speaker.talk()" in line)
    assert f"                    scenarios/prisoners_dilemma.py:{talk}  bob and alice.3" in lines
    run = find("last", Path("runs"))
    assert (run.info.config.games, run.info.config.seed) == (2, 3)
    assert report().subject.source == str(run.path)
    (log,) = json.loads(Path("r.sarif").read_text())["runs"]
    assert len(log["results"]) == len(report().findings)
    assert log["invocations"][0]["exitCode"] == 1
    assert ElementTree.parse("r.xml").getroot().get("failures") == "2"
    assert Path("r.html").read_text().startswith("<!doctype html>")
    assert sorted(path.name for path in here.iterdir()) == ["r.csv", "r.html", "r.json", "r.sarif", "r.xml", "runs"]


def test_a_run_and_its_trace_say_what_the_scenario_said(agentcho: Command) -> None:
    agentcho(*AUDIT, "--games", "2", *FILES)
    assert agentcho("audit", "last", "--json", "run.json").code == 1
    assert findings("run.json") == findings()
    agentcho("show", "last", "--trace", "t.jsonl")
    assert agentcho("audit", "t.jsonl", "--json", "trace.json").code == 1
    assert findings("trace.json") == findings()
    assert report("trace.json").subject.planned
    assert {finding.place.file for finding in report("trace.json").findings if finding.place} == {"t.jsonl"}
    id = find("last", Path("runs")).info.id
    for name in (id, id[:15], f"runs/{id}"):
        assert agentcho("audit", name).code == 1


def test_ids_in_findings_are_those_that_show_prints(agentcho: Command) -> None:
    agentcho(*AUDIT, "--json", "run.json")
    plain = agentcho("show", "last").out
    told = agentcho("show", "last", "--ids").out
    printed = {line.split("  ")[0] for line in told.splitlines()}
    audit = report("run.json")
    cited = {id for finding in audit.findings for id in finding.path}
    cited |= {id for release in audit.releases for id in (release.message, *release.sources)}
    assert len(cited) > 5
    assert cited <= printed
    assert "alice.0  alice (private system)" in told
    assert "alice.0" not in plain


@pytest.mark.parametrize("how", [("--leakage", "enforce", "--deterministic"), ("--mode", "baseline")])
def test_what_leaks_nothing_is_clean(agentcho: Command, how: tuple[str, ...]) -> None:
    ran = agentcho(*AUDIT, *how)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("CLEAN (encodings): no agent reads what it may not read; words: ")
    agentcho("show", "last", "--trace", "t.jsonl")
    planned = agentcho("audit", "t.jsonl", *how)
    assert planned.code == 0
    assert planned.out.startswith(
        "CLEAN (encodings): no agent reads what it may not read, as the resolver plans it; words: "
    )


def test_the_level_that_fails_is_a_choice(agentcho: Command) -> None:
    agentcho(*AUDIT, "--leakage", "enforce")
    codes = [agentcho("audit", "last", "--fail-on", level).code for level in ("error", "warning", "note", "never")]
    assert codes == [0, 1, 1, 0]
    agentcho(*AUDIT)
    assert agentcho("audit", "last", "--fail-on", "never").code == 0


def test_a_run_that_is_not_whole_is_inconclusive(agentcho: Command, here: Path) -> None:
    ran = agentcho(*AUDIT, "--leakage", "deny")
    assert ran.code == 3
    assert "LeakageError: bob may not read message alice.3" in ran.err
    assert ran.out.startswith("INCONCLUSIVE: ")
    agentcho(*AUDIT, "--mode", "baseline")
    file = find("last", Path("runs")).path / "run.json"
    file.write_text(file.read_text().replace('"status": "done"', '"status": "running"'))
    assert agentcho("audit", "last").code == 3
    assert agentcho("audit", "last", "--fail-on", "never").code == 3


def test_json_alone_goes_to_standard_output(agentcho: Command) -> None:
    ran = agentcho(*AUDIT, "--json", "-", "--html", "r.html")
    assert ran.code == 1
    assert AuditReport.model_validate_json(ran.out).conclusion == "findings"
    assert agentcho("audit", "last", "--display", "none").out == ""
    assert "\x1b" not in agentcho("audit", "last").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--json", "."), "--json: . cannot be written: it is a folder"),
        (("--html", "no/r.html"), "--html: no/r.html cannot be written: there is no folder no"),
        (("--sarif", "-"), "--sarif: only --json can go to standard output"),
        (("--sarif", "a", "--junit", "./a"), "is also the file of --sarif"),
        (("--fail-on", "sometimes"), "--fail-on"),
        (("--games", "0"), "--games"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_files_are_checked_before_anything_is_played(
    agentcho: Command, here: Path, words: tuple[str, ...], told: str
) -> None:
    ran = agentcho(*AUDIT, "--junit", "fine.xml", *words)
    assert ran.code == 2
    assert told in ran.err
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("last", "--games", "3"), "--games: has no effect on a run"),
        (("last", "--leakage", "enforce"), "--leakage: has no effect on a run"),
        (("last", "--deterministic"), "--deterministic: has no effect on a run"),
        (("last", "--repair", "full"), "--repair: has no effect on a run"),
        (("last", "--reuse", "in-place"), "--reuse: has no effect on a run"),
        (("last", "--measure"), "--measure: the fake model has nothing to measure"),
        (("last", "--seed", "3"), "--seed: has no effect on a run without --measure"),
        (("t.jsonl", "--set", "first=bob"), "--set: has no effect on a trace"),
        (("t.jsonl", "--model", "fake"), "--model: has no effect on a trace without --measure"),
        (
            ("nothing",),
            "TARGET: neither a run in runs nor a trace (.jsonl); no scenario or agent named 'nothing'; known:",
        ),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(agentcho: Command, words: tuple[str, ...], told: str) -> None:
    agentcho("run", "prisoners-dilemma", "--model", "fake", "--display", "none")
    agentcho("show", "last", "--trace", "t.jsonl")
    ran = agentcho("audit", *words)
    assert ran.code == 2
    assert told in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("last",), "no run 'last' in runs"),
        (("no.jsonl",), "there is no file no.jsonl, which should have traces (agentcho-trace/1); `agentcho show RUN "),
        ((*AUDIT[1:], "--baseline", "no.json"), "no.json: cannot be read"),
        ((*AUDIT[1:], "--suppress", "no.toml"), "no.toml: cannot be read"),
        ((*AUDIT[1:], "--set", "colour=red"), "colour"),
        ((*AUDIT[1:], "--deterministic", "--shadow", "always"), "shadow=always contradicts deterministic"),
        ((*AUDIT[1:], "--repair", "half"), "'half' is none of first-k:TOKENS"),
        (("t.jsonl", "--reuse", "ape:1"), "'ape:1' is none of rotate, in-place and ape[:TEMPERATURE,SCALE]"),
        (("t.jsonl", "--mode", "baseline", "--reuse", "in-place"), "reuse has no effect in baseline mode"),
        (("t.jsonl", "--repair", "full", "--reuse", "in-place"), "repair needs choreographed mode with reuse=rotate"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_what_is_wrong_is_said_in_a_line(agentcho: Command, words: tuple[str, ...], told: str) -> None:
    assert told in one_line(agentcho("audit", *words))


def test_a_beginning_of_several_ids_is_reported_as_such(agentcho: Command) -> None:
    for _ in range(2):
        agentcho("run", "prisoners-dilemma", "--model", "fake", "--display", "none")
    for words in (("audit", "2"), ("show", "2"), ("run", "--resume", "2")):
        assert "2 runs in runs begin so: 2" in one_line(agentcho(*words))


def test_repair_is_audited_as_played_and_as_planned(agentcho: Command) -> None:
    for repair, code in (("first-k:2", 1), ("full", 0)):
        played = agentcho(*AUDIT, "--repair", repair, "--json", "played.json")
        agentcho("show", "last", "--trace", "t.jsonl")
        planned = agentcho("audit", "t.jsonl", "--repair", repair, "--json", "planned.json")
        assert (played.code, planned.code) == (code, code)
        for name in ("played.json", "planned.json"):
            assert report(name).subject.environment["repair"] == repair
        assert f"--repair {repair}" in report("planned.json").subject.reproduce
        assert f"--repair {repair}" in report("played.json").subject.environment["played by"]


@pytest.mark.slow
def test_a_way_of_reading_is_audited_as_played_and_as_planned(agentcho: Command) -> None:
    for leakage, code in (("audit", 1), ("enforce", 0)):
        for way in ("in-place", "ape:0.9,0.8"):
            how = ("--leakage", leakage, "--reuse", way)
            played = agentcho(*AUDIT, *how, "--json", "played.json")
            agentcho("show", "last", "--trace", "t.jsonl")
            planned = agentcho("audit", "t.jsonl", "--mode", "choreographed", *how, "--json", "planned.json")
            assert (played.code, planned.code) == (code, code)
            found = [report(name) for name in ("played.json", "planned.json")]
            assert [each.subject.environment["reuse"] for each in found] == [way, way]
            assert found[0].matrix == found[1].matrix
            assert f"--reuse {way}" in found[1].subject.reproduce
    agentcho("audit", "t.jsonl", "--reuse", "rotate", "--json", "planned.json")
    assert "reuse" not in report("planned.json").subject.environment


def test_findings_are_new_unchanged_or_gone(agentcho: Command) -> None:
    agentcho(*AUDIT, *FILES)
    again = agentcho("audit", "last", "--baseline", "r.json", "--json", "again.json")
    assert again.code == 1
    assert {finding.status for finding in report("again.json").findings} == {"unchanged"}
    gone = agentcho(*AUDIT, "--mode", "baseline", "--baseline", "r.json", "--json", "gone.json")
    assert gone.code == 0
    statuses = {(f.rule, f.status) for f in report("gone.json").findings}
    assert {("AC002", "gone"), ("AC008", "gone"), ("AC007", "unchanged")} == statuses
    assert " · gone" in gone.out


def test_what_somebody_answers_for_fails_no_more(agentcho: Command, here: Path) -> None:
    agentcho(*AUDIT, *FILES)
    errors = [finding for finding in report().findings if finding.level == "error"]
    entry = '[[suppress]]\nfingerprint = "{}"\nowner = "dana"\nreason = "wanted"\nexpires = {}\n'
    (here / "s.toml").write_text("".join(entry.format(error.fingerprint, "2999-01-01") for error in errors))
    ran = agentcho("audit", "last", "--suppress", "s.toml")
    assert ran.code == 0
    assert ran.out.startswith("SUPPRESSED: ")
    assert ran.out.count("suppressed: wanted (dana, until 2999-01-01)") == len(errors)
    (here / "s.toml").write_text(entry.format(errors[0].fingerprint, "2001-01-01"))
    assert agentcho("audit", "last", "--suppress", "s.toml").code == 1


def test_words_stay_secret_unless_they_are_revealed(agentcho: Command, here: Path) -> None:
    (here / "whisper.py").write_text(WHISPER)
    words = ("audit", "whisper.py", "--model", "fake", "--leakage", "audit", "--set", f"password={SECRET}", *FILES)
    ran = agentcho(*words)
    assert ran.code == 1
    assert "ben can learn what ada keeps private" in ran.out
    outputs = {name: Path(name).read_text() for name in FILES[1::2]}
    assert SECRET in (find("last", Path("runs")).path / "transcript.jsonl").read_text()
    assert not [name for name, text in {"out": ran.out, "err": ran.err, **outputs}.items() if SECRET in text]
    revealed = agentcho(*words, "--reveal")
    assert SECRET not in revealed.out
    assert [name for name in FILES[1::2] if SECRET in Path(name).read_text()] == ["r.json", "r.html"]


def test_effects_are_measured_on_the_weights_that_were_played(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Weighed(FakeEngine):
        """Its weights can change, and their dtype is another than a machine would choose."""

        weights = "old"

        @property
        def fingerprint(self) -> dict[str, str]:
            return super().fingerprint | {"weights": self.weights, "dtype": "bfloat16"}

    def load(config: RunConfig, tell: object) -> FakeEngine:
        loaded.append(config.dtype)
        return Weighed()

    loaded = list[str]()
    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", load)
    assert agentcho("run", "prisoners-dilemma", "--model", "understudy", "--display", "none").code == 0
    monkeypatch.setattr("agentcho.cli.audit._measured", lambda report, *how: report)
    assert agentcho("audit", "last", "--measure", "--fail-on", "never").code == 0
    assert loaded == ["auto", "bfloat16"]
    monkeypatch.setattr(Weighed, "weights", "new")
    told = one_line(agentcho("audit", "last", "--measure"))
    assert "the weights of understudy changed after " in told


def test_something_unexpected_is_a_line_and_a_file(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("two\nlines")

    agentcho("run", "prisoners-dilemma", "--model", "fake", "--display", "none")
    monkeypatch.setattr("agentcho.audit.audit_run", broken)
    monkeypatch.setattr(tempfile, "tempdir", str(here))
    ran = agentcho("audit", "last", *FILES)
    assert ran.code == 4
    assert ran.err.startswith("internal error: RuntimeError: two lines; the traceback is in ")
    assert ran.err.count("\n") == 1
    (traceback,) = here.glob("*.traceback.txt")
    assert str(traceback) in ran.err
    assert "in broken" in traceback.read_text()
    assert not Path("r.json").exists()


def test_a_run_records_its_profile_and_its_shadows(agentcho: Command) -> None:
    words = ("run", "prisoners-dilemma", "--model", "fake", "--leakage", "enforce", "--display", "none")
    assert agentcho(*words, "--deterministic", "--shadow", "never").code == 0
    config = find("last", Path("runs")).info.config
    assert (config.deterministic, config.shadow) == (True, "never")


@pytest.mark.slow
def test_a_reader_who_goes_away_is_no_internal_error(agentcho: Command) -> None:
    agentcho("run", "prisoners-dilemma", "--model", "fake", "--display", "none")
    code = "from agentcho.cli import main; main()"
    words = [sys.executable, "-c", code, "audit", "last"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        told = process.stderr.read()
    assert (process.returncode, told) == (141, b"")


FAILING = '''"""A society whose own code fails."""
import agentcho

class Failing(agentcho.Scenario):
    """Fails."""

    name = "failing"

    class Outcome(agentcho.Scenario.Outcome):
        """Nothing."""

    async def play(self, game):
        await game.announce("Welcome.")
        return self.Outcome(**looked_up({}))

def looked_up(table):
    return table["missing"]
'''


def test_an_audit_of_a_scenario_that_fails_names_the_lines_of_its_code(agentcho: Command, here: Path) -> None:
    (here / "failing.py").write_text(FAILING)
    ran = agentcho("audit", "failing.py", "--model", "fake", "--display", "none")
    assert ran.err.splitlines()[:3] == [
        "error: failing.py:17: KeyError: 'missing'",
        "    failing.py:14, in play: return self.Outcome(**looked_up({}))",
        '    failing.py:17, in looked_up: return table["missing"]',
    ]
    assert "outcomes.jsonl" in ran.err.splitlines()[3]
    assert "INCONCLUSIVE" in agentcho("audit", "last").out


def test_a_folder_of_runs_is_told_from_a_run(agentcho: Command, here: Path) -> None:
    for cell in ("a", "b"):
        assert agentcho("run", "direct", "--model", "fake", "--display", "none", "--runs-dir", f"cmp/{cell}").code == 0
    first = next((here / "cmp" / "a").iterdir()).relative_to(here).as_posix()
    for words in (("show", "cmp"), ("audit", "cmp"), ("show", "cmp/a")):
        ran = agentcho(*words)
        assert ran.code == 2
        assert f"{words[1]} is a folder with " in ran.err
        assert first in ran.err
    assert "no run 'nowhere' in runs" in agentcho("show", "nowhere").err
