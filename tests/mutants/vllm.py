"""Mutants of the vLLM engine: what its connector fills, what it refuses, how a request continues."""

from __future__ import annotations

from .mutant import Mutant

CONNECTOR = "tests/test_vllm_connector.py"
ENGINE = "tests/test_vllm_engine.py"
PARALLEL = "tests/test_vllm_parallel.py"
OF = "agentcho/integrations/vllm"

VLLM = (
    Mutant(
        "what vLLM went around is computed",
        "a request would be answered over the ids that stand in its slots, as a plain prompt",
        f"{OF}/connector.py",
        "if num_external_tokens != job.before:",
        "if False:",
        (CONNECTOR,),
    ),
    Mutant(
        "slots that were never filled are taken for those of a request that paused",
        "it would be computed over whatever the blocks held before, of other agents too",
        f"{OF}/connector.py",
        "if request.num_computed_tokens and job.written == job.expected():",
        "if request.num_computed_tokens:",
        (CONNECTOR,),
    ),
    Mutant(
        "a load that was refused is not told to vLLM",
        "the request would be computed over slots that nobody filled",
        f"{OF}/connector.py",
        "self._refused.update(job.blocks)",
        "pass",
        (CONNECTOR,),
    ),
    Mutant(
        "no guard is asked beside the tensors",
        "what was allowed at admission would be read after it no longer is",
        f"{OF}/jobs.py",
        '                raise RuntimeError(f"encoding {piece.id} is not in the store")\n        self.asks()',
        '                raise RuntimeError(f"encoding {piece.id} is not in the store")',
        (CONNECTOR, ENGINE),
    ),
    Mutant(
        "less than all that is read may be written",
        "slots would keep what blocks held before",
        f"{OF}/jobs.py",
        "if job.written != job.expected():",
        "if False:",
        (CONNECTOR,),
    ),
    Mutant(
        "blocks of a preempted request stay the first ones",
        "its encoding would be stored out of blocks that are another agent's by then",
        f"{OF}/connector.py",
        "[*([] if name in cached.resumed_req_ids else job.blocks), *added[0]]",
        "[*job.blocks, *added[0]]",
        (CONNECTOR,),
    ),
    Mutant(
        "keys are stored as they stand in slots",
        "each later reader would read them at other positions",
        f"{OF}/mover.py",
        "rotation.turn(keys.transpose(0, 1), save.turn)",
        "keys.transpose(0, 1)",
        (ENGINE,),
    ),
    Mutant(
        "keys are read where they were encoded",
        "messages would be read in the order in which they were said, whatever the call asked for",
        f"{OF}/runner.py",
        "Read(piece.entry.length, piece.shift + job.shift, offset=piece.offset)",
        "Read(piece.entry.length, job.shift, offset=piece.offset)",
        (ENGINE,),
    ),
    Mutant(
        "a token that pauses a request is lost where it was drawn",
        "messages with that token would lack it",
        f"{OF}/jobs.py",
        "if len(self.known) == 1 and self.known[0] != pause:",
        "if len(self.known) == 1:",
        (ENGINE,),
    ),
    Mutant(
        "a shadow keeps its blocks from those who speak",
        "where the cache is full nobody could go on",
        f"{OF}/scheduler.py",
        "if following and self._tight:",
        "if False:",
        (ENGINE,),
    ),
    Mutant(
        "a shadow ends with the block that it has",
        "readers of the audience would not read the end of a message",
        f"{OF}/scheduler.py",
        "job.follows, job.done = not ended, not call.lacking",
        "job.follows, job.done = False, not call.lacking",
        (ENGINE,),
    ),
    Mutant(
        "turning is not measured",
        "a model whose keys turn otherwise than its table says would be served",
        f"{OF}/gate.py",
        "if not errors[worst] <= tolerance:",
        "if False:",
        ("tests/test_vllm_gate.py",),
    ),
    Mutant(
        "no guard is asked before ranks are told what to write",
        "what was allowed at admission would be read after it no longer is",
        f"{OF}/parallel/ranks.py",
        "                job.check()\n",
        "",
        (PARALLEL,),
    ),
    Mutant(
        "one rank may write less than is read",
        "some heads of a request would be computed over what blocks held before",
        f"{OF}/parallel/ranks.py",
        "if written != job.expected():",
        "if False:",
        (PARALLEL,),
    ),
    Mutant(
        "a request that no rank told of goes on",
        "it would be computed over whatever its slots hold",
        f"{OF}/parallel/ranks.py",
        'job.error = job.error or RuntimeError("no rank has told what it wrote")',
        "pass",
        (PARALLEL,),
    ),
    Mutant(
        "every rank with a copy of a head stores it",
        "two processes would write the same rows at once",
        f"{OF}/parallel/shares.py",
        "return cls(rank // copies, 1, rank % copies == 0)",
        "return cls(rank // copies, 1, True)",
        (PARALLEL,),
    ),
    Mutant(
        "stages all begin with the first layer",
        "later layers would read the keys of the first ones",
        f"{OF}/parallel/shares.py",
        "for pool in shared.keys[first:]]",
        "for pool in shared.keys]",
        (PARALLEL,),
    ),
    Mutant(
        "a draw that fails leaves its forward behind",
        "the next step of every rank would fail",
        f"{OF}/parallel/ranks.py",
        'self._call("agentcho_forget")',
        "pass",
        (PARALLEL,),
    ),
)
