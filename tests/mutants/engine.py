"""Mutants of the engine: each is a mistake that is easy to make when code is moved or simplified.

Grouped by what goes wrong: the exact profile, where bits depend on a call alone; positions; sharing and capacity;
failing forwards; postponed shadows; repairs; how a message ends; kernels and devices.
"""

from __future__ import annotations

from .mutant import Mutant

DIRECT = "tests/engine/test_direct_forward.py"
EXTENDS = "tests/engine/test_extends.py"
SHADOW = "tests/leaks/test_shadow.py"
BLAME = "tests/engine/test_blame.py"
ENGINE_TESTS = "tests/engine/test_engine.py"
GATE = "tests/engine/test_gate.py"
GUESSING, GUESSES = "tests/engine/test_guessing.py", "tests/leaks/test_guesses.py"
GATHER = "tests/engine/test_gather.py"
GRAPHS = "tests/engine/test_graphs.py"
INVARIANCE = "tests/engine/test_invariance.py"
IN_PLACE = "tests/engine/test_in_place.py"
SLOTS = "tests/engine/test_slots.py"
DISK = "tests/engine/test_disk.py"
LOGPROBS = "tests/engine/test_logprobs.py"
MEMORY = "tests/engine/test_memory.py"
PAGED, STORED = "tests/engine/test_paged.py", "tests/engine/test_stored.py"
PACKING = "tests/engine/test_packing.py"
LIGHTER = "tests/engine/test_lighter.py"
OCTETS = "tests/engine/test_octets.py"
PLACEMENT = "tests/engine/test_placement.py"
POSTPONED = "tests/engine/test_postponed.py"
PROFILE = "tests/engine/test_profile.py"
REPAIR = "tests/engine/test_repair.py"
SCHEDULING = "tests/engine/test_scheduling.py"
SHARING = "tests/engine/test_sharing.py"
STEPS = "tests/engine/test_steps.py"
TOOLS = "tests/engine/test_tools.py"

EXACT = (
    Mutant(
        "all calls of an exact step in one forward",
        "in the deterministic profile the last bits of a message would depend on what is computed beside it",
        "agentcho/engine/core.py",
        "if not plan.exact and not unjudged:",
        "if not unjudged:",
        (f"{PROFILE}::test_what_runs_beside_it_changes_no_bit",),
    ),
    Mutant(
        "divide a long text in an exact step",
        "a text longer than the budget would be encoded in parts, whose last bits are not those of the whole",
        "agentcho/engine/scheduler.py",
        "divisible = call.divisible and not exact",
        "divisible = call.divisible",
        (f"{SCHEDULING}::test_in_the_deterministic_profile_what_is_more_than_a_forward_may_take_goes_at_once",),
    ),
    Mutant(
        "go on in an exact step with parts made beside others",
        "the part that was encoded beside a speaker would keep bits that depend on that speaker",
        "agentcho/engine/scheduler.py",
        "            if exact and call.divisible:\n                self._afresh(call)\n",
        "",
        (f"{SCHEDULING}::test_parts_that_were_encoded_beside_others_do_not_show_in_the_deterministic_profile",),
    ),
    Mutant(
        "put rows together unproved",
        "in the deterministic profile the last bits of a message would depend on who speaks beside it",
        "agentcho/runner/invariance.py",
        "if all(trial.agrees(rows, size, alone) for rows in trial.mixed(size)):",
        "if all(trial.agrees(rows, size, alone) or True for rows in trial.mixed(size)):",
        (f"{INVARIANCE}::test_where_rows_change_each_other_each_has_a_forward_of_its_own",),
    ),
    Mutant(
        "trust a trial where numbers decide what is computed",
        "experts that get as many tokens as no probe gave them would sum them in another order",
        "agentcho/runner/invariance.py",
        "        if watch.decided:",
        "        if False:",
        (f"{INVARIANCE}::test_where_numbers_decide_what_is_computed_nothing_is_proved",),
    ),
    Mutant(
        "a forward of as many tokens as there are rows",
        "how many speak beside a row would choose the kernels that it goes through",
        "agentcho/runner/runner.py",
        "next((size for size in self.sizes if size >= tokens), None)",
        "None",
        (f"{INVARIANCE}::test_no_bit_of_a_message_depends_on_who_comes_and_goes_beside_it",),
    ),
    Mutant(
        "trust what was proved with other threads",
        "products are divided among threads, and rows would be put together that were never compared so",
        "agentcho/runner/runner.py",
        "(self._model.adapter, torch.get_num_threads())",
        "(self._model.adapter, 0)",
        (f"{INVARIANCE}::test_another_number_of_threads_is_proved_anew",),
    ),
    Mutant(
        "postpone a shadow in an exact step",
        "when a shadow is encoded, and in which forwards, would depend on who reads it",
        "agentcho/engine/scheduler.py",
        "if not plan.exact and call.late:",
        "if call.late:",
        (f"{POSTPONED}::test_alone_a_shadow_goes_with_its_leaders_last_forward",),
    ),
    Mutant(
        "a shadow's strides by the room that others leave",
        "in the deterministic profile a shadow would be fed in other forwards beside other shadows than alone",
        "agentcho/engine/queue.py",
        "STRIDE if exact else room",
        "room",
        (f"{SHADOW}::test_what_a_shadow_feeds_alone_depends_on_its_leader_only",),
    ),
    Mutant(
        "an exact row in a tensor of others",
        "the shapes and alignment that a row is computed in would depend on how many rows run beside it",
        "agentcho/runner/slots.py",
        "if fitting is not None and not kind.alone:",
        "if fitting is not None:",
        (f"{SLOTS}::test_a_slot_that_is_to_be_alone_shares_its_tensors_with_no_other",),
    ),
    Mutant(
        "share a context between exact rows",
        "a context that is weighed apart, for several rows at once, gives other last bits than one that is not",
        "agentcho/runner/slots.py",
        "apart_from_all = alone or context.parallel is not None",
        "apart_from_all = context.parallel is not None",
        (f"{SHARING}::test_who_cannot_gain_shares_nothing",),
    ),
    Mutant(
        "turn queries as keys turn",
        "a run that is read in place would stand as far on the other side of where it was gathered",
        "agentcho/runner/attention/shared_prefix.py",
        "[-shift for _, shift in readers]",
        "[shift for _, shift in readers]",
        (f"{SHARING}::test_runs_that_are_read_in_place_weigh_as_their_keys_turned_and_copied",),
    ),
    Mutant(
        "read a run at any distance",
        "messages of a run would be read as far from each other as its first reader has them",
        "agentcho/runner/kv/shared_runs.py",
        "one.entry is other.entry and other.offset - one.offset == shift",
        "one.entry is other.entry",
        (f"{SHARING}::test_what_stands_in_a_run_is_known_by_itself_and_its_distance",),
    ),
    Mutant(
        "forget how an exact message was fed",
        "a message that was dropped would be made again in one forward, with other last bits, under the same key",
        "agentcho/engine/scheduler.py",
        "(*row.feeds, len(row.feed)) if slot.alone else ()",
        "()",
        (PROFILE,),
    ),
    Mutant(
        "zeros that begin anywhere",
        "kernels compute in another order where memory is not aligned: what is made again would have other bits",
        "agentcho/runner/kv/kv_pool.py",
        "start = -raw.ctypes.data % ALIGNED",
        "start = 0",
        (f"{MEMORY}::test_memory_that_is_all_zeros_begins_where_torch_has_its_own_begin",),
    ),
)

POSITIONS = (
    Mutant(
        "read in place, and begin after the last parent",
        "a message over parents where they were made begins after the rightmost of them, not the last in the list",
        "agentcho/engine/call_layout.py",
        "max(ends, default=None) if new_offset is None",
        "(ends[-1] if ends else None) if new_offset is None",
        (IN_PLACE,),
    ),
    Mutant(
        "copy keys that were turned for another place",
        "the same message at two places in one forward would be read at the first of them in both",
        "agentcho/runner/kv/gather.py",
        "return self.piece.entry, self.piece.shift, self.length",
        "return self.piece.entry, 0, self.length",
        (f"{GATHER}::test_what_is_copied_is_what_would_be_gathered",),
    ),
    Mutant(
        "any number of tokens in a forward that scales by index",
        "llama4 scales queries by their index in the forward, which in a packed one is not their position",
        "agentcho/runner/model/model.py",
        "self.packed = min(4096, _scale_step(self.config))",
        "self.packed = 4096",
        (f"{GATE}::test_queries_that_are_scaled_by_place_in_the_batch_stay_right",),
    ),
)

SHARED = (
    Mutant(
        "make again what another call would have made it from",
        "of two equal calls the one that runs says what an encoding is made over: the other's parents may never be",
        "agentcho/engine/sequence.py",
        "self.own.recipe, self.started = made, True",
        "self.own.recipe, self.started = recipe, True",
        (f"{POSTPONED}::test_what_one_of_two_equal_ones_was_to_be_made_from_is_made_again_from_the_other",),
    ),
    Mutant(
        "share what nobody holds any more",
        "an encoding of which the recipe alone is left would be made in a forward of its own, and then once more read",
        "agentcho/engine/core.py",
        "if known is not None and known.holders:",
        "if known is not None:",
        (f"{MEMORY}::test_what_nobody_holds_any_more_is_encoded_with_its_next_reader_and_not_made_again_before",),
    ),
    Mutant(
        "overtake a call that waits for room",
        "small calls would take the room that a large one waits for, again and again, and it would never run",
        "agentcho/engine/scheduler.py",
        "crowded = crowded or not (call.placed",
        "crowded = not (call.placed",
        (f"{MEMORY}::test_a_call_waits_for_room_and_none_overtakes_it",),
    ),
    Mutant(
        "keep what a speaker has gathered until it ends",
        "its context lies in its own row after the first forward; held in the store it would take others' room",
        "agentcho/engine/scheduler.py",
        "                self._tiers.unpin(waiting.call)\n        if plan.failed:",
        "                pass\n        if plan.failed:",
        (f"{MEMORY}::test_what_a_speaker_has_gathered_makes_room_while_it_speaks",),
    ),
    Mutant(
        "hand a row out as it was left",
        "numbers of the row before would stand behind a mask, and what is not a number goes through a mask",
        "agentcho/runner/kv/decode_kv.py",
        "            tensor[last.index, ..., : last.touched] = 0\n",
        "",
        (SLOTS,),
    ),
    Mutant(
        "move a row without what it was longer by before",
        "where the last row takes the place of a longer one, the end of that one would stay behind it",
        "agentcho/runner/kv/decode_kv.py",
        "dirty = max(slot.touched, last.touched)",
        "dirty = last.touched",
        (f"{SLOTS}::test_of_a_longer_slot_nothing_stays_behind_a_shorter_one_that_takes_its_place",),
    ),
    Mutant(
        "out with the oldest and not with the least used",
        "what is read again and again would leave the store first, and be made again and again",
        "agentcho/engine/cache.py",
        "            del self.resident[entry]\n            self.resident[entry] = None\n",
        "",
        (f"{MEMORY}::test_the_least_recently_used_leaves_first",),
    ),
    Mutant(
        "read a damaged copy",
        "keys that changed in host memory would come back and be read as if they were sound",
        "agentcho/engine/cache.py",
        "if self.store.checksum(copy) != entry.digest:",
        "if entry.digest is None:",
        (f"{MEMORY}::test_what_was_damaged_outside_does_not_come_back_but_is_made_again",),
    ),
    Mutant(
        "credit for the time one was away",
        "a workflow that comes back would be served alone until it has caught up with those that stayed",
        "agentcho/engine/queue.py",
        "self._served[share] = max(self._served[share], min(levels)) if levels else 0",
        "pass",
        (f"{SCHEDULING}::test_a_workflow_that_was_away_has_no_credit",),
    ),
)

FAILURES = (
    Mutant(
        "keep what was finished in a step that failed",
        "nobody hears of it, so that nobody would ever release it",
        "agentcho/engine/core.py",
        "self.release(self._untold)  # calls that finished",
        "pass  # calls that finished",
        (f"{STEPS}::test_what_finished_in_a_step_that_failed_later_is_given_up",),
    ),
    Mutant(
        "Ctrl-C leaves calls half made",
        "an interrupt in a step would leave rows of which nobody knows how far they came",
        "agentcho/engine/core.py",
        "        except BaseException as error:\n            self._scheduler.drop_all()",
        "        except Exception as error:\n            self._scheduler.drop_all()",
        (f"{BLAME}::test_an_interrupt_drops_all_as_before",),
    ),
    Mutant(
        "drop those in line and not those in flight",
        "what a failed forward was about to finish would keep its pages for good",
        "agentcho/engine/scheduler.py",
        "dict.fromkeys((*self._making, *self.calls))",
        "dict.fromkeys(self.calls)",
        (f"{STEPS}::test_a_device_that_fails_drops_all_calls_and_nothing_else",),
    ),
    Mutant(
        "take a postponed shadow of a failed forward for begun",
        "what is stored and postponed stays so; this one would count as being made, and its readers wait for ever",
        "agentcho/engine/scheduler.py",
        "        self.deferred.put_back()\n",
        "",
        (f"{POSTPONED}::test_a_forward_that_fails_leaves_it_postponed",),
    ),
    Mutant(
        "what was taken over does not count as gathered where nothing is read",
        "a message that continues an earlier state in parts, in a prompt without a beginning, would lose its own",
        "agentcho/runner/batch.py",
        "            gathered = segment.gathered if segment.pieces or segment.copied else 0\n",
        "            gathered = segment.gathered if segment.pieces else 0\n",
        (f"{EXTENDS}::test_in_parts_beside_a_decode_it_is_the_same",),
    ),
    Mutant(
        "a pool that cannot grow has not moved",
        "graphs over the tensors that were replaced before memory ran out would be replayed",
        "agentcho/runner/kv/kv_pool.py",
        """        self.moved += 1
        for pool in short:
            for layer, old in enumerate(pool):
                if len(old) < rows:
                    pool[layer] = torch.cat([old, old.new_zeros(rows - len(old), *old.shape[1:])])
""",
        """        for pool in short:
            for layer, old in enumerate(pool):
                if len(old) < rows:
                    pool[layer] = torch.cat([old, old.new_zeros(rows - len(old), *old.shape[1:])])
        self.moved += 1
""",
        (f"{MEMORY}::test_pools_that_find_no_memory_to_grow_have_moved_too",),
    ),
    Mutant(
        "what a failed device holds is dropped twice",
        "the second time would free encodings that others still hold",
        "agentcho/engine/scheduler.py",
        """        self._unreserve(call)
        call.status = Status.FINISHED
        self._leave_slot(call)

    def _leave_slot""",
        """        self._leave_slot(call)
        self._unreserve(call)
        call.status = Status.FINISHED

    def _leave_slot""",
        (f"{BLAME}::test_rows_of_a_device_that_fails_are_dropped_once",),
    ),
    Mutant(
        "a guess stays that is fed again",
        "every later key of the message would be one position off",
        "agentcho/engine/generation.py",
        "return len(guessed) - right + fed_again",
        "return len(guessed) - right",
        (f"{GUESSING}::test_a_token_that_cannot_be_drawn_after_a_right_guess_is_drawn_in_the_next_step",),
    ),
    Mutant(
        "a row that is not finite speaks against a graph",
        "one call with broken logits would make all later steps slower",
        "agentcho/runner/graphs.py",
        "known = expected.isfinite().all(-1)",
        "known = torch.ones(len(expected), dtype=torch.bool)",
        (f"{GRAPHS}::test_a_row_that_is_not_finite_says_nothing_against_a_graph",),
    ),
)

SHADOWS = (
    Mutant(
        "make a postponed shadow for a reader that cannot run yet",
        "it would be fed, and take room, before the one call that it is for lacks nothing else",
        "agentcho/engine/queue.py",
        "if all(entry in self.sequences for entry in lacked):",
        "if lacked:",
        (f"{POSTPONED}::test_a_reader_that_lacks_something_else_does_not_have_it_made_before",),
    ),
    Mutant(
        "forget why a postponed shadow was refused",
        "who reads it would be told of a cancelled parent, and not of the leak that its guard found",
        "agentcho/engine/queue.py",
        "            self.refused[call.own] = error\n",
        "",
        (f"{POSTPONED}::test_what_its_guard_refuses_in_the_end_is_never_read",),
    ),
    Mutant(
        "let go of a postponed shadow and not of its chain",
        "what it alone had read would be held for good",
        "agentcho/engine/queue.py",
        "                    left += held\n",
        "",
        (f"{POSTPONED}::test_released_it_is_gone_with_all_it_holds",),
    ),
    Mutant(
        "words are taken over from another context",
        "keys that were made over what somebody else had read would stand for those of this message",
        "agentcho/engine/restore.py",
        'if other.context.key((), other.salt, "whole") != recipe.context.key((), recipe.salt, "whole"):',
        "if other.salt != recipe.salt:",
        (EXTENDS,),
    ),
    Mutant(
        "words are taken over from another class of readers",
        "how long a message takes would tell a reader what another class of readers had begun to read",
        "agentcho/engine/restore.py",
        'if other.context.key((), other.salt, "whole") != recipe.context.key((), recipe.salt, "whole"):',
        'if other.context.key((), "", "whole") != recipe.context.key((), "", "whole"):',
        (EXTENDS,),
    ),
    Mutant(
        "all of the shorter state is taken over",
        "the closing of the earlier state, and words that differ, would stand in the midst of the message",
        "agentcho/engine/call_layout.py",
        "if one != other), min(",
        "if False), min(",
        (EXTENDS,),
    ),
    Mutant(
        "a shadow in its leader's first forward",
        "the first token of a message would wait for what somebody else may read later",
        "agentcho/engine/queue.py",
        "elif leader and leader.fed and min(",
        "elif leader and min(",
        (f"{SHADOW}::test_no_shadow_goes_with_its_leaders_first_forward",),
    ),
    Mutant(
        "postpone the shadow of a long message",
        "its first reader would wait for all of it, which could have been fed while it was said",
        "agentcho/engine/sequence.py",
        "return ended and not self.fed and self.lacking <= SHORT",
        "return ended and not self.fed",
        (f"{POSTPONED}::test_a_message_that_is_not_short_is_not_left_for_its_reader",),
    ),
)

REPAIRS = (
    Mutant(
        "judge a repair over what its parents became",
        "which tokens are encoded anew goes by the keys that its parents keep, whether they come in one list or not",
        "agentcho/engine/core.py",
        "piece if repair is None else ContextPiece(repair.base.id, repair.base.entry, piece.offset)",
        "piece",
        (f"{PROFILE}::test_what_is_chosen_over_other_keys_is_not_shared",),
    ),
    Mutant(
        "repair a base that is only being made",
        "its tokens would be compared with pages that hold nothing yet",
        "agentcho/engine/sequence.py",
        "if self.repair is not None and not all(piece.entry.ready for piece in self.repair.compared):",
        "if self.repair is not None and not all(piece.entry.attendable for piece in self.repair.compared):",
        (f"{REPAIR}::test_a_base_of_the_same_list_is_waited_for",),
    ),
    Mutant(
        "ask a guard about the context of a repair alone",
        "what a repair keeps of its base would come in unasked",
        "agentcho/engine/sequence.py",
        "[piece.id for piece in self.reads if piece.id is not None]",
        "[piece.id for piece in self.context.pieces if piece.id is not None]",
        (f"{REPAIR}::test_a_guard_is_asked_about_the_base_too_and_a_refusal_leaves_nothing",),
    ),
)

ENDINGS = (
    Mutant(
        "feed a sampled stop token twice",
        "it is the first of the closing already: who reads the message would read it twice",
        "agentcho/engine/generation.py",
        "            self.feed = self._closing\n",
        "            self.feed = (self._closing[0], *self._closing)\n",
        (f"{ENGINE_TESTS}::test_a_sampled_stop_token_is_the_first_of_the_closing",),
    ),
    Mutant(
        "leave the last token unfed",
        "nothing is chosen after it, but who reads the message would read zeros at its end",
        "agentcho/engine/generation.py",
        'self._end("max_tokens", (token,))',
        'self._end("max_tokens", ())',
        (f"{ENGINE_TESTS}::test_all_that_was_said_is_fed_and_the_closing_after_it",),
    ),
    Mutant(
        "logits of the closing too",
        "there is one row a token of the text and one for the first closing token, and none for what follows",
        "agentcho/engine/generation.py",
        "said = len(self.feed) - (0 if asks else len(self._closing))",
        "said = len(self.feed)",
        ("tests/engine/test_whole.py::test_every_row_of_a_text_fed_in_strides_is_kept",),
    ),
    Mutant(
        "show what may begin a stop string",
        "whoever listens would hear words that the message does not hold in the end",
        "agentcho/engine/generation.py",
        "end -= self._doubtful()",
        "end -= 0",
        (f"{STEPS}::test_nothing_is_streamed_that_the_message_does_not_hold_in_the_end",),
    ),
    Mutant(
        "stream nothing of half a character",
        "the text has a mark for it, which whoever listens would never hear",
        "agentcho/engine/generation.py",
        "        self._text += self._stream.end()  # a character that stayed incomplete comes out as U+FFFD\n",
        "",
        (f"{STEPS}::test_nothing_is_streamed_that_the_message_does_not_hold_in_the_end",),
    ),
)

KERNELS = (
    Mutant(
        "trust a captured step at once",
        "a graph that froze what should change would say wrong tokens, and nobody would have compared",
        "agentcho/runner/graphs.py",
        "if graph is not None and graph.proved:",
        "if graph is not None:",
        (f"{GRAPHS}::test_a_graph_that_gives_other_logits_says_nothing",),
    ),
    Mutant(
        "read a weight's copy after the weight has changed",
        "training, and an adapter that is merged, would not show in what is said",
        "agentcho/runner/quant/prepack.py",
        "if _use.on and not few and self._state == _state(self.weight):",
        "if _use.on and not few:",
        (f"{PACKING}::test_a_weight_that_was_changed_is_not_read_from_its_copy",),
    ),
    Mutant(
        "read the weights of few rows where bits must not depend on their number",
        "what an agent says in the deterministic profile would depend on how many speak beside it",
        "agentcho/runner/quant/prepack.py",
        "few = _use.brief and ",
        "few = ",
        (f"{PACKING}::test_few_rows_read_the_weights_where_last_bits_may_differ",),
    ),
    Mutant(
        "the direct forward reads the weights of few rows in both profiles",
        "what an agent says in the deterministic profile would depend on how many speak beside it",
        "agentcho/runner/model/model.py",
        "            with use_packed(brief):\n                return direct",
        "            with use_packed(True):\n                return direct",
        (f"{PACKING}::test_steps_of_few_rows_read_the_weights_in_the_fast_profile_alone[llama]",),
    ),
    Mutant(
        "the library's forward reads the copies for few rows",
        "a speaker of a model that is not like Llama would take a quarter longer for each token",
        "agentcho/runner/model/model.py",
        "        with use_packed(brief), use_fused():",
        "        with use_packed(), use_fused():",
        (f"{PACKING}::test_steps_of_few_rows_read_the_weights_in_the_fast_profile_alone[gemma2]",),
    ),
    Mutant(
        "stop guessing at the first token that does not pay",
        "where other kernels make one more token dear and those after it cheap, nothing would be guessed",
        "agentcho/engine/speculation.py",
        "            best, rate = [*chosen], expected / costs.of(fed)\n        if (following",
        "            best, rate = [*chosen], expected / costs.of(fed)\n"
        "        else:\n            break\n        if (following",
        ("tests/engine/test_guessing.py::test_a_step_that_gets_dear_once_is_guessed_past",),
    ),
    Mutant(
        "read columns after the weight has changed",
        "training, and an adapter that is merged, would not show in what several say at once",
        "agentcho/runner/quant/prepack.py",
        "if _use.on and input.shape[-2:-1] >= (SOME,) and self._state == _state(self.weight):",
        "if _use.on and input.shape[-2:-1] >= (SOME,):",
        (f"{PACKING}::test_columns_are_used_for_several_rows_where_they_are_asked_for_and_the_weight_is_what_it_was",),
    ),
    Mutant(
        "a direct forward untried",
        "a network that is not quite Llama would compute something else than transformers",
        "agentcho/runner/model/direct_forward.py",
        "return direct if all(torch.equal(*pair) for pair in zip_longest(expected, found)) else None",
        "return direct",
        (f"{DIRECT}::test_a_network_that_is_not_quite_llama_keeps_its_own_forward[other_layer]",),
    ),
    Mutant(
        "a direct forward past hooks",
        "what somebody has hooked into a module would not be called",
        "agentcho/runner/model/direct_forward.py",
        "self._count, self._usable = count, of <= {HANDS_OUT}",
        "self._count, self._usable = count, True",
        (f"{DIRECT}::test_what_anything_has_hooked_is_called",),
    ),
    Mutant(
        "a direct forward past adapters",
        "a call would be computed without the adapter that it names",
        "agentcho/runner/model/model.py",
        "if direct is not None and direct.usable and not self.adapters.loaded:",
        "if direct is not None and direct.usable:",
        ("tests/engine/test_mixed.py::test_keys_are_apart_by_adapter_and_the_base_is_as_it_was",),
    ),
    Mutant(
        "multiply by weights in few bits untried",
        "another build of torch, or another processor, may have a kernel that gives other products",
        "agentcho/runner/quant/int_matmul.py",
        "return making if making is not None and _agrees(making, bits, dtype) else None",
        "return making",
        (f"{LIGHTER}::test_a_product_that_gives_something_else_is_not_taken",),
    ),
    Mutant(
        "multiply many rows by the product of few",
        "a prompt would take twice as long, and no result would be wrong: a merge undid it once, and nothing failed",
        "agentcho/runner/quant/int_matmul.py",
        "return FEW.get(making) if has_bfloat16() else None",
        "return None",
        (f"{LIGHTER}::test_a_product_is_for_few_rows_where_the_processor_multiplies_whole_numbers_quickly",),
    ),
    Mutant(
        "leave the head whole beside weights in few bits",
        "a third of what a small model reads for a token would stay as heavy as it was",
        "agentcho/runner/quant/quantized_linear.py",
        'every.append((head, "int8"))',
        "pass",
        (f"{LIGHTER}::test_bits_are_in_the_fingerprint_and_not_in_the_digest_of_what_was_loaded",),
    ),
    Mutant(
        "one key for a message in whatever bits the weights are",
        "keys and values of one model would be read by another that computes others",
        "agentcho/runner/model/model.py",
        "(str(self.dtype), file, self.bits, ",
        "(str(self.dtype), file, ",
        (f"{LIGHTER}::test_what_is_stored_is_under_another_key_in_other_bits",),
    ),
    Mutant(
        "go on before the device has computed",
        "a step of forced tokens looks at no number: a device's failure would come out in another step",
        "agentcho/engine/core.py",
        "            self._runner.synchronize()\n",
        "            pass\n",
        (f"{PLACEMENT}::test_a_step_waits_for_its_device_whatever_was_asked",),
    ),
    Mutant(
        "turn stored keys the other way",
        "a message that is read where it is stored would stand as far on the other side of where it was encoded",
        "agentcho/runner/attention/triton_kernel.py",
        "return one * cos - other * sin, other * cos + one * sin",
        "return one * cos + other * sin, other * cos - one * sin",
        (f"{PAGED}::test_it_weighs_as_the_definition_says",),
    ),
    Mutant(
        "weigh all parts of a context alike",
        "what a short part says would count as much as what a long one says",
        "agentcho/runner/attention/triton_kernel.py",
        "shares, kept = tl.exp(each - base), tl.exp(best - base)",
        "shares, kept = tl.where(each == NOWHERE, 0.0, 1.0), tl.where(best == NOWHERE, 0.0, 1.0)",
        (f"{PAGED}::test_it_weighs_as_the_definition_says",),
    ),
    Mutant(
        "a window that is one token wider in the kernel",
        "a layer would see a key that the model's own attention hides",
        "agentcho/runner/attention/triton_kernel.py",
        "near = place > position - form.size if",
        "near = place >= position - form.size if",
        (f"{PAGED}::test_it_weighs_as_the_definition_says",),
    ),
    Mutant(
        "trust a kernel untried",
        "another GPU, or another Triton, may compute something else",
        "agentcho/runner/attention/trial.py",
        "wrong = [gap for gap in gaps if not gap <= tolerance(kind.dtype)]",
        "wrong = list[float]()",
        (f"{PAGED}::test_a_kernel_that_fails_or_is_off_is_not_used",),
    ),
    Mutant(
        "let go of what is read in place",
        "pages that a row reads would be written over by other messages, which it would then read",
        "agentcho/engine/scheduler.py",
        "if waiting.call.entry is None and not waiting.call.reads_stored:",
        "if waiting.call.entry is None:",
        (f"{STORED}::test_what_is_read_stays_where_it_is_until_the_row_ends",),
    ),
    Mutant(
        "replay a graph over pools that are gone",
        "once the pools have grown, a captured step would read memory that is somebody else's",
        "agentcho/runner/graphs.py",
        "pages=self._layers.pages.moved,",
        "pages=0,",
        (f"{STORED}::test_a_step_over_pages_that_have_moved_is_another_step",),
    ),
)

LIKELY = (
    Mutant(
        "how likely a token was by the row of another",
        "a client would be told of the probabilities of somebody else's words",
        "agentcho/engine/speaking.py",
        "logits[end - 1], len(row.speech.sampled)",
        "logits[0], len(row.speech.sampled)",
        (LOGPROBS,),
    ),
    Mutant(
        "probabilities of text that was held back",
        "the last token would be told of twice",
        "agentcho/engine/logprobs.py",
        "return spoken.id in weighed and spoken.nth == weighed[spoken.id].before",
        "return spoken.id in weighed",
        (f"{LOGPROBS}::test_pieces_carry_them_and_text_that_was_held_back_has_none",),
    ),
    Mutant(
        "probabilities of all rows at once in the exact profile",
        "last bits of a probability might depend on who else asks",
        "agentcho/engine/logprobs.py",
        "stride = 1 if plan.exact else max(1, len(asked))",
        "stride = max(1, len(asked))",
        (f"{LOGPROBS}::test_rows_are_computed_together_but_in_the_exact_profile",),
    ),
)

CALLING = (
    Mutant(
        "words within a template's text become its tokens",
        "the description of a function, or its result, would open messages of its own",
        "agentcho/engine/content_tokenizer.py",
        'self._structural.finditer(piece if place % 2 == 0 else "")',
        "self._structural.finditer(piece)",
        (f"{TOOLS}::test_no_word_of_a_function_a_call_or_a_result_forges_framing",),
    ),
    Mutant(
        "a result in the frame of another role",
        "what a function gave back would pass for what the assistant said",
        "agentcho/engine/template.py",
        "if found.frame is None or any(frame.opening.startswith(found.frame[0]) for frame in frames.values()):",
        "if found.frame is None:",
        ("tests/engine/test_framing.py::test_a_result_is_framed_as_its_template_says_or_else_as_the_users_words",),
    ),
    Mutant(
        "what is no JSON is a call",
        "a client would be given arguments that it cannot read",
        "agentcho/engine/tools.py",
        "_decoder = json.JSONDecoder(parse_constant=_refused)",
        "_decoder = json.JSONDecoder()",
        (f"{TOOLS}::test_broken_json_is_no_call_but_text",),
    ),
    Mutant(
        "references of one function reach the definitions of another",
        "a call would be held to a schema that its function does not have",
        "agentcho/engine/tool_schema.py",
        'return f"#/$defs/{self._prefix(kind)}{name}{rest}"',
        'return f"#/$defs/0.{name}{rest}"',
        (f"{TOOLS}::test_the_schema_of_a_call_takes_what_the_schemas_of_its_functions_take",),
    ),
    Mutant(
        "data in a schema taken for keywords",
        "a value that looks like a reference could no longer be said",
        "agentcho/engine/tool_schema.py",
        "        if key in VALUES:\n            return value\n",
        "",
        (f"{TOOLS}::test_the_schema_of_a_call_takes_what_the_schemas_of_its_functions_take",),
    ),
)

GUESSED = (
    Mutant(
        "what was guessed wrong stays where a speaker keeps its keys",
        "the message, and all who read it, would attend to tokens that nobody said",
        "agentcho/engine/speaking.py",
        "                    self._runner.slots.retract(row.slot, wrong)\n",
        "",
        (f"{GUESSING}::test_wrong_guesses_are_taken_back",),
    ),
    Mutant(
        "what is drawn behind a wrong guess is said",
        "words would be drawn after others than were said, so that what may be read decides what is said",
        "agentcho/engine/generation.py",
        "if self.stopped is not None or next is None or self.sampled[-1] != next:",
        "if self.stopped is not None or next is None:",
        (f"{GUESSING}::test_wrong_guesses_are_taken_back",),
    ),
    Mutant(
        "guess in an exact step",
        "the bits of a message would depend on how many of its tokens went into one forward",
        "agentcho/engine/scheduler.py",
        "if self._runner.costs is not None and not exact:",
        "if self._runner.costs is not None:",
        (f"{GUESSING}::test_nothing_is_guessed_in_a_deterministic_step_or_for_what_began_in_one",),
    ),
    Mutant(
        "a shadow is fed what its leader only guesses",
        "what all readers of a message attend to would have tokens that nobody said",
        "agentcho/engine/sequence.py",
        "feed, wanted = self.feed, ()",
        "feed, wanted = self.feed + generation.guessed, ()",
        (f"{GUESSING}::test_a_follower_is_fed_what_was_accepted",),
    ),
    Mutant(
        "guess from what others alone may read",
        "how many steps a message takes would tell what was said in secret",
        "agentcho/provenance/speculation_corpora.py",
        "            self._read[reader] = [each for to, each in self._corpora.items() if to.includes(reader)]\n",
        "            self._read[reader] = [*self._corpora.values()]\n",
        (f"{GUESSES}::test_all_that_is_out_and_that_an_author_may_read_is_drawn_from_and_nothing_else",),
    ),
    Mutant(
        "guess from an audience that was spoken to later without asking who is in it",
        "how many steps a message takes would tell what was said in secret",
        "agentcho/provenance/speculation_corpora.py",
        "                if to.includes(reader):\n",
        "                if reader:\n",
        (f"{GUESSES}::test_all_that_is_out_and_that_an_author_may_read_is_drawn_from_and_nothing_else",),
    ),
    Mutant(
        "guess from what the other moves of a round have said",
        "how many steps a move takes would tell what another chose before both are out",
        "agentcho/games/play/turn.py",
        "out=self._messages.rounds.visible()",
        "out=(v := __import__('agentcho.provenance.views', fromlist=['_'])).History("
        "v.MessageLog(each.metadata for each in on.drafts.values() if each.message is not None))",
        (f"{GUESSES}::test_all_that_is_out_and_that_an_author_may_read_is_drawn_from_and_nothing_else",),
    ),
)

WAITING = (
    Mutant(
        "a rush takes no notice of the budget that was asked for",
        "those who speak would wait for a step as long as it takes",
        "agentcho/engine/scheduler.py",
        "self._rush.on and not self._budget.strict",
        "self._rush.on",
        (
            "tests/engine/test_scheduling.py::test_a_budget_that_is_asked_for_holds_in_a_rush_too_and_until_another_takes_its_place",
        ),
    ),
)

FILES = (
    Mutant(
        "read a file that was changed",
        "keys that somebody wrote into it, or those of another message, would be read as what this one says",
        "agentcho/engine/spill_files.py",
        "if not hmac.compare_digest(self._digest(data), file.digest):",
        "if len(data) != file.size:",
        (f"{DISK}::test_a_file_that_is_not_what_was_written_is_told_of_and_made_again",),
    ),
    Mutant(
        "go through a link to a file",
        "what a message is made of would be written to, or read from, wherever somebody points",
        "agentcho/engine/spill_files.py",
        "NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC",
        "NO_LINK = os.O_CLOEXEC",
        (f"{DISK}::test_a_file_that_is_not_what_was_written_is_told_of_and_made_again",),
    ),
    Mutant(
        "files that others may read",
        "other users of the machine would have the keys and values of what is private",
        "agentcho/engine/spill_files.py",
        "os.open(name, MADE, 0o600, dir_fd=self._at)",
        "os.open(name, MADE, 0o644, dir_fd=self._at)",
        (f"{DISK}::test_files_are_their_owners_alone_and_their_names_tell_nothing",),
    ),
    Mutant(
        "write over a file that is there",
        "what somebody has put there, or a link to it, would be written over",
        "agentcho/engine/spill_files.py",
        "MADE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK",
        "MADE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC",
        (f"{DISK}::test_a_file_that_is_there_already_is_not_written",),
    ),
    Mutant(
        "remove the files of the living",
        "an engine that is loaded would take away what others have on disk",
        "agentcho/engine/spill_files.py",
        "                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        (f"{DISK}::test_what_a_dead_process_left_is_removed_and_what_a_living_one_has_is_not",),
    ),
    Mutant(
        "leave the files of a closed engine",
        "what was private would stay on disk for as long as the process lives",
        "agentcho/engine/core.py",
        "                self._tiers.close()\n",
        "",
        (f"{DISK}::test_files_are_their_owners_alone_and_their_names_tell_nothing",),
    ),
    Mutant(
        "leave the file of what was released",
        "what nobody can ask for any more would stay on disk",
        "agentcho/engine/cache.py",
        "            self.files.remove(entry.file)\n",
        "",
        (f"{DISK}::test_what_is_released_leaves_the_disk",),
    ),
    Mutant(
        "a call fails for a file that is gone",
        "whoever can remove a file would decide which calls fail",
        "agentcho/engine/restore.py",
        "if error.file is None or not self.fits(",
        "if error.file is not None or not self.fits(",
        (f"{DISK}::test_a_file_that_is_not_what_was_written_is_told_of_and_made_again",),
    ),
    Mutant(
        "forget what a call goes on from while others are made again",
        "its earlier state may be gone by the time that it is taken over",
        "agentcho/engine/restore.py",
        "users = Counter(entries)",
        "users = Counter(entries[:1])",
        (f"{DISK}::test_what_a_call_goes_on_from_may_have_to_leave_while_others_are_made_again",),
    ),
)

EIGHT_BITS = (
    Mutant(
        "one scale for all heads of a token",
        "a head with large numbers would leave the others none of their digits",
        "agentcho/runner/kv/kv_quant.py",
        "vectors.abs().amax(-1, keepdim=True)",
        "vectors.abs().amax((-3, -1), keepdim=True).expand(*vectors.shape[:-1], 1).contiguous()",
        (f"{OCTETS}::test_no_vector_depends_on_what_stands_beside_it",),
    ),
    Mutant(
        "one scale for all tokens that are written together",
        "what a message is read as would depend on what was encoded beside it",
        "agentcho/runner/kv/kv_quant.py",
        "vectors.abs().amax(-1, keepdim=True)",
        "vectors.abs().amax((-2, -1), keepdim=True).expand(*vectors.shape[:-1], 1).contiguous()",
        (f"{OCTETS}::test_no_vector_depends_on_what_stands_beside_it",),
    ),
    Mutant(
        "attend to whole keys and store rounded ones",
        "what is said over a message would depend on whether it is still in the lane of who said it",
        "agentcho/runner/batch.py",
        "        if self.pages.rounding:\n",
        "        if False:\n",
        (f"{OCTETS}::test_who_speaks_attends_to_the_very_numbers_that_are_stored",),
    ),
    Mutant(
        "do not round keys where they were turned to",
        "what is encoded anew would be made over other keys than those that are stored with it",
        "agentcho/runner/batch.py",
        "return source.pages.as_read(k), source.pages.as_read(v)",
        "return k, v",
        (f"{OCTETS}::test_what_is_encoded_anew_in_part_is_attended_to_as_it_is_stored",),
    ),
    Mutant(
        "read rounded numbers under the key of whole ones",
        "two engines that compute other keys for the same words would name them alike",
        "agentcho/runner/model/model.py",
        ', self.kv_quant and f"kv {self.kv_quant}"',
        "",
        (f"{OCTETS}::test_the_form_is_in_the_fingerprint_and_in_every_key",),
    ),
    Mutant(
        "count whole numbers where rounded ones are kept",
        "a store of so many bytes would hold no more tokens than before",
        "agentcho/runner/model/loading.py",
        "model.dtype, model.kv_quant is not None)",
        "model.dtype)",
        (f"{OCTETS}::test_a_default_store_holds_more_tokens",),
    ),
    Mutant(
        "keep what rounding makes of a number that is none",
        "a broken forward would be read as some numbers, and nobody would notice",
        "agentcho/runner/kv/kv_quant.py",
        "numbers.mul_(1 / TOP).mul_(largest.float())",
        "numbers.mul_(1 / TOP).mul_(largest.float().nan_to_num(0, 0, 0))",
        (f"{OCTETS}::test_zeros_stay_zeros_and_what_is_no_number_stays_none",),
    ),
)

ENGINE = (
    *WAITING,
    *FILES,
    *EIGHT_BITS,
    *EXACT,
    *POSITIONS,
    *SHARED,
    *FAILURES,
    *SHADOWS,
    *REPAIRS,
    *ENDINGS,
    *KERNELS,
    *LIKELY,
    *CALLING,
    *GUESSED,
)
