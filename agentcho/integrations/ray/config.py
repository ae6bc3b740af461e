"""Options of a command for the cluster that plays its games."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field, field_validator

ON = (
    "Play on a Ray cluster: ray (a new one on this machine) or ray:HOST:PORT. --retries then "
    "also counts workers that die (default 2)."
)
WORKERS = (
    "Number of worker processes, each with its own engine.  [default: one per machine, or as many as the GPUs allow]"
)
GPUS = "GPUs per worker; with 0.5, two workers share one.  [default: 1 if there are GPUs and --device allows them]"


class ClusterConfig(BaseModel):
    """The cluster that plays the games, and its workers. With `on` None, this process plays them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: str | None = Field(
        default=None, description=ON, json_schema_extra={"metavar": "ray[:ADDRESS]", "panel": "Cluster"}
    )
    workers: int | None = Field(
        default=None, ge=1, le=10_000, description=WORKERS, json_schema_extra={"panel": "More on the cluster"}
    )
    gpus_per_worker: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description=GPUS, json_schema_extra={"panel": "More on the cluster"}
    )

    @field_validator("on")
    @classmethod
    def _known(cls, on: str | None) -> str | None:
        if on is None or on == "ray":
            return on
        kind, _, address = on.partition(":")
        if kind != "ray" or not (address == "auto" or re.fullmatch(r"\[?[\w.:%-]+\]?:[0-9]{1,5}", address)):
            raise ValueError(f"{on!r} is not ray, ray:auto or ray:HOST:PORT (the address of the head node)")
        return on

    @property
    def address(self) -> str | None:
        """The address of the cluster, or "auto". None: a new cluster is made."""
        return None if self.on in (None, "ray") else (self.on or "").partition(":")[2]
