"""A strict JSON Schema of the parts of SARIF 2.1.0 that audits write: nothing else is allowed.

Written from the text of the standard (OASIS, Static Analysis Results Interchange Format 2.1.0, sections 3.13 to 3.58).
Independent of audits.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "minimum": -1}
LEVEL: Schema = {"enum": ["none", "note", "warning", "error"]}
KIND: Schema = {"enum": ["pass", "open", "informational", "notApplicable", "review", "fail"]}


def thing(*needed: str, **properties: Schema) -> Schema:
    """An object with these properties and no others."""
    properties["properties"] = {"type": "object"}
    return {"type": "object", "required": list(needed), "properties": properties, "additionalProperties": False}


def many(item: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": item, "minItems": least}


MESSAGE = thing("text", text=TEXT)
ARTIFACT = thing(uri={"type": "string", "format": "uri-reference"}, uriBaseId=TEXT)
REGION = thing(startLine={"type": "integer", "minimum": 1})
PHYSICAL = thing("artifactLocation", artifactLocation=ARTIFACT, region=REGION)
LOGICAL = thing(name=TEXT, fullyQualifiedName=TEXT, kind=TEXT)
LOCATION = thing(physicalLocation=PHYSICAL, logicalLocations=many(LOGICAL), message=MESSAGE)
STEP = thing(location=LOCATION, importance={"enum": ["important", "essential", "unimportant"]})
THREAD_FLOW = thing("locations", locations=many(STEP, 1))
CODE_FLOW = thing("threadFlows", threadFlows=many(THREAD_FLOW, 1))
SUPPRESSION = thing(
    "kind",
    kind={"enum": ["inSource", "external"]},
    status={"enum": ["accepted", "underReview", "rejected"]},
    justification=TEXT,
)
RESULT = thing(
    "message", ruleId=TEXT, ruleIndex=COUNT, kind=KIND, level=LEVEL, message=MESSAGE, locations=many(LOCATION),
    partialFingerprints={"type": "object", "additionalProperties": TEXT}, codeFlows=many(CODE_FLOW),
    occurrenceCount={"type": "integer", "minimum": 1}, suppressions=many(SUPPRESSION),
    baselineState={"enum": ["new", "unchanged", "updated", "absent"]},
)  # fmt: skip
RULE = thing(
    "id",
    id=TEXT,
    name=TEXT,
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=MESSAGE,
    defaultConfiguration=thing(level=LEVEL),
)
DRIVER = thing("name", name=TEXT, version=TEXT, semanticVersion=TEXT, rules=many(RULE))
NOTIFICATION = thing("message", message=MESSAGE, level=LEVEL)
INVOCATION = thing(
    "executionSuccessful",
    executionSuccessful={"type": "boolean"},
    exitCode={"type": "integer"},
    exitCodeDescription=TEXT,
    commandLine=TEXT,
    arguments=many({"type": "string"}),
    toolExecutionNotifications=many(NOTIFICATION),
)
RUN = thing(
    "tool",
    tool=thing("driver", driver=DRIVER),
    automationDetails=thing(id=TEXT),
    invocations=many(INVOCATION),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results=many(RESULT),
)
LOG = thing("version", "runs", version={"const": "2.1.0"}, runs=many(RUN))
LOG["properties"]["$schema"] = {"type": "string", "format": "uri"}
