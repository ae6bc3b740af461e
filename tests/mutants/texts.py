"""Mutants of games with models behind APIs: what is sent, what is recorded, and what an audit concludes."""

from __future__ import annotations

from .mutant import Mutant

AUDIT = "tests/audit/test_texts.py"
TURN = "tests/choreography/test_endpoint.py"
BESIDE = "tests/models/test_endpoints.py"
ENDPOINTS, TEXT_TURN = "agentcho/games/play/endpoints.py", "agentcho/games/play/remote_turn.py"
CONES, MODELS = "agentcho/audit/cones.py", "agentcho/records/models.py"

TEXTS = (
    Mutant(
        "what is private goes to every vendor",
        "a whisper of an agent here would be sent to whoever serves the model of its hearer",
        ENDPOINTS,
        "draft.metadata.audience != EVERYONE and",
        "False and",
        (
            f"{BESIDE}::test_what_is_private_does_not_leave_for_another_vendor",
            f"{BESIDE}::test_nothing_private_reaches_a_vendor_that_may_not_have_it",
        ),
    ),
    Mutant(
        "agents of one vendor may not whisper",
        "what was said through a vendor's model would be kept from that vendor",
        ENDPOINTS,
        " and own != vendor:",
        ":",
        (f"{BESIDE}::test_agents_of_one_vendor_may_whisper",),
    ),
    Mutant(
        "one vendor that is allowed allows all",
        "--allow-vendor would open what is private to everybody",
        ENDPOINTS,
        "port.vendor not in self._allowed",
        "not self._allowed",
        (f"{BESIDE}::test_a_vendor_may_be_allowed_to_see_it",),
    ),
    Mutant(
        "others are quoted as who is asked",
        "a model would take what another agent said for its own words",
        ENDPOINTS,
        "draft.metadata.author == reader\n",
        "reader is not None\n",
        (f"{TURN}::test_a_prompt_is_what_its_author_reads_in_the_roles_that_servers_have",),
    ),
    Mutant(
        "code has a piece before the record",
        "a process that is killed could have shown what no record has",
        TEXT_TURN,
        "self._record.add(text)\n        self._write()\n",
        "self._record.add(text)\n",
        (f"{TURN}::test_pieces_are_on_record_before_the_code_has_them",),
    ),
    Mutant(
        "a prompt is sent before it is on record",
        "of a process that is killed nobody could say what it had sent",
        TEXT_TURN,
        "        self._begin()\n        try:\n",
        "        try:\n",
        (f"{TURN}::test_a_prompt_is_on_record_before_it_is_sent",),
    ),
    Mutant(
        "any answer is a choice",
        "an endpoint that ignores choices would put whatever it likes before all hearers",
        TEXT_TURN,
        "choices is not None and text not in choices",
        "choices is None and text is None",
        (f"{TURN}::test_a_choice_that_is_none_is_an_error_and_nobody_reads_it",),
    ),
    Mutant(
        "what was shown need not be what is said",
        "code and record could have other words than the agents read",
        TEXT_TURN,
        "elif self._record.text != text:",
        "elif not text:",
        (f"{TURN}::test_what_was_shown_is_what_is_said",),
    ),
    Mutant(
        "what no server reports costs nothing",
        "a limit of tokens would never end a game on a server that reports none",
        "agentcho/games/play/journal.py",
        "return said or len(words.text.encode())",
        "return said or 0",
        (f"{TURN}::test_limits_count_what_the_server_reports_and_else_the_bytes_of_the_text",),
    ),
    Mutant(
        "a run that goes on asks again",
        "what was said already would be said otherwise, and paid twice",
        "agentcho/games/play/journal.py",
        "return KnownText(entry.message.text, entry.message.stopped, entry.usage)",
        "return None",
        (f"{TURN}::test_a_run_goes_on_with_the_words_that_were_said_and_asks_for_none_of_them",),
    ),
    Mutant(
        "texts that are clean are clean",
        "an audit would vouch for caches that nobody has seen",
        "agentcho/audit/judgement.py",
        'return "texts-clean" if report.texts else "clean"',
        'return "clean"',
        (f"{AUDIT}::test_views_that_held_are_texts_clean_and_never_clean",),
    ),
    Mutant(
        "what stands in a prompt leaks nothing",
        "a direct leak into the prompt of an endpoint would be passed over",
        "agentcho/audit/verdict.py",
        '"direct" if secret else',
        '"clean" if secret else',
        (f"{AUDIT}::test_a_direct_leak_into_a_prompt_is_a_leak",),
    ),
    Mutant(
        "a model that is not listed counts",
        "a local message would need no provenance once its line named some other engine",
        CONES,
        "if entry.engine not in self._models.names:",
        "if entry.engine == '':",
        (f"{AUDIT}::test_a_model_that_is_not_listed_says_nothing_that_counts",),
    ),
    Mutant(
        "an endpoint's message may have tokens",
        "a local message could be renamed to an endpoint's, and its encoding be passed over",
        CONES,
        "entry.message.tokens or entry.encoding is not None or any",
        "any",
        (f"{AUDIT}::test_a_local_message_renamed_to_an_endpoint_is_found_out_by_all_that_it_has",),
    ),
    Mutant(
        "a line that stands twice counts once",
        "a second line of a message could say that it read something else",
        CONES,
        '    if lines != 1:\n        return f"message {id} has {lines} lines"\n',
        "",
        (f"{AUDIT}::test_a_line_that_stands_twice_hides_nothing",),
    ),
    Mutant(
        "a loaded model is an endpoint if it says so",
        "one word in a record would turn missing provenance into texts",
        MODELS,
        ' and fingerprint.keys().isdisjoint(("weights", "tokenizer"))',
        "",
        (f"{AUDIT}::test_a_model_with_weights_is_no_endpoint_whatever_it_says",),
    ),
)
