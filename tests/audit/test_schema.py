"""The JSON of a report and its published schema.

`python -m tests.audit.test_schema` rewrites the schema after an intended change of the model.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from agentcho.audit.report import AuditReport

from . import sample

SCHEMA = Path(__file__).parent.parent.parent / "docs" / "audit.schema.json"
CASES = (sample.report(), sample.report(reveal=True), sample.clean(), sample.inconclusive())


def current() -> str:
    """The schema of the current model."""
    schema = AuditReport.model_json_schema(mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "agentcho-audit/1"}
    return json.dumps(head | schema, indent=2) + "\n"


def test_the_published_schema_is_that_of_the_model() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == current(), "run: python -m tests.audit.test_schema"


@pytest.mark.parametrize("report", CASES, ids=lambda report: report.conclusion)
def test_reports_fit_the_schema_and_come_back_as_they_were(report: AuditReport) -> None:
    text = report.model_dump_json(indent=2)
    Draft202012Validator(json.loads(current())).validate(json.loads(text))
    assert AuditReport.model_validate_json(text) == report


def test_what_is_no_part_of_the_schema_is_refused() -> None:
    line = json.loads(sample.clean().model_dump_json()) | {"colour": "red"}
    assert not Draft202012Validator(json.loads(current())).is_valid(line)


def test_words_are_in_it_only_when_they_are_revealed() -> None:
    assert sample.SENTINEL not in sample.report().model_dump_json()
    assert sample.SENTINEL in sample.report(reveal=True).model_dump_json()


if __name__ == "__main__":
    SCHEMA.write_text(current(), encoding="utf-8")
