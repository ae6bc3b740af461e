"""Resolves the messages that a call reads to the encodings through which it reads them. Missing encodings are made in
the same submit.

choreographed: under audit and deny each message is read through its author's encoding E(m), made once. Under enforce
the author of a message reads it through E(m), everyone else through its audience's X(m): m over those of its parents
that all its readers may read, at positions that count from these alone. baseline: each message is encoded in the
caller's own prompt, as the chat template writes that as a whole; common prefixes of prompts are shared. With a repair
each caller has its own encodings of others' messages: some tokens are recomputed in its own prompt, the others are
reused, or all are reused with the offsets of its own anchors. Re-encoding uses token ids if they are known.

If a game has several engines, each has a resolver, over the same messages. On each engine an author reads its own words
through an E(m) that is made there. Everyone else reads X(m) if m was generated on another engine, under audit and deny
too, so that what its author had read never gets there. Words that another tokenizer spells differently are encoded from
their text. If an engine has several adapters, each has a resolver too. They share every X(m), which goes through the
base model alone; everything else goes through the caller's adapter.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any

from agentcho.config import ReusePolicy
from agentcho.message import Audience, Metadata, is_default_prompt
from agentcho.protocol.call import Decode, EncodingId, FramePort, Guard, Offsets, Prefill, Receipt, Repair, Shadow
from agentcho.protocol.speculation_corpus import Corpus
from agentcho.protocol.value_checks import checked_position
from agentcho.provenance.anchors import AnchorPools
from agentcho.provenance.baseline_prompts import BaselinePrompts, PromptPart
from agentcho.provenance.call_plans import (
    DecodePlan,
    Key,
    Lacking,
    MissingEncoding,
    Parent,
    PlannedContext,
    ResolvedContext,
)
from agentcho.provenance.drafts import Draft, ModelTokenization
from agentcho.provenance.labels import Label, Monitor, Recipe
from agentcho.provenance.message_lengths import MessageLengths
from agentcho.provenance.speculation_corpora import Corpora
from agentcho.provenance.views import History, Read, ReadSet, absolute_positions, places_of
from agentcho.reuse.method import ByAnchors, Selection

AHEAD, JUDGED, EXACT = " ahead", " judged", "exact "
"""Suffix in paths of encodings made ahead of the caller's own request; suffix in paths of encodings for a view that
judges; prefix of salts in the deterministic profile."""


class Resolver:
    """The encodings of one game's messages on one engine. `bos`: number of tokens that every context begins with. Games
    share stored keys only if their `salt` is the same. `spelling`: that of the engine, if the game has several (else
    None). `drafts`: the game's messages, which its resolvers share. `kin`: a resolver of another adapter on the same
    engine, whose audience encodings this one shares. `frames`: how the engine frames messages, to write baseline
    prompts as a whole (None: taken from `spelling`, or without that, message by message).

    In the deterministic profile all audience encodings are made by the same recipe, so none by a shadow.
    """

    def __init__(
        self,
        reuse: ReusePolicy,
        bos: int = 0,
        *,
        salt: str = "",
        spelling: ModelTokenization | None = None,
        drafts: dict[str, Draft] | None = None,
        kin: Resolver | None = None,
        frames: FramePort | None = None,
    ) -> None:
        self.reuse = reuse
        self.bos = bos
        self.spelling = spelling
        self._class = f"{len(salt)}/{salt}/" if salt else ""
        self.drafts: dict[str, Draft] = {} if drafts is None else drafts
        self._lengths = MessageLengths(self.drafts, spelling)
        self._adapter = None if spelling is None else spelling.adapter
        self._ape = None if reuse.mode == "baseline" else reuse.ape
        self._repair, self._judge = reuse.repairs, reuse.judges
        self._private: dict[Key, EncodingId] = {}
        self._public: dict[Key, EncodingId] = {} if kin is None else kin._public
        self._keys: dict[str, list[Key]] = {}
        self._single = set[str]()
        self._asked: set[Key] = set()
        self._anchors = AnchorPools(scoped=reuse.leakage == "deny")
        self._ends: dict[Key, int] = {}
        self._monitor: Monitor = Monitor() if kin is None else kin._monitor
        self.spells = self._lengths.spells
        self.frames = spelling.frames if frames is None and spelling is not None else frames
        self._prompts = BaselinePrompts(self.drafts, self.frames, self.spells)
        self._corpora = Corpora(self.drafts, self.spells) if reuse.speculate else None

    @property
    def _default(self) -> Offsets:
        """The offsets of messages without requested positions."""
        return "made" if self.reuse.in_place else None

    def model_of(self, recipe: Recipe) -> str | None:
        """The model under which an encoding of this recipe is recorded."""
        if self.spelling is None:
            return None
        return self.spelling.home if recipe == "audience" else self.spelling.name

    @property
    def enforcing(self) -> bool:
        """Whether readers other than the author get encodings of their own."""
        return self.reuse.mode == "choreographed" and self.reuse.leakage == "enforce"

    def _said_here(self, draft: Draft) -> bool:
        """Whether a message was generated on this engine. Those of the scenario count for every engine."""
        return self.spelling is None or draft.metadata.author is None or draft.engine == self.spelling.name

    def resolve(self, reads: ReadSet) -> ResolvedContext:
        """The context of a call with this read set, for its caller."""
        if self.reuse.mode == "baseline":
            return self._baseline(reads.reads, reads.caller)
        missing: Lacking = {}
        context = self._context(reads, missing, live=True)
        return ResolvedContext(tuple(missing.values()), *context)

    def decode_plan(self, draft: Draft, shadow: bool = True, out: History | None = None, **options: Any) -> DecodePlan:
        """The calls that generate an author's message. `options` are those of the decode. Without `shadow`, X(m) is
        made when it is read, apart from E(m), under any policy. `out`: the messages that are out, for drafting tokens
        (None: those that the message reads)."""
        resolved = self.resolve(draft.reads)
        single = shadow and self._made_once(draft)
        self._single.update([draft.metadata.id] if single else ())
        clearance = draft.metadata.audience if single else draft.own
        call = Decode(
            draft.text,
            resolved.parents,
            resolved.offsets,
            resolved.new_offset,
            name=draft.name,
            salt=self._salt(clearance if single else self._readers(draft)),
            guard=self._guard(draft, clearance),
            corpora=self._guessed_from(draft, out),
            adapter=self._adapter,
            ape=self._ape,
            opening=resolved.opening,
            **options,
        )
        if single or not shadow or not self.shadowed(draft):
            alone = *(lack.call for lack in resolved.missing), call
            recipe = "audience" if single else self.own_recipe
            opened = resolved.opening is not None
            return DecodePlan(resolved.missing, alone, recipe, apart=resolved.apart, opened=opened)
        lacking = {lack.key: lack for lack in resolved.missing}
        parents, audience = self._public_encodings(draft, lacking), draft.metadata.audience
        guard = self._guard(draft, audience)
        public = Shadow(call, parents, self._default, salt=self._salt(audience), guard=guard, ape=self._ape)
        calls = *(lack.call for lack in lacking.values()), call, public
        return DecodePlan(tuple(lacking.values()), calls, self.own_recipe)

    def _guessed_from(self, draft: Draft, out: History | None) -> tuple[Corpus, ...] | None:
        """The corpora from which tokens of a message may be drafted. None if none are drafted."""
        if self._corpora is None:
            return None
        author, reads = draft.metadata.author, (read.id for read in draft.reads.reads)
        return self._corpora.read(author, reads) if out is None else self._corpora.of(author, out)

    @property
    def own_recipe(self) -> Recipe:
        """The recipe of a message that an author has just generated, if X(m) is not the same."""
        return "baseline" if self.reuse.mode == "baseline" else "author"

    def _made_once(self, draft: Draft) -> bool:
        """Whether E(m) and X(m) have the same recipe, so that one encoding is both: everyone who may read the message
        may read all that its author reads, and the author reads it as they do. Never in the deterministic profile: the
        last bits of generated and of prefilled tokens differ, and would reveal whether the author read more."""
        metadata, reads = draft.metadata, draft.reads
        if not self.shadowed(draft) or not self._said_here(draft):
            return False
        if self._adapter is not None or self.model_of("author") != self.model_of("audience"):
            return False  # audience encodings use no adapter, and are recorded under the engine's first model
        if metadata.author is None or metadata.audience == draft.own or self._repair_of(reads) is not None:
            return False
        if self._positions(reads) != (self._default, None):
            return False
        read = [each.id for each in reads.reads]
        return read == self._public_parents(draft) and all(
            self._recipe(metadata.author, each) == "audience" for each in reads.reads
        )

    def shadowed(self, draft: Draft) -> bool:
        """Whether X(m) is made while m is generated, which depends on public information only. E(m) and X(m) have
        different keys, at least by their salt, whenever anyone besides the author may read m."""
        if not self.enforcing or self.reuse.deterministic or self.reuse.shadow == "never":
            return False
        return self.reuse.shadow == "always" or draft.metadata.audience != draft.own

    def prefetch(self, id: str, exact: bool = False) -> tuple[MissingEncoding, ...]:
        """The encodings of a known message that are certain to be needed, and are not made yet: under audit and deny
        E(m); under enforce X(m) of the scenario's messages, and E(m) of private ones. Empty if they depend on a
        caller's own prompt, or in the deterministic profile unless `exact`."""
        metadata = self.drafts[id].metadata
        recipe: Recipe = "audience" if self.enforcing and metadata.author is None else "author"
        if not (self.begins or (exact and self.reuse.mode != "baseline" and self.reuse.repair is None)):
            return ()
        if self.enforcing and metadata.author is not None and metadata.audience != self.drafts[id].own:
            return ()
        lacking: dict[Key, MissingEncoding] = {}
        if (recipe, (id,)) not in self._asked:
            self._encoding(recipe, id, lacking)
        return tuple(lacking.values())

    @property
    def begins(self) -> bool:
        """Whether the beginning of a scenario's message can be encoded before the rest: not if each caller encodes it
        in its own prompt, nor in the deterministic profile."""
        return self.reuse.mode == "choreographed" and not self.reuse.deterministic and self.reuse.repair is None

    def beginning(self, draft: Draft, earlier: EncodingId | None) -> Prefill:
        """The call that encodes the known beginning of a scenario's message in the same way as the complete message,
        extending the encoding of an earlier state. It reads nothing."""
        make = self._audience_call if self.enforcing else self._author_call
        return replace(make(draft, {}), extends=earlier, guard=None)

    def end_position(self, draft: Draft, length: int) -> int:
        """The number of positions needed to encode a message of `length` tokens for its author and its audience, as far
        as the policy determines it in advance. Raises `RequestError` if a position is invalid."""
        alone = self.bos + length
        if self.reuse.mode == "baseline":
            return alone
        if self.reuse.in_place:
            recipes: tuple[Recipe, ...] = ("author", "audience") if self.enforcing else ("author",)
            over = [key for recipe in recipes for key in self._over(recipe, draft)]
            return max([self.bos, *map(self._end, over)]) + length
        lengths = self._lengths.read(draft.reads)
        places = absolute_positions(draft.reads, lengths, self.bos)
        starts = [None if place is None else checked_position(place) for place in places]
        ends = [start + long for start, long in zip(starts, (*lengths, length), strict=True) if start is not None]
        public = [self._lengths[id] for id in self._public_parents(draft)] if self.enforcing else []
        return max(alone, *ends, alone + sum(public))

    def decode_end(self, draft: Draft, length: int) -> int:
        """The same for a message that is to be generated next, in the prompt of its author."""
        if self.reuse.mode != "baseline":
            return self.end_position(draft, length)
        ids = [read.id for read in draft.reads.reads]
        return self.bos + self._prompts.length(ids, self._lengths.read(draft.reads)) + length

    def enter(self, message: str, recipe: Recipe, path: tuple[str, ...], id: EncodingId, receipt: Receipt) -> bool:
        """Record a finished encoding. Returns False if an equal one is recorded already."""
        key = (recipe, path if recipe in ("baseline", "repaired") else (message,))
        if key in self._there(key):
            return False
        self._there(key)[key] = id
        self._keys.setdefault(message, []).append(key)
        if recipe == "repaired" and isinstance(self._repair, ByAnchors) and not path[-1].endswith((AHEAD, JUDGED)):
            reused: Key = (self._recipe(None, Read(message)), (message,))
            self._anchors.enter(path, message, id, self._there(reused).get(reused), receipt)
        return True

    def forget(self, message: str) -> list[EncodingId]:
        """Give up all encodings of a message, and return them for the caller to release. They are made again from its
        ids when it is read next."""
        for recipe in ("author", "audience"):
            self._asked.discard((recipe, (message,)))
            self._ends.pop((recipe, (message,)), None)
        self._single.discard(message)
        self._anchors.forget(message)
        self._prompts.forget(message)
        return [self._there(key).pop(key) for key in self._keys.pop(message, ())]

    def enter_thought(self, id: EncodingId, message: str) -> None:
        """Label the encoding of an agent's message with the thought in it, which is this message."""
        metadata = self.drafts[message].metadata
        self._monitor.add(id, Label(message, metadata.audience))

    def _there(self, key: Key) -> dict[Key, EncodingId]:
        """The table that an encoding belongs to."""
        return self._public if key[0] == "audience" else self._private

    def forget_labels(self, held: Container[EncodingId]) -> None:
        """Drop the labels of all encodings that are neither `held` nor being made."""
        self._monitor.forget(held)

    # -- choreographed -----------------------------------------------------------------------------------

    def _context(self, reads: ReadSet, missing: Lacking, live: bool = False) -> PlannedContext:
        """The encodings through which a read set is read, and their positions. `live`: for a call of its caller, and
        not to encode the caller's message again."""
        offsets, new_offset = self._positions(reads)
        repair = self._repair_of(reads)
        if repair is not None and reads.caller is not None:
            how = JUDGED if reads.reuse == "judge" else AHEAD if isinstance(repair, ByAnchors) and not live else ""
            parents = self._repaired(reads.caller, reads, offsets, missing, how)
        else:
            parents = tuple(self._through(reads.caller, read, missing) for read in reads.reads)
        return PlannedContext(parents, offsets, new_offset)

    def _repair_of(self, reads: ReadSet) -> Selection | None:
        """The tokens of others' messages that a call recomputes: the view's choice takes precedence over the run's.
        None for the scenario, which has no prompt, and if messages are read in place or weighed."""
        if reads.caller is None or self.reuse.in_place or self._ape is not None:
            return None
        return self._judge if reads.reuse == "judge" else self._repair

    def _repaired(
        self, caller: str, reads: ReadSet, offsets: Offsets, missing: Lacking, how: str
    ) -> tuple[Parent, ...]:
        """The encodings of a read set with others' messages repaired over what precedes them in the caller's prompt. A
        first message whose encoding was made over nothing needs no repair. `how`: the suffix for a view that judges, or
        for full re-encoding outside the caller's own calls, which alone determine its anchors."""
        places = offsets if isinstance(offsets, tuple) else (None,) * len(reads.reads)
        before: tuple[Parent, ...] = ()
        path: tuple[str, ...] = (caller,)
        for place, read in enumerate(reads.reads):
            draft = self.drafts[read.id]
            own = self._own(caller, read)
            path = (*path, f"{read.id}@{places[place]}{' as said' * own}{how}")
            alone = not before and places[place] is None and not self._context_of_others(draft)
            if alone or own:
                before += (self._through(caller, read, missing),)
            else:
                offsets_before = places[:place] if any(each is not None for each in places[:place]) else None
                context = PlannedContext(before, offsets_before, places[place])
                before += (self._repairing(read, path, context, missing),)
        return before

    def _context_of_others(self, draft: Draft) -> list[str]:
        """The messages over which the encoding for readers other than the author is made. Under enforce hidden messages
        do not count, because a choice that depends on them would reveal that they exist."""
        public = self.enforcing or not self._said_here(draft)
        return self._public_parents(draft) if public else [read.id for read in draft.reads.reads]

    def _repairing(self, read: Read, path: tuple[str, ...], context: PlannedContext, missing: Lacking) -> Parent:
        """The repaired encoding of a message for the caller `path[0]` at this path. If it is re-encoded in full,
        nothing is reused, so its cone only has what the caller reads; otherwise its base is the reused encoding."""
        key: Key = ("repaired", path)
        if key in self._private:
            return self._private[key]
        if key not in missing:
            draft, caller = self.drafts[read.id], Audience(frozenset({path[0]}))
            call: Prefill | Repair
            choose = self._judge if path[-1].endswith(JUDGED) else self._repair
            assert choose is not None
            if not choose.keeps or path[-1].endswith(AHEAD):
                call = self._prefill(draft, caller, context)
            else:
                base, guard = self._through(path[0], read, missing), self._guard(draft, caller)
                if isinstance(choose, ByAnchors):
                    choose = choose.with_anchors(self._anchors.of(path, missing))
                call = Repair(base, choose, *context, self._salt(caller), guard, self._adapter)
            missing[key] = MissingEncoding(read.id, "repaired", path, call)
        return missing[key].call

    def _through(self, reader: str | None, read: Read, missing: Lacking) -> Parent:
        """The encoding through which `reader` reads a message."""
        return self._encoding(self._recipe(reader, read), read.id, missing)

    def _recipe(self, reader: str | None, read: Read) -> Recipe:
        """The recipe through which `reader` reads a message. Under enforce, others never read the author's encoding,
        even a clean one, because the choice would itself reveal hidden messages. Nor do they on engines other than the
        one that generated the message. An encoding that is both counts as the audience's."""
        if self._own(reader, read):
            return "audience" if read.id in self._single else "author"
        return "audience" if self.enforcing or not self._said_here(self.drafts[read.id]) else "author"

    def _own(self, reader: str | None, read: Read) -> bool:
        """Whether `reader` reads a message as its author."""
        author = self.drafts[read.id].metadata.author
        return author is not None and author == reader and not read.public

    def _encoding(self, recipe: Recipe, id: str, missing: Lacking) -> Parent:
        """An existing encoding, or the call that makes it, after the calls for all that it is made over. Uses an
        explicit stack, because a chain of messages may be as long as a game."""
        wanted: list[Key] = [(recipe, (id,))]
        while wanted:
            lacking = [key for key in self._below(wanted[-1]) if key not in self._there(key) and key not in missing]
            if wanted[-1] in self._there(wanted[-1]) or wanted[-1] in missing or not lacking:
                self._add_call(wanted.pop(), missing)
            else:
                wanted += reversed(lacking)
        key: Key = (recipe, (id,))
        return self._there(key)[key] if key in self._there(key) else missing[key].call

    def _add_call(self, key: Key, missing: Lacking) -> None:
        """Add the call of one encoding to `missing`. All that it is made over exists or is in `missing`."""
        if key in self._there(key) or key in missing:
            return
        recipe, (id,) = key
        make = self._audience_call if recipe == "audience" else self._author_call
        missing[key] = MissingEncoding(id, recipe, (), make(self.drafts[id], missing))
        self._asked.add(key)

    def _below(self, key: Key) -> list[Key]:
        """The encodings that the encoding of an existing message is made over."""
        recipe, (id,) = key
        return self._over(recipe, self.drafts[id])

    def _end(self, key: Key) -> int:
        """The position after an encoding that is read in place. It begins right after the rightmost encoding that it is
        made over."""
        wanted = [key]
        while wanted:
            below = self._below(wanted[-1])
            if lacking := [each for each in below if each not in self._ends]:
                wanted += lacking
            else:
                made = wanted.pop()
                self._ends[made] = max([self.bos, *(self._ends[e] for e in below)]) + self._lengths[made[1][0]]
        return self._ends[key]

    def _over(self, recipe: Recipe, draft: Draft) -> list[Key]:
        """The encodings, without repaired ones, that an encoding of this message is made over."""
        if recipe == "audience":
            return [("audience", (id,)) for id in self._public_parents(draft)]
        reads, caller = draft.reads.reads, draft.reads.caller
        choose = self._repair_of(draft.reads)
        if choose is not None and (isinstance(choose, ByAnchors) or not choose.keeps):
            reads = tuple(read for read in reads if self._own(caller, read))
        return [(self._recipe(caller, read), (read.id,)) for read in reads]

    def _author_call(self, draft: Draft, missing: Lacking) -> Prefill:
        """The call of E(m): over the context of its author."""
        call = self._prefill(draft, draft.own, self._context(draft.reads, missing))
        return replace(call, salt=self._salt(self._readers(draft)))

    def _audience_call(self, draft: Draft, missing: Lacking) -> Prefill:
        """The call of X(m): compact over X of those parents whose audience covers its own."""
        public = PlannedContext(self._public_encodings(draft, missing), self._default)
        return replace(self._prefill(draft, draft.metadata.audience, public), adapter=None)

    def _public_encodings(self, draft: Draft, missing: Lacking) -> tuple[Parent, ...]:
        return tuple(self._encoding("audience", id, missing) for id in self._public_parents(draft))

    def _public_parents(self, draft: Draft) -> list[str]:
        """The parents that all its readers may read, except a default prompt: see `is_default_prompt`."""
        audience = draft.metadata.audience
        parents = [read.id for read in draft.reads.reads if not is_default_prompt(read.id)]
        return [id for id in parents if self.drafts[id].metadata.audience.covers(audience)]

    def _positions(self, reads: ReadSet) -> tuple[Offsets, int | None]:
        """Absolute positions. None if the engine's default is the same."""
        places = places_of(reads)
        if self.reuse.in_place:
            return "made", None
        if all(place is None for place in places):
            return None, None
        if all(place is None or isinstance(place, int) for place in places):
            *asked, own = (place if isinstance(place, int) else None for place in places)
            return tuple(asked), own
        *offsets, new = absolute_positions(reads, self._lengths.read(reads), self.bos)
        return tuple(offsets), new

    # -- baseline ----------------------------------------------------------------------------------------

    def said_path(self, draft: Draft) -> tuple[str, ...]:
        """The path of a message that an author has just generated: that of its prompt, then the message as fed."""
        author, reads = draft.metadata.author, draft.reads.reads
        own = self._names(Read(draft.metadata.id), PromptPart((draft.metadata.id,)), author)
        return (*self._path(reads, author), own)

    def prompt_parts(self, reads: Sequence[Read]) -> tuple[PromptPart, ...]:
        """The parts of the prompt of a call with these reads, one per encoding."""
        return self._prompts.of([read.id for read in reads]).parts

    def _path(self, reads: Sequence[Read], caller: str | None) -> tuple[str, ...]:
        """The path that identifies a prompt: the names of its parts, in order."""
        known = {read.id: read for read in reads}
        return tuple(self._names(known[part.messages[0]], part, caller) for part in self.prompt_parts(reads))

    def _names(self, read: Read, part: PromptPart, caller: str | None) -> str:
        """The name of a part in a path. In the deterministic profile it marks what the caller generated itself, which
        only the caller reads as it was fed. Otherwise a reader whose prompt begins like the author's could get the
        author's own bits, which would reveal what the author had read in secret."""
        if not self.reuse.deterministic or part.tokens is not None:
            return part.name
        said = self.drafts[read.id].metadata.kind == "decode" and self._own(caller, read)
        return f"{part.name} as said" if said else part.name

    def _baseline(self, reads: Sequence[Read], caller: str | None) -> ResolvedContext:
        """Each part of the prompt over all parts before it, in the caller's own order. Offsets are ignored."""
        clearance, path = Audience(frozenset({caller} if caller else ())), self._path(reads, caller)
        prompt = self._prompts.of([read.id for read in reads])
        missing, parents = list[MissingEncoding](), list[Parent]()
        for end, part in enumerate(prompt.parts, start=1):
            known = self._private.get(("baseline", path[:end]))
            if known is None:
                call = self._part(part, clearance, PlannedContext(tuple(parents)))
                first, *also = part.messages
                missing.append(
                    MissingEncoding(
                        message=first,
                        recipe="baseline",
                        path=path[:end],
                        call=call,
                        also=tuple(also),
                        tokens=part.tokens,
                    )
                )
            parents.append(missing[-1].call if known is None else known)
        return ResolvedContext(tuple(missing), *PlannedContext(tuple(parents)), prompt.opening, prompt.apart)

    def _part(self, part: PromptPart, clearance: Audience, context: PlannedContext) -> Prefill:
        """The call that encodes a part of a prompt."""
        draft = self.drafts[part.messages[0]]
        call = self._prefill(draft, clearance, context)
        if part.tokens is None:
            return call
        also = [self.drafts[id].metadata for id in part.messages[1:]]
        guard = self._guard(draft, clearance, also)
        return replace(call, text="", tokens=None, opening=None, framed=part.tokens, guard=guard, extends=None)

    # -- calls -------------------------------------------------------------------------------------------

    def _prefill(self, draft: Draft, clearance: Audience, context: PlannedContext) -> Prefill:
        """The call that encodes a message of known words for all of `clearance`."""
        as_said, own = self.spells(draft), self.spelling is None or self.spelling.name is None
        return Prefill(
            draft.text if as_said else draft.whole,
            *context,
            role=draft.metadata.role,
            name=draft.name,
            tokens=draft.content if as_said else None,
            salt=self._salt(clearance),
            guard=self._guard(draft, clearance),
            extends=draft.begun.id if draft.begun is not None and own else None,
            adapter=self._adapter,
            ape=self._ape,
            framed=draft.framed if as_said else None,
            opening=draft.opening if as_said else None,
        )

    def _readers(self, draft: Draft) -> Audience:
        """Who reads E(m): its author, and under `deny` everybody who may read the message."""
        return draft.metadata.audience if self.reuse.leakage == "deny" else draft.own

    def _salt(self, clearance: Audience) -> str:
        """The class within which stored keys are shared: the agents who could notice that they existed already. The
        deterministic profile has its own classes, because otherwise last bits depend on other calls of a forward. So
        has each salt of a game, framed so that it is not a prefix of another one."""
        outer = self._class + (EXACT if self.reuse.deterministic else "")
        if self.reuse.mode == "baseline" or self.reuse.leakage == "audit":
            return outer
        return outer + json.dumps(clearance.to_json())

    def _guard(self, draft: Draft, clearance: Audience, also: Iterable[Metadata] = ()) -> Guard | None:
        if self.reuse.leakage == "audit":
            return None
        return self._monitor.guard(draft.metadata.id, draft.metadata.audience, clearance, also)
