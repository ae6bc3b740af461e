"""Mutants of the encodings kept on disk after a run: what must not be stored, what must not be loaded, and who owns
it."""

from __future__ import annotations

from .mutant import Mutant

KEPT, ENGINES = "tests/test_kept.py", "tests/engine/test_kept.py"

OUTLIVING = (
    Mutant(
        "keep a private class",
        "the encoding of a secret would lie on disk after the run, and a later one could tell that it is there",
        "agentcho/provenance/labels.py",
        "return self._clearance == EVERYONE",
        "return True",
        (f"{ENGINES}::test_private_classes_die_with_the_run",),
    ),
    Mutant(
        "keep what no guard was asked about",
        "without labels it is not known who may read it: under audit its cone may hold anything",
        "agentcho/engine/sequence.py",
        "    everyones: bool = False",
        "    everyones: bool = True",
        (f"{ENGINES}::test_only_what_is_made_for_everyone_is_kept",),
    ),
    Mutant(
        "take a guard that says nothing for one that says yes",
        "any guard that admits a call would let its encoding outlive the run",
        "agentcho/protocol/call_validation.py",
        "return guard.admit(id, context) is True",
        "return guard.admit(id, context) is not False",
        (f"{ENGINES}::test_what_no_guard_says_to_be_everyones_is_neither_kept_nor_looked_for",),
    ),
    Mutant(
        "look for any encoding",
        "the time that a private message takes would tell whether a file of those words is there",
        "agentcho/engine/persistent_cache.py",
        "        if self.files is None or not _everyones(call):",
        "        if self.files is None:",
        (f"{ENGINES}::test_what_no_guard_says_to_be_everyones_is_neither_kept_nor_looked_for",),
    ),
    Mutant(
        "read a kept file that was changed",
        "keys that somebody wrote into it would be read as what a message says",
        "agentcho/engine/persistent_files.py",
        "if not hmac.compare_digest(self._tag(",
        "if len(data) <= TAG and not hmac.compare_digest(self._tag(",
        (f"{KEPT}::test_what_is_not_what_was_written_is_named_and_made_again",),
    ),
    Mutant(
        "a kept file may have another's name",
        "who can rename files would have one message read as another",
        "agentcho/engine/persistent_files.py",
        'self._digest(b"file", self._bound, name.encode(), data)',
        'self._digest(b"file", self._bound, data)',
        (f"{KEPT}::test_what_is_not_what_was_written_is_named_and_made_again",),
    ),
    Mutant(
        "one file for both profiles",
        "in the deterministic profile bits would be read that depend on what an earlier run did beside",
        "agentcho/engine/persistent_files.py",
        'b"exact" if exact else b"fast"',
        'b"exact"',
        (f"{KEPT}::test_another_call_profile_or_machine_has_another_file",),
    ),
    Mutant(
        "one file for all machines",
        "bits would be read that other threads, or another version of torch, computed",
        "agentcho/engine/persistent_files.py",
        '"beside": fingerprint.beside',
        '"beside": {}',
        (f"{KEPT}::test_another_call_profile_or_machine_has_another_file",),
    ),
    Mutant(
        "kept files that others may read",
        "other users of the machine would have what was said",
        "agentcho/engine/persistent_files.py",
        "os.open(fresh, MADE, 0o600, dir_fd=self._at)",
        "os.open(fresh, MADE, 0o644, dir_fd=self._at)",
        (f"{KEPT}::test_it_is_its_owners_alone_whatever_the_umask",),
    ),
    Mutant(
        "a kept folder that others may write to",
        "they could remove files, or see when each is used",
        "agentcho/engine/persistent_files.py",
        "if found.st_uid != os.getuid() or found.st_mode & 0o077:",
        "if found.st_uid != os.getuid():",
        (f"{KEPT}::test_a_folder_that_is_not_as_it_was_made_is_refused_early_and_late",),
    ),
    Mutant(
        "the key lies in the folder that it is for",
        "who has the folder could write files that are taken for true",
        "agentcho/engine/persistent_key.py",
        "if folder.resolve() in file.resolve().parents:",
        "if folder.resolve() == file.resolve():",
        (f"{KEPT}::test_a_key_in_the_folder_itself_or_nowhere_is_refused",),
    ),
    Mutant(
        "a key that others may read",
        "every user of the machine could write files that are taken for true",
        "agentcho/engine/persistent_key.py",
        "if found.st_mode & 0o077:",
        "if found.st_mode & 0o007:",
        (f"{KEPT}::test_a_key_that_others_may_use_or_that_is_none_is_refused",),
    ),
    Mutant(
        "remove what another process is writing",
        "two that keep in one folder would take each other's files away",
        "agentcho/engine/persistent_files.py",
        "                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        (f"{KEPT}::test_a_killed_process_leaves_nothing_half_and_a_living_one_is_left_alone",),
    ),
    Mutant(
        "begin from the folder of another model",
        "encodings of other weights would be looked for, and kept beside these",
        "agentcho/engine/persistent_files.py",
        "if model.get(name) != theirs.get(name)",
        'if name == "model" and model.get(name) != theirs.get(name)',
        (f"{KEPT}::test_a_folder_of_another_model_or_user_is_refused",),
    ),
)
