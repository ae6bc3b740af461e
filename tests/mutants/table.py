"""The table of all mutants: each breaks one rule on purpose, and names the tests that must notice. The mutants of
enforcement are defined here, all others in the modules beside this one."""

from __future__ import annotations

from .anchors import ANCHORS
from .arena import ENVIRONMENTS
from .attacks import GIVEN_AWAY
from .cluster import CLUSTER
from .engine import ENGINE
from .games import GAMES
from .kept import OUTLIVING
from .models import SEVERAL
from .mutant import Mutant
from .once import ONCE
from .papers import PAPERS
from .people import PEOPLE
from .private import PRIVATE
from .remote import REMOTE
from .results import IN_HAND
from .reuse import REUSING
from .serve import SERVE
from .sinks import TOLD
from .sweeps import SWEEPS
from .texts import TEXTS
from .thoughts import THINKING
from .tools import TOOLS
from .viewer import VIEWER
from .vllm import VLLM
from .words import WORDS

NUMERIC = "tests/leaks/numeric/test_noninterference.py"
FUNCTIONAL = "tests/leaks/numeric/test_functional.py"
CACHE = "tests/leaks/numeric/test_cache.py"
GAPS = "tests/leaks/test_gaps.py"
PROFILE = "tests/engine/test_profile.py"
SALT = "tests/leaks/test_salt.py"
FORGET = "tests/leaks/test_forget.py"
HEARD = "tests/choreography/test_heard.py"
REFUSALS = "tests/leaks/test_refusals.py"
INTERFERENCE = "tests/leaks/interference/test_interference.py"
GOLDEN = "tests/golden/test_golden.py"
SALTS = "tests/leaks/test_cache_salts.py"

ENFORCEMENT = (
    Mutant(
        "a salt of the last message alone",
        "two requests with the same new audience would share a cache, whatever stands before it",
        "agentcho/provenance/prefix_cache_salts.py",
        "for readers in accumulate(audiences, Audience.both)",
        "for readers in audiences",
        (f"{SALTS}::test_a_reader_observes_the_same_whatever_it_may_not_read",),
    ),
    Mutant(
        "a direct leak is salted as its readers are",
        "who reads what is not for it would ask the cache of those who may",
        "agentcho/provenance/prefix_cache_salts.py",
        "alone = None if readers.includes(reader) else reader",
        "alone = None",
        (f"{SALTS}::test_who_reads_what_is_not_for_him_shares_with_nobody",),
    ),
    Mutant(
        "drop the transitive step",
        "a cone would end at what was attended to, and not reach what that had attended to",
        "agentcho/provenance/labels.py",
        "cone = self._roll.cone(message, (self._cones[over] for over in attended_encodings(receipt)), also)",
        "cone = self._roll.cone("
        "message, (self._roll.cone(self[o].message, ()) for o in attended_encodings(receipt)), also)",
        (GAPS, "tests/audit/test_cones.py"),
    ),
    Mutant(
        "skip one re-encoding",
        "an audience encoding would stand on an author's encoding of its first parent",
        "agentcho/provenance/resolver.py",
        'return tuple(self._encoding("audience", id, missing) for id in self._public_parents(draft))',
        'recipes: list[Recipe] = ["author", *["audience"] * len(draft.reads.reads)]  # type: ignore[list-item]\n'
        "        pairs = zip(recipes, self._public_parents(draft), strict=False)\n"
        "        return tuple(self._encoding(recipe, id, missing) for recipe, id in pairs)",
        (NUMERIC,),
    ),
    Mutant(
        "the author's encoding where it happens to be clean",
        "rule 1: whether it is clean depends on what its author had read; only the absence of a secret shows it",
        "agentcho/provenance/resolver.py",
        "return self._encoding(self._recipe(reader, read), read.id, missing)",
        """made = self._known.get(("author", (read.id,)), -1)
        label, wanted = self._monitor._labels.get(made, ()), self.drafts[read.id].metadata.audience
        if label and all(one.audience.covers(wanted) for one in label):
            return made
        return self._encoding(self._recipe(reader, read), read.id, missing)""",
        (f"{NUMERIC}::test_hidden_words_change_no_bit_for_a_reader", GAPS),
    ),
    Mutant(
        "judge by what others have repaired",
        "rule 11: what is repaired for one judge stands over what that judge reads, and would be read by another",
        "agentcho/provenance/resolver.py",
        'how = JUDGED if reads.reuse == "judge" else',
        'reads = reads._replace(caller="judge")\n            how = JUDGED if reads.reuse == "judge" else',
        ("tests/choreography/test_judged.py",),
    ),
    Mutant(
        "a view that judges is read as any other",
        "the run's own repair would be taken for what the judge asked for, under one name",
        "agentcho/provenance/resolver.py",
        'return self._judge if reads.reuse == "judge" else self._repair',
        "return self._repair",
        ("tests/choreography/test_judged.py",),
    ),
    Mutant(
        "what was repaired to be judged is read by every call of its caller",
        "a key that does not say how would take the one for the other, and their cones",
        "agentcho/provenance/resolver.py",
        "path = (*path, f\"{read.id}@{places[place]}{' as said' * own}{how}\")",
        "path = (*path, f\"{read.id}@{places[place]}{' as said' * own}{how.replace(JUDGED, '')}\")",
        ("tests/choreography/test_judged.py",),
    ),
    Mutant(
        "repair by what is hidden",
        "whether what stands first is repaired would tell whether its author had read anything in secret",
        "agentcho/provenance/resolver.py",
        "return self._public_parents(draft) if public else [read.id for read in draft.reads.reads]",
        "return [read.id for read in draft.reads.reads]",
        (f"{NUMERIC}::test_what_stands_first_is_repaired_or_not_by_what_is_public_of_it",),
    ),
    Mutant(
        "share prompts with their authors",
        "a baseline prompt that begins as its author's did would be read in the author's own bits",
        "agentcho/provenance/resolver.py",
        'return f"{part.name} as said" if said else part.name',
        "return part.name",
        ("tests/choreography/test_baseline.py::test_no_beginning_of_a_prompt_is_encoded_twice",),
    ),
    Mutant(
        "tell what there is",
        "the text of an error would name messages that the reader may not read",
        "agentcho/provenance/views.py",
        "return (m.id for m in said if m.audience.includes(caller) and sees(m))",
        "return (m.id for m in said)",
        (f"{INTERFERENCE}::test_an_error_about_what_was_not_said_names_nothing_hidden",),
    ),
    Mutant(
        "one generator for all agents' coins",
        "how often others speak in private would change what is drawn",
        "agentcho/games/play/turn.py",
        '{"seed": coin_seed(self._seed, self._index, author, turn, step)}',
        '{"seed": coin_seed(self._seed, self._index, "", sum(self._taken.values()) + len(self._taken))}',
        (f"{NUMERIC}::test_hidden_words_change_no_bit_for_a_reader",),
    ),
    Mutant(
        "a shadow that keeps a rejected token",
        "a shadow would hold a token that was guessed and not accepted, here in place of the first that was",
        "agentcho/engine/sequence.py",
        "return self.speech.script[self.fed : self.fed + self.portion]",
        "accepted = self.speech.script[self.fed : self.fed + self.portion]\n"
        "        return accepted if self.fed else (*accepted[:-1], accepted[0])",
        (f"{FUNCTIONAL}::test_shadow_lazy_and_deterministic_make_the_same_encodings",),
    ),
    Mutant(
        "roster instead of everyone",
        "rule 4: everyone would be those who are there already",
        "agentcho/games/play/game.py",
        "told = KnownTextMessage(SCENARIO, role, audience(to, self.agents), text, UNREAD, self._models.own)",
        'roster = Audience(frozenset(self.agents)) if to == "everyone" else audience(to, self.agents)\n'
        "        told = KnownTextMessage(SCENARIO, role, roster, text, UNREAD, self._models.own)",
        (GAPS,),
    ),
    Mutant(
        "build on a dirty parent",
        "an audience encoding would attend to what not all of its audience may read",
        "agentcho/provenance/resolver.py",
        "return [id for id in parents if self.drafts[id].metadata.audience.covers(audience)]",
        "return [id for id in parents if audience is not None]",
        (NUMERIC,),
    ),
    Mutant(
        "build on a dirty parent, with no monitor",
        "the same, where nothing refuses it: numbers must show it",
        "agentcho/provenance/resolver.py",
        "return [id for id in parents if self.drafts[id].metadata.audience.covers(audience)]",
        "self._monitor.guard = lambda *_: None  # type: ignore[method-assign, assignment, return-value]\n"
        "        return [id for id in parents if audience is not None]",
        (NUMERIC,),
    ),
    Mutant(
        "key without parents",
        "the same words over other parents would be taken for the same encoding",
        "agentcho/engine/call_layout.py",
        "hasher.update(piece.entry.key + piece.offset.to_bytes(8))",
        "hasher.update(piece.entry.length.to_bytes(8) + piece.offset.to_bytes(8))",
        (CACHE,),
    ),
    Mutant(
        "key without offset",
        "the same words over the same parents elsewhere would be taken for the same encoding",
        "agentcho/engine/call_layout.py",
        "hasher.update(piece.entry.key + piece.offset.to_bytes(8))",
        "hasher.update(piece.entry.key)",
        (CACHE,),
    ),
    Mutant(
        "key without feeds",
        "in the deterministic profile bits would depend on how another game was fed the same words",
        "agentcho/engine/call_layout.py",
        "for numbers in (tokens, feeds):",
        "for numbers in (tokens,):",
        (PROFILE, CACHE),
    ),
    Mutant(
        "key without what its tokens were chosen over",
        "a repaired encoding would be shared with one whose tokens were judged over other keys",
        "agentcho/engine/call_layout.py",
        "parts = fresh + base + judged + choose.tag.encode()",
        "parts = fresh + base + choose.tag.encode()",
        (PROFILE,),
    ),
    Mutant(
        "one class for both profiles",
        "games of the deterministic profile would read what was made in forwards with others",
        "agentcho/provenance/resolver.py",
        'outer = self._class + (EXACT if self.reuse.deterministic else "")',
        "outer = self._class",
        ("tests/leaks/test_classes.py",),
    ),
    Mutant(
        "keep the author's offsets",
        "rule 7: an audience encoding would stand where its author put it, by the length of what it had read",
        "agentcho/provenance/resolver.py",
        "return replace(self._prefill(draft, draft.metadata.audience, public), adapter=None)",
        "new = self._positions(draft.reads)[1]\n"
        "        public = public._replace(new_offset=new)\n"
        "        return replace(self._prefill(draft, draft.metadata.audience, public), adapter=None)",
        (GAPS, FUNCTIONAL, NUMERIC),
    ),
    Mutant(
        "mask instead of gather",
        "rule 13: all that is stored would be gathered and masked; not a number goes through a mask",
        "agentcho/runner/batch.py",
        """        mask, asked = self._masks[locality], queries[:, :, segment.span()]
""",
        """        mask, asked = self._masks[locality], queries[:, :, segment.span()]
        if segment.entry is not None and segment.pieces:
            pages, layer = source.pages, source.layer
            rows = pages.allocated * pages.page_tokens
            all_k, all_v = (p[layer][:rows].transpose(0, 1) for p in (pages._keys, pages._values))
            seen = torch.ones(len(segment.ids), k.shape[1], dtype=torch.bool) if mask is None else mask
            mask = torch.cat([torch.zeros(len(segment.ids), all_k.shape[1], dtype=torch.bool), seen], dim=1)
            k, v = torch.cat([all_k, k], dim=1), torch.cat([all_v, v], dim=1)
""",
        (f"{NUMERIC}::test_not_a_number_in_all_that_is_hidden_reaches_no_reader",),
    ),
    Mutant(
        "share by size",
        "rows would read another's context where theirs are as long",
        "agentcho/runner/kv/shared_runs.py",
        "(one.entry is other.entry and",
        "(one.entry.length == other.entry.length and",
        ("tests/engine/test_sharing.py::test_what_stands_in_a_run_is_known_by_itself_and_its_distance",),
    ),
    Mutant(
        "lose the label on save and load",
        "a transcript that was read again would know of no message but an encoding's own",
        "agentcho/records/transcript.py",
        "    cone = frozenset[str]() if part.cone is None else part.cone\n",
        "    cone = frozenset({part.message})\n",
        (GAPS,),
    ),
    Mutant(
        "take any word for a kind",
        "a record could call a spoken message something else, and nobody would be judged as its reader",
        "agentcho/records/line_models.py",
        "    kind: Kind\n",
        "    kind: str\n",
        ("tests/cli/test_foreign.py",),
    ),
    Mutant(
        "let one's own cancellation end all",
        "a game that awaited what was cancelled would take all other games with it, and the run would say done",
        "agentcho/choreography/quiescence.py",
        "return task is None or task.cancelling() > 0 or anyio.current_effective_deadline() == -inf",
        "return True",
        ("tests/cli/test_failures.py",),
    ),
    Mutant(
        "share labels between runs",
        "rule 12: what another game knows of an id would vouch for it here",
        "agentcho/provenance/labels.py",
        """    def __init__(self) -> None:
        self._labels: dict[EncodingId, frozenset[Label]] = {}
""",
        """    _labels: dict[EncodingId, frozenset[Label]] = {}

    def __init__(self) -> None:
""",
        (GAPS,),
    ),
    Mutant(
        "cone from what was asked",
        "cones would be of the messages in the prompt, and not of what was attended to",
        "agentcho/games/play/journal.py",
        '            said=own.spoken or recipe == "author",\n        )\n',
        '            said=own.spoken or recipe == "author",\n'
        "        )._replace(cone=frozenset({of.message, *self.resolver.drafts[of.message].metadata.parents}))\n",
        (GAPS,),
    ),
    Mutant(
        "re-encode from text",
        "rule 5: an audience encoding would hold the ids that the text encodes to, and not those that were said",
        "agentcho/provenance/resolver.py",
        "as_said, own = self.spells(draft), ",
        "as_said, own = False, ",
        (f"{FUNCTIONAL}::test_a_reader_reads_the_ids_that_were_said_and_not_those_of_their_text",),
    ),
    Mutant(
        "salts that run together",
        "one tenant's salt and class would spell another's, and their games would share what is stored",
        "agentcho/provenance/resolver.py",
        'self._class = f"{len(salt)}/{salt}/" if salt else ""',
        "self._class = salt",
        (f"{SALT}::test_games_share_nothing_that_is_stored_where_their_salts_differ",),
    ),
    Mutant(
        "an author by name alone",
        "who only claims to be a message's author would read what its author had read",
        "agentcho/provenance/resolver.py",
        "return author is not None and author == reader and not read.public",
        "return author is not None and author == reader",
        (f"{SALT}::test_an_author_reads_its_own_message_as_it_was_made_or_as_others_read_it",),
    ),
    Mutant(
        "forget labels of what is under way",
        "a call would be refused, for what it reads has no label any more",
        "agentcho/provenance/labels.py",
        "if id not in held and id not in self._guards]",
        "if id not in held]",
        (f"{FORGET}::test_labels_of_what_is_held_or_under_way_stay",),
    ),
    Mutant(
        "swap two classes",
        "the author's encoding would be kept in its audience's class, and the other way round",
        "agentcho/provenance/resolver.py",
        "return outer + json.dumps(clearance.to_json())",
        'return outer + json.dumps("everyone" if clearance.members else ["alice"])',
        (CACHE, NUMERIC),
    ),
    Mutant(
        "forget what a repair keeps",
        "rule 11: the cone of a repaired encoding would lack that of its base",
        "agentcho/provenance/labels.py",
        "return over if receipt.base is None else (*over, receipt.base, *receipt.anchors)",
        "return over",
        ("tests/choreography/test_repair.py",),
    ),
    Mutant(
        "public by default",
        "rule 3: a message with no audience given would be for everyone",
        "agentcho/agent.py",
        "audience: Names = _UNADDRESSED",
        'audience: Names = "everyone"',
        (GAPS,),
    ),
    Mutant(
        "encode a postponed shadow with nobody asked",
        "what is encoded when it is first read would be gathered without its guard's word",
        "agentcho/engine/scheduler.py",
        "            call.ask()\n            done",
        "            call.status is Status.DEFERRED or call.ask()  # type: ignore[func-returns-value]\n"
        "            done",
        ("tests/engine/test_postponed.py",),
    ),
    Mutant(
        "make a postponed shadow for a score with nobody asked",
        "what is made at once, for scores and looks at the cache, would be gathered without its guard's word",
        "agentcho/engine/queue.py",
        "            call.ask()\n",
        "            pass\n",
        ("tests/engine/test_postponed.py",),
    ),
    Mutant(
        "a run reuses what leaks, by default",
        "people believe defaults: a run nobody asked anything of would leak, and only record that it did",
        "agentcho/config/options.py",
        'leakage: Leakage = Field(\n        default="enforce"',
        'leakage: Leakage = Field(\n        default="audit"',
        ("tests/leaks/test_default.py",),
    ),
    Mutant(
        "an agent is who it says it is",
        "an agent that takes another's name would read what is private to that one",
        "agentcho/games/play/roster.py",
        "return self._names.get(id(agent))",
        'return agent.__dict__.get("_name") if id(agent) in self._names else None',
        ("tests/choreography/test_identity.py",),
    ),
    Mutant(
        "equal is proof enough",
        "a swap that moves nothing under audit either would count as shown",
        "agentcho/lab/prove/proof.py",
        'return "inconclusive" if self.audit.same else "holds"',
        'return "holds"',
        ("tests/audit/test_prove.py",),
    ),
    Mutant(
        "a model whose role markers anyone can write",
        "what one agent says could pass for what another said, under a claim that presumes it cannot",
        "agentcho/engine/framing.py",
        "for one, other in product(self.frames, repeat=2) if spellable(one, other))",
        "for one, other in product(self.frames, repeat=2) if spellable(one, other) and not self.frames)",
        ("tests/leaks/test_markers.py", "tests/engine/test_framing.py"),
    ),
    Mutant(
        "two owners of one engine",
        "a second choreographer, or a direct call beside one, would take the first one's calls for its own",
        "agentcho/protocol/ownership.py",
        "if not self._hold.over:",
        "if self._hold is None:",
        ("tests/choreography/test_owner.py",),
    ),
    Mutant(
        "ids of another engine",
        "equal numbers name other messages there: one would be read, or given up, for another",
        "agentcho/engine/ids.py",
        "return isinstance(id, GivenId) and id.engine != self._engine",
        "return False",
        ("tests/choreography/test_owner.py",),
    ),
    Mutant(
        "an exact game in the forwards of fast ones",
        "its last bits would depend on who speaks beside it",
        "agentcho/choreography/choreographer.py",
        "self._is_exact = any(map(self._exact, running))",
        "self._is_exact = all(map(self._exact, running))",
        ("tests/choreography/test_reuse.py",),
    ),
    Mutant(
        "forget what was cancelled",
        "what code heard of a message before it left its stream would be on no line, and the audit said CLEAN",
        "agentcho/choreography/choreographer.py",
        """            handle.drop("cancelled")""",
        """            pass""",
        (HEARD,),
    ),
    Mutant(
        "tell before it is written",
        "code would hear words of which a kill leaves no trace",
        "agentcho/choreography/choreographer.py",
        'if flush is not None and not self._notify(handles[0], "flush", flush):',
        "if not handles:",
        (HEARD,),
    ),
    Mutant(
        "what does not fit is found out by its readers",
        "whether a message fits over what its author had read in secret would be told to whoever reads it",
        "agentcho/games/play/messages.py",
        "        if end > model.frames.context:\n",
        "        if end > model.frames.context and not reads.reads:\n",
        ("tests/leaks/test_known.py",),
    ),
    Mutant(
        "frame ids that no message can have",
        "whoever reads such a message would be refused for what its author did, and learn of it",
        "agentcho/engine/call_layout.py",
        "own = content.encode(said) if tokens is None else content.check(tokens)",
        "own = content.encode(said) if tokens is None else list(tokens)",
        ("tests/engine/test_framing.py",),
    ),
    Mutant(
        "a listener ends the loop",
        "what one game's code raises that would end a task would leave all games waiting for ever",
        "agentcho/choreography/choreographer.py",
        "    except BaseException as error:\n        return error\n",
        "    except Exception as error:\n        return error\n",
        ("tests/choreography/test_listeners.py",),
    ),
    Mutant(
        "a second event loop",
        "who calls from another thread would wait for ever, or be woken in the wrong one",
        "agentcho/choreography/choreographer.py",
        "if anyio.lowlevel.current_token() != self._home[1]:",
        "if not self._home:",
        ("tests/choreography/test_owner.py",),
    ),
    Mutant(
        "a schema of any depth",
        "one call would end the process: a compiler's stack ends where it ends",
        "agentcho/protocol/value_checks.py",
        "if wrong := why_not_compilable(read):",
        "if wrong := why_not_compilable({}):",
        ("tests/test_compilable.py",),
    ),
    Mutant(
        "believe a seal",
        "a record whose receipts were changed would have the cones that they give now, and nobody would know",
        "agentcho/records/transcript.py",
        "if over is None or _seal(record, over) != seal:",
        "if over is None:",
        ("tests/test_sealed.py",),
    ),
    Mutant(
        "a call is refused by what the whole game has left",
        "how much others have said in secret would be told to whoever asks for more than there is room for",
        "agentcho/games/play/turn.py",
        "        most = self._left(draft)  # not a part of what is checked: a refusal would tell it\n",
        "        most = self._left(draft)\n"
        '        bound = {"max_tokens": min(most or 1 << 40, sampling.max_tokens)}\n'
        "        sampling = sampling.model_copy(update=bound)\n",
        (REFUSALS,),
    ),
    Mutant(
        "what does not fit in place is found out later",
        "a message that can never be encoded where it would be made would be out, and fail whoever reads it",
        "agentcho/provenance/resolver.py",
        "            return max([self.bos, *map(self._end, over)]) + length\n",
        "            return alone\n",
        (REFUSALS,),
    ),
    Mutant(
        "what would stand before the beginning is found out later",
        "a message that can never be encoded where its author placed it would be out",
        "agentcho/provenance/resolver.py",
        "starts = [None if place is None else checked_position(place) for place in places]",
        "starts = places",
        (REFUSALS,),
    ),
    Mutant(
        "a turn's seed of other letters",
        "a run's seed would no longer give the words that it gave",
        "agentcho/games/play/turn.py",
        'framed = f"{seed}/{game}/{len(author)}/{author}/{turn}',
        'framed = f"{seed}/{game}/{author}/{turn}',
        (f"{GOLDEN}::test_each_call_has_its_seed_its_class_and_its_key",),
    ),
    Mutant(
        "another coin",
        "the same seed would draw other tokens than it drew",
        "agentcho/runner/sampling/sampler.py",
        'person=b"agentcho.coin"',
        'person=b"agentcho.toss"',
        (f"{GOLDEN}::test_seeds_coins_tasks_and_fingerprints_are_what_they_were",),
    ),
    Mutant(
        "a key that does not say how it was fed",
        "what was fed at once and what was fed token by token, whose last bits differ, would stand for each other",
        "agentcho/engine/call_layout.py",
        "hasher = hashlib.blake2b(digest_size=32, person=recipe.encode())",
        "hasher = hashlib.blake2b(digest_size=32)",
        (f"{GOLDEN}::test_the_embedded_model_says_the_same_words_by_the_same_keys",),
    ),
)

MUTANTS = (
    *ENFORCEMENT,
    *ONCE,
    *ANCHORS,
    *ENGINE,
    *GAMES,
    *PEOPLE,
    *SERVE,
    *REMOTE,
    *TEXTS,
    *SEVERAL,
    *CLUSTER,
    *ENVIRONMENTS,
    *PRIVATE,
    *THINKING,
    *TOLD,
    *WORDS,
    *TOOLS,
    *VIEWER,
    *VLLM,
    *SWEEPS,
    *PAPERS,
    *IN_HAND,
    *OUTLIVING,
    *REUSING,
    *GIVEN_AWAY,
)
