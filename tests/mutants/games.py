"""Mutants of the choreographer and of games: who waits for whom, what is read through what, what is counted for whom.

Does not know: how they are applied and run.
"""

from __future__ import annotations

from .mutant import Mutant

PREFETCH = "tests/choreography/test_prefetch.py"
SYSTEM_PROMPTS = "tests/choreography/test_system_prompts.py"
CHOREOGRAPHER = "tests/choreography/test_choreographer.py"
TAINT = "tests/leaks/test_taint.py"
FAILURES = "tests/cli/test_failures.py"
FIXES = "tests/choreography/test_fixes.py"
GAME = "tests/choreography/test_game.py"
LEFTOVERS = "tests/choreography/test_leftovers.py"
LIMITS = "tests/choreography/test_limits.py"
LISTENERS = "tests/choreography/test_listeners.py"
MODES = "tests/choreography/test_modes.py"
MONITOR = "tests/leaks/test_monitor.py"
REPAIR = "tests/choreography/test_repair.py"
QUIESCENCE = "tests/choreography/test_quiescence.py"
VERBS = "tests/choreography/test_verbs.py"
VIEWS = "tests/choreography/test_views.py"

LOOP = (
    Mutant(
        "one quiet round is quiet enough",
        "a step would start while a chain of tasks is still handing on what the last step brought",
        "agentcho/choreography/quiescence.py",
        "if quiet == 2:",
        "if quiet == 1:",
        (QUIESCENCE,),
    ),
    Mutant(
        "what tasks of others submit is no activity",
        "a step would start in the midst of the requests of tasks that nobody tracks, and leave some for the next",
        "agentcho/choreography/quiescence.py",
        "quiet + 1 if before == self._stirred + activity() and not self._awake else 0",
        "quiet + 1 if not self._awake else 0",
        (f"{QUIESCENCE}::test_what_untracked_tasks_submit_is_activity",),
    ),
    Mutant(
        "who is cancelled once is not being ended",
        "code that cancels the task of its run would be one game that failed, and the run would go on without it",
        "agentcho/choreography/quiescence.py",
        "task.cancelling() > 0",
        "task.cancelling() > 1",
        (f"{FAILURES}::test_code_that_stops_the_whole_run_is_told_and_the_rest_is_played_later",),
    ),
    Mutant(
        "the last child wakes nobody",
        "a step would start before who awaited the children has gone on, and be one more than is needed",
        "agentcho/choreography/quiescence.py",
        "            if left == 0 and parent is not None:\n                parent.wake()\n",
        "",
        (f"{QUIESCENCE}::test_the_last_child_wakes_its_parent_before_it_rests",),
    ),
    Mutant(
        "who is served rests until the event loop gets to it",
        "a step could start between the result and its reader, who would miss it",
        "agentcho/choreography/handle.py",
        "            self.task.wake()\n",
        "            pass\n",
        (f"{QUIESCENCE}::test_who_is_served_counts_as_awake_from_then_unless_it_went_its_way",),
    ),
    Mutant(
        "who was cancelled is woken by its old request",
        "it would count as awake while it waits for its next one, and no step would ever start",
        "agentcho/choreography/handle.py",
        "if self.task is not None and not self.abandoned:",
        "if self.task is not None:",
        (f"{QUIESCENCE}::test_who_is_served_counts_as_awake_from_then_unless_it_went_its_way",),
    ),
    Mutant(
        "wake before the books are written",
        "where the books cannot be written, the message would be out all the same",
        "agentcho/choreography/choreographer.py",
        'if done is None or self._notify(handle, "on_done", partial(done, result)):',
        'handle.finish(result, None)\n        if done and self._notify(handle, "on_done", partial(done, result)):',
        (f"{LEFTOVERS}::test_a_callback_that_raises_fails_its_request_alone",),
    ),
    Mutant(
        "what is not on record fails the first who would hear it",
        "others who share the record that could not be written would hear words of which it knows nothing",
        "agentcho/choreography/choreographer.py",
        "            for handle in handles[1:]:\n",
        "            for handle in handles[:0]:\n",
        (f"{LISTENERS}::test_all_who_share_a_flush_that_fails_fail_with_it_and_nobody_else",),
    ),
    Mutant(
        "a shutdown cancels a step under way",
        "what the engine has finished in it would be heard of by nobody, and never be released",
        "agentcho/choreography/choreographer.py",
        "with anyio.CancelScope(shield=True):  # calls taken",
        "with anyio.CancelScope():  # calls taken",
        (f"{LEFTOVERS}::test_a_shutdown_while_the_engine_works_waits_for_it_and_leaves_nothing",),
    ),
    Mutant(
        "steps in the threads of all",
        "agents that block every worker thread would block the steps that they wait for",
        "agentcho/choreography/choreographer.py",
        "self._thread = anyio.CapacityLimiter(1)",
        "self._thread = anyio.to_thread.current_default_thread_limiter()",
        (f"{FIXES}::test_agents_that_block_every_worker_thread_do_not_stop_the_steps",),
    ),
    Mutant(
        "submit in the order of arrival",
        "the order in which tasks happen to run would show in ids, batches and last bits",
        "agentcho/choreography/choreographer.py",
        "arrived = sorted(self._arrived, key=lambda t: t.place)",
        "arrived = [*self._arrived]",
        (f"{CHOREOGRAPHER}::test_the_order_of_arrival_does_not_show",),
    ),
    Mutant(
        "a result that comes as its submitter is cancelled is nobody's",
        "what it brought would be held for good",
        "agentcho/choreography/choreographer.py",
        "                self.release(self.held(handle.ids))\n",
        "                pass\n",
        (f"{LEFTOVERS}::test_a_cancellation_just_as_the_result_comes_leaves_it_to_its_books_alone",),
    ),
    Mutant(
        "a result that comes as its submitter is cancelled is given up twice",
        "the books have it already: what they hold would be released under them",
        "agentcho/choreography/choreographer.py",
        "            if handle.request.on_done is None:\n                self.release(self.held(handle.ids))",
        "            self.release(self.held(handle.ids))",
        (f"{LEFTOVERS}::test_a_cancellation_just_as_the_result_comes_leaves_it_to_its_books_alone",),
    ),
    Mutant(
        "forget who left while it was submitted",
        "its calls would run to their end for nobody",
        "agentcho/choreography/choreographer.py",
        "            if handle.abandoned:\n                self._give_up(handle)\n",
        "",
        (f"{LEFTOVERS}::test_a_cancellation_while_the_engine_works_leaves_nothing",),
    ),
    Mutant(
        "a request that fails late keeps what was made for it",
        "the first of its calls were finished and are held, and nobody knows their ids",
        "agentcho/choreography/choreographer.py",
        "        self.release(self.held(handle.made))\n",
        "",
        (f"{LEFTOVERS}::test_a_request_that_fails_late_gives_up_what_was_made_for_it",),
    ),
    Mutant(
        "make ahead beside those who come",
        "whoever waits for its first token would wait for what nobody has asked for yet",
        "agentcho/choreography/choreographer.py",
        "        if not self._arrived and any(handle.first for handle in self._under_way.values()):\n"
        "            self._arrived = self._prefetch.take()\n",
        "        if any(handle.first for handle in self._under_way.values()):\n"
        "            self._arrived = [*self._arrived, *self._prefetch.take()]\n",
        (f"{PREFETCH}::test_it_waits_where_somebody_brings_something_and_is_nobodys_turn",),
    ),
    Mutant(
        "what is made ahead waits in line like any other",
        "the engine would not know that nobody waits for it, and let it go before those who do",
        "agentcho/choreography/prefetch.py",
        "request._replace(turn=request.turn._replace(ahead=True))",
        "request",
        (f"{PREFETCH}::test_it_waits_where_somebody_brings_something_and_is_nobodys_turn",),
    ),
    Mutant(
        "make all ahead at once",
        "more than a few would only wait, and every step would look at all that waits",
        "agentcho/choreography/prefetch.py",
        "while self._offers and len(self._taken) + len(new) < MOST:",
        "while self._offers:",
        (f"{PREFETCH}::test_few_go_at_a_time_and_the_others_later",),
    ),
    Mutant(
        "a game that is over takes what others offered along",
        "what was under way for them would not be dropped when they end, and be held for good",
        "agentcho/choreography/prefetch.py",
        "self._taken = [(other, handle) for other, handle in self._taken if other is not owner]",
        "self._taken = []",
        (f"{PREFETCH}::test_of_two_owners_one_that_is_gone_takes_its_own_along_and_nothing_else",),
    ),
    Mutant(
        "the outermost line that waits",
        "who waits would be told of by a line that says nothing, as of where its game was begun",
        "agentcho/choreography/waits.py",
        "inner = max((place for place, frame in enumerate(frames) if outside(frame)), default=-1)",
        "inner = min((place for place, frame in enumerate(frames) if outside(frame)), default=-1)",
        ("tests/choreography/test_waits.py",),
    ),
)

READ = (
    Mutant(
        "the scenario's words through its own encoding",
        "under enforce what the scenario says has no author among its readers: each would make its own of it",
        "agentcho/flow/resolver.py",
        "return author is not None and author == reader",
        "return (author is None or author == reader)",
        (SYSTEM_PROMPTS,),
    ),
    Mutant(
        "make ahead in the deterministic profile",
        "it would go in a forward with others, and its bits be none of those that the profile promises",
        "agentcho/flow/resolver.py",
        'if self.reuse.mode == "baseline" or self.reuse.deterministic or self.reuse.repair is not None:',
        'if self.reuse.mode == "baseline" or self.reuse.repair is not None:',
        (f"{PREFETCH}::test_what_is_sure_to_be_asked_for",),
    ),
    Mutant(
        "shadows in the deterministic profile",
        "an audience encoding would be made in one way where a reader is near, and in another where none is",
        "agentcho/flow/resolver.py",
        'if not self.enforcing or self.reuse.deterministic or self.reuse.shadow == "never":',
        'if not self.enforcing or self.reuse.shadow == "never":',
        ("tests/leaks/test_classes.py",),
    ),
    Mutant(
        "count positions without the BOS",
        "what is placed after a message would overlap its last token",
        "agentcho/flow/resolver.py",
        "*offsets, new = absolute_positions(reads, self._lengths(reads), int(self.bos))",
        "*offsets, new = absolute_positions(reads, self._lengths(reads), 0)",
        (f"{VIEWS}::test_gaps_overlaps_and_reorderings_land_where_the_view_says",),
    ),
    Mutant(
        "right of the last and not of the rightmost",
        "a message would stand in the midst of those that were said side by side before it",
        "agentcho/flow/views.py",
        "max(known) if len(known) == len(ends) else None",
        "known[-1] if len(known) == len(ends) else None",
        (f"{VIEWS}::test_gaps_overlaps_and_reorderings_land_where_the_view_says",),
    ),
    Mutant(
        "the later of two twins is read from then",
        "of what two requests made at the same time the first is counted as made: readers would read another",
        "agentcho/flow/resolver.py",
        "        if key in self._known:\n            return False\n        self._known[key] = id",
        "        if self._known.get(key) == id:\n            return False\n        self._known[key] = id",
        (f"{MODES}::test_what_two_need_at_the_same_time_is_counted_once",),
    ),
    Mutant(
        "a repair for wherever a message stands",
        "a caller that reads a message elsewhere would read what was repaired for another place",
        "agentcho/flow/resolver.py",
        "path = (*path, f\"{read.id}@{places[place]}{' as said' * own}\")",
        "path = (*path, read.id)",
        (f"{REPAIR}::test_a_message_that_stands_elsewhere_is_another_one_to_repair",),
    ),
    Mutant(
        "a repair for whoever reads",
        "one caller would read what was repaired over another's private words",
        "agentcho/flow/resolver.py",
        "path: tuple[str, ...] = (caller,)",
        'path: tuple[str, ...] = ("",)',
        (f"{REPAIR}::test_each_caller_has_its_own_and_uses_it_again",),
    ),
    Mutant(
        "no repair of what stands first, wherever that is",
        "a message that nothing stands before was encoded at its own place, not at the one that is asked for",
        "agentcho/flow/resolver.py",
        "alone = not before and places[place] is None and not self._context_of_others(draft)",
        "alone = not before and not self._context_of_others(draft)",
        (f"{REPAIR}::test_a_message_that_stands_elsewhere_is_another_one_to_repair",),
    ),
    Mutant(
        "a repair where what follows it stands",
        "a message in the midst of a view would be repaired for the place of another, or not at all",
        "agentcho/flow/resolver.py",
        "Context(before, offsets_before, places[place])",
        "Context(before, offsets_before, places[: place + 2][-1])",
        (f"{REPAIR}::test_a_message_that_stands_elsewhere_is_another_one_to_repair",),
    ),
    Mutant(
        "what does not fit for its readers is found out by them",
        "its author placed what it had read side by side; others read it over the same in a row, which is longer",
        "agentcho/flow/resolver.py",
        "return max(alone, *ends, alone + sum(public))",
        "return max(alone, *ends)",
        ("tests/leaks/test_refusals.py",),
    ),
    Mutant(
        "repair one's own words",
        "what a caller said over its own prompt is as fresh as it can be: work for nothing, and other keys",
        "agentcho/flow/resolver.py",
        "if alone or own:",
        "if alone:",
        (f"{REPAIR}::test_each_caller_has_its_own_and_uses_it_again",),
    ),
    Mutant(
        "no guard in baseline",
        "nobody would be asked whether a prompt holds what its caller may not read",
        "agentcho/flow/resolver.py",
        'if self.reuse.leakage == "audit":\n            return None',
        'if self.reuse.leakage == "audit" or self.reuse.mode == "baseline":\n            return None',
        (f"{MONITOR}::test_every_call_of_a_game_has_a_guard_but_under_audit",),
    ),
    Mutant(
        "what has no label is clean",
        "an encoding of which nothing is known would be gathered as if everybody might read it",
        "agentcho/flow/labels.py",
        "raise LeakageError(str(self._clearance), (), parent)",
        "continue",
        (f"{MONITOR}::test_what_has_no_label_is_refused_even_where_all_else_is_clean",),
    ),
    Mutant(
        "a label of one's own words alone",
        "a secret would be out of sight once somebody has spoken after reading it",
        "agentcho/flow/labels.py",
        "frozenset(Label(message, audience) for audience, message in first.items())",
        "frozenset({self._own})",
        (f"{MONITOR}::test_a_label_is_all_that_was_gathered_and_is_checked_whole",),
    ),
    Mutant(
        "views are told of all parents",
        "an agent could choose what it reads by what another has thought in secret",
        "agentcho/flow/views.py",
        "return m._replace(parents=tuple(p for p in m.parents if public(p, m.audience)))",
        "return m",
        (f"{VIEWS}::test_a_view_is_told_of_no_parent_that_a_messages_readers_may_not_read",),
    ),
    Mutant(
        "a view may name the open system prompt of another",
        "an agent would take the instructions of others for its own",
        "agentcho/games/game.py",
        "by_audience = lambda m: m.audience.includes(author) and self._roster.sees(author, m.id)",
        "by_audience = lambda m: m.audience.includes(author)",
        (f"{SYSTEM_PROMPTS}::test_a_view_that_names_anothers_is_refused_and_told_why",),
    ),
)

COUNTED = (
    Mutant(
        "twins are fed twice",
        "the engine encodes what two requests need at the same time once: the record would say twice",
        "agentcho/games/journal.py",
        "len(made.words.tokens) if first else 0",
        "len(made.words.tokens)",
        (f"{MODES}::test_what_two_need_at_the_same_time_is_counted_once",),
    ),
    Mutant(
        "twins are not reused",
        "of what was read, that which another request made at the same time would be counted nowhere",
        "agentcho/games/journal.py",
        "if read.id not in fresh or read.id in self._twins)",
        "if read.id not in fresh)",
        (f"{MODES}::test_of_what_was_read_all_was_fed_for_the_line_or_is_reused",),
    ),
    Mutant(
        "twins are held by nobody",
        "the ids of those that came second would never be released",
        "agentcho/games/journal.py",
        "        self.held.append(made.id)\n",
        "        if first:\n            self.held.append(made.id)\n",
        (f"{MODES}::test_what_two_need_at_the_same_time_is_counted_once",),
    ),
    Mutant(
        "what was given up cost nothing",
        "an agent that is cancelled again and again would speak beyond its limit",
        "agentcho/games/journal.py",
        "        self._meter.spend(entry.message)\n",
        "",
        ("tests/choreography/test_heard.py::test_what_a_message_that_was_left_has_sampled_counts",),
    ),
    Mutant(
        "one message beyond the limit",
        "whoever has reached its limit would speak once more",
        "agentcho/games/limits.py",
        "            if limit is not None and used >= limit:\n                raise LimitReached(what, who, limit)\n\n"
        "    def check_after",
        "            if limit is not None and used > limit:\n                raise LimitReached(what, who, limit)\n\n"
        "    def check_after",
        (f"{LIMITS}::test_a_limit_ends_a_game_as_an_outcome",),
    ),
    Mutant(
        "the tokens that others have said are one's own",
        "how long an answer may be would tell how much others have said in secret",
        "agentcho/games/limits.py",
        "return None if limit is None else limit - self._tokens[agent]",
        "return None if limit is None else limit - self._tokens[GAME]",
        (f"{LIMITS}::test_what_an_agent_may_still_say_does_not_depend_on_what_others_have_said",),
    ),
    Mutant(
        "an agent's clock begins with each turn",
        "a limit in seconds would never be reached by one who takes many short turns",
        "agentcho/games/limits.py",
        "deadline=inf if limit is None else self._started + limit",
        "deadline=inf if limit is None else anyio.current_time() + limit",
        (f"{LIMITS}::test_an_agents_time_goes_on_between_its_turns",),
    ),
    Mutant(
        "a limit among errors is all that is told",
        "a game that failed would be recorded as one that ended",
        "agentcho/games/limits.py",
        "return None if None in limits else limits[0]",
        "return next(filter(None, limits), None)",
        (f"{FIXES}::test_an_error_beside_a_limit_is_an_error",),
    ),
    Mutant(
        "cut a choice to what is left",
        "an answer would be the beginning of one, which is no choice that was given",
        "agentcho/games/game.py",
        "if left is None or sampling.choices or sampling.json_schema:",
        "if left is None:",
        (f"{LIMITS}::test_a_choice_is_whole_or_not_said",),
    ),
    Mutant(
        "a call that is refused takes a turn's coins",
        "what is said after a wrong option would be other words than without it",
        "agentcho/games/game.py",
        "        turn = self._turns.get(author, -1) + 1\n",
        "        turn = self._turns[author] = self._turns.get(author, -1) + 1\n",
        (f"{VERBS}::test_a_call_that_is_refused_is_no_turn",),
    ),
)

PLAYED = (
    Mutant(
        "moves of a round race",
        "what two moves of a round say in their own places has one order, whichever ends first",
        "agentcho/games/rounds.py",
        "self.raced |= self._under_way[branch] > 0",
        "self.raced |= sum(self._under_way.values()) > 0",
        (f"{GAME}::test_a_game_has_raced_where_who_ends_first_decided_an_order",),
    ),
    Mutant(
        "nothing ever races",
        "two runs of one seed could differ, and neither would say that it may",
        "agentcho/games/rounds.py",
        "self.raced |= self._under_way[branch] > 0",
        "self.raced |= self._under_way[branch] < 0",
        (f"{GAME}::test_a_game_has_raced_where_who_ends_first_decided_an_order",),
    ),
    Mutant(
        "moves of a round out of order",
        "they come out in the order in which they were given, not in another",
        "agentcho/games/rounds.py",
        "(m for branch in branches for m in branch.out.messages)",
        "(m for branch in reversed(branches) for m in branch.out.messages)",
        (f"{GAME}::test_moves_of_a_round_are_unseen_until_it_closes_and_come_out_in_order",),
    ),
    Mutant(
        "moves of a round are seen at once",
        "the moves of a simultaneous round would depend on which of them came first",
        "agentcho/games/rounds.py",
        "return History(self._out) if branch is None else History(branch.out, after=branch.before)",
        "return History(self._out)",
        (f"{GAME}::test_moves_of_a_round_are_unseen_until_it_closes_and_come_out_in_order",),
    ),
    Mutant(
        "a round within a round comes out at its own end",
        "the other moves of the outer round would see what was said beside them",
        "agentcho/games/rounds.py",
        "                self.publish(message, outer)",
        "                self.publish(message, None)",
        (f"{GAME}::test_a_round_within_a_round_comes_out_with_the_outer_one",),
    ),
    Mutant(
        "a round forgets what its moves have looked at",
        "code that acts on a secret that a move of the round brought back would not be told of",
        "agentcho/games/rounds.py",
        "            self._taint.join([branch.sources for branch in branches])\n",
        "",
        (TAINT,),
    ),
    Mutant(
        "words that are streamed are not heard",
        "code that acts on a secret while it is said would not be told of",
        "agentcho/games/game.py",
        "            heard.add(id)\n",
        "",
        (f"{TAINT}::test_every_way_to_the_words_is_heard",),
    ),
    Mutant(
        "leave an author out of its own audience",
        "an agent could not read what it has said to others",
        "agentcho/games/game.py",
        "Audience(given.members | {author})",
        "given",
        (f"{GAME}::test_a_thought_is_its_authors_alone_and_what_is_said_is_read_by_its_audience",),
    ),
    Mutant(
        "the answer where the prompt was to stand",
        "a place that is asked for is the prompt's, and the message comes right after it",
        "agentcho/games/game.py",
        "Read(question, reads.new_at)), new_at=None)",
        "Read(question)))",
        (f"{VIEWS}::test_gaps_overlaps_and_reorderings_land_where_the_view_says",),
    ),
    Mutant(
        "a game that is over keeps its encodings",
        "the store would fill up with what nobody can ask for any more",
        "agentcho/games/game.py",
        "            self._choreographer.release(self._choreographer.held(self._journal.held))\n",
        "",
        (f"{GAME}::test_a_game_that_fails_gives_up_its_own_and_leaves_the_others_alone",),
    ),
    Mutant(
        "a game that is over still offers",
        "what it wanted made ahead would be made for nobody, and held for good",
        "agentcho/games/game.py",
        "            self._choreographer.forget(self._journal)\n",
        "",
        (f"{PREFETCH}::test_a_game_that_breaks_off_leaves_nothing_of_what_was_made_ahead",),
    ),
)

GAMES = (*LOOP, *READ, *COUNTED, *PLAYED)
