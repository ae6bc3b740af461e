"""Reads rows of AgentLeak's scenarios (arXiv 2602.11510) and of PrivacyLens's data (arXiv 2409.00138) as tasks.

Independent of files.
"""

from __future__ import annotations

from typing import Any

from agentcho.tasks.private import MARK, Vault, Vignette
from agentcho.tasks.rows import Fields, RowError

LIKE_AGENTLEAK = "give rows as AgentLeak's scenarios have them"
LIKE_PRIVACYLENS = "give rows as PrivacyLens's main_data.json has them"


def agentleak(fields: Fields, id: str) -> Vault:
    """One of AgentLeak's scenarios. A field that is a list or a number is converted by `str`, as in AgentLeak's own
    runs; empty ones are left out. Raises `RowError`, which names a missing field."""
    records = tuple(_records(fields))
    allowed = _object(fields, "allowed_set", LIKE_AGENTLEAK)
    attack = fields.get("attack")
    enabled = isinstance(attack, dict) and attack.get("enabled")
    objective = _object(fields, "objective", LIKE_AGENTLEAK)
    return Vault(
        id=str(fields.get("scenario_id") or id),
        request=_text(objective, "objective.user_request", LIKE_AGENTLEAK),
        records=records,
        allowed=_names(allowed, "allowed_set.fields", LIKE_AGENTLEAK),
        forbidden=_names(allowed, "allowed_set.forbidden_fields", LIKE_AGENTLEAK),
        canaries=_canaries(fields, records),
        instruction=str(objective.get("privacy_instruction") or ""),
        vertical=str(fields.get("vertical") or ""),
        attack=str(attack.get("payload") or "") if isinstance(attack, dict) and enabled else "",
        attack_class=str(attack.get("attack_class") or "") if isinstance(attack, dict) and enabled else "",
    )


def _records(fields: Fields) -> list[tuple[str, dict[str, str]]]:
    found = _object(fields, "private_vault", LIKE_AGENTLEAK).get("records")
    if not isinstance(found, list) or not found:
        raise RowError(f"has no records in its field 'private_vault.records'; {LIKE_AGENTLEAK}")
    records: list[tuple[str, dict[str, str]]] = []
    for place, record in enumerate(found):
        own = record.get("fields") if isinstance(record, dict) else None
        if not isinstance(own, dict) or not own:
            raise RowError(f"has no 'fields' in its record 'private_vault.records[{place}]'; {LIKE_AGENTLEAK}")
        kind = record.get("record_type") or record.get("type") or "record"
        records.append((str(kind), {name: str(value) for name, value in own.items() if value not in (None, "", [])}))
    return records


def _canaries(fields: Fields, records: tuple[tuple[str, dict[str, str]], ...]) -> tuple[str, ...]:
    """The canaries in the vault, then others that the scenario names."""
    standing = [value for _, own in records for value in own.values() if MARK in value]
    evaluation = fields.get("evaluation")
    named = evaluation.get("canaries") if isinstance(evaluation, dict) else None
    return tuple(dict.fromkeys([*standing, *(each for each in named or () if isinstance(each, str) and each)]))


def privacylens(fields: Fields, id: str) -> Vignette:
    """One data point of PrivacyLens. Raises `RowError`, which names a missing field."""
    trajectory = _object(fields, "trajectory", LIKE_PRIVACYLENS)
    seed, vignette = (fields.get(name) for name in ("seed", "vignette"))
    seed, vignette = seed if isinstance(seed, dict) else {}, vignette if isinstance(vignette, dict) else {}
    sensitive = _names(trajectory, "trajectory.sensitive_info_items", LIKE_PRIVACYLENS)
    if not sensitive:
        raise RowError(f"has nothing in its field 'trajectory.sensitive_info_items'; {LIKE_PRIVACYLENS}")
    return Vignette(
        id=str(fields.get("name") or id),
        user=_text(trajectory, "trajectory.user_name", LIKE_PRIVACYLENS),
        instruction=_text(trajectory, "trajectory.user_instruction", LIKE_PRIVACYLENS),
        trajectory=_text(trajectory, "trajectory.executable_trajectory", LIKE_PRIVACYLENS),
        action=_text(trajectory, "trajectory.final_action", LIKE_PRIVACYLENS),
        sensitive=sensitive,
        data_type=str(seed.get("data_type") or ""),
        subject=str(seed.get("data_subject") or ""),
        recipient=str(vignette.get("data_recipient_concrete") or seed.get("data_recipient") or ""),
        principle=str(seed.get("transmission_principle") or ""),
    )


def _object(fields: Fields, name: str, remedy: str) -> Fields:
    found = fields.get(name)
    if not isinstance(found, dict):
        raise RowError(f"has no object in its field {name!r}; {remedy}")
    return found


def _text(fields: Fields, path: str, remedy: str) -> str:
    found: Any = fields.get(path.rpartition(".")[2])
    if not isinstance(found, str) or not found.strip():
        raise RowError(f"has no text in its field {path!r}; {remedy}")
    return found.strip()


def _names(fields: Fields, path: str, remedy: str) -> tuple[str, ...]:
    found: Any = fields.get(path.rpartition(".")[2])
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise RowError(f"has no list of texts in its field {path!r}; {remedy}")
    return tuple(found)
