# SPDX-License-Identifier: Apache-2.0
"""Answers as dataclasses. Each is made of a JSON object by the names and types of its members; what it does not name
stays in `raw`, and what an older program does not print is None."""
from __future__ import annotations

import dataclasses
import typing
from typing import Any, Dict, List, Optional, Union


@dataclasses.dataclass(frozen=True)
class _Object:
    raw: Dict[str, Any] = dataclasses.field(repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class Memory(_Object):
    """MiB of one device."""
    allocated_mib: float
    max_allocated_mib: float
    reserved_mib: float
    device_mib: float
    host_mib: Optional[float]
    peak_op: str
    by_category: Dict[str, float]


@dataclasses.dataclass(frozen=True)
class Time(_Object):
    """Where a step goes, in milliseconds."""
    compute_ms: float
    exposed_ms: Dict[str, float]
    host_ms: float
    idle_ms: float
    compute: List[Dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Stage(_Object):
    """A stage of a pipeline."""
    first_layer: int
    layers: int
    compute_ms: float
    exposed_ms: float
    idle_ms: float
    device_mib: float


@dataclasses.dataclass(frozen=True)
class Training(_Object):
    """A run of so many tokens."""
    days: float
    gpu_hours: float
    cost_usd: Optional[float]


@dataclasses.dataclass(frozen=True)
class Prediction(_Object):
    """What a plan costs. `plan` has every field by name, as words that --set takes."""
    plan: Dict[str, str]
    step_ms: float
    tokens_per_s_per_gpu: float
    tflops_per_gpu: float
    mfu: float
    uncertainty_pct: Optional[float]
    p_fits: Optional[float]
    fits: bool
    memory_limit_mib: float
    memory: Memory
    time: Time
    hazards: List[str]
    stages: Optional[List[Stage]]
    training: Optional[Training]


@dataclasses.dataclass(frozen=True)
class Answer(Prediction):
    """One of the best plans; `id` is what plan= takes, None where nothing was stored."""
    rank: int
    id: Optional[str]
    group: int
    bound_by: str
    why: str
    free: List[str]


@dataclasses.dataclass(frozen=True)
class Front(_Object):
    """A plan that no other beats in memory and time."""
    step_ms: float
    needed_mib: float
    device_mib: float
    plan: str


@dataclasses.dataclass(frozen=True)
class Answers(_Object):
    """The best plans, best first."""
    complete: bool
    results: List[Answer]
    pareto: List[Front]
    decided: Dict[str, int]
    seconds: float


@dataclasses.dataclass(frozen=True)
class Explanation(_Object):
    """A plan beside the best. `explained` is None where it is illegal, by the rule in `illegal`."""
    explained: Optional[Prediction]
    illegal: Optional[str]
    best: Optional[Prediction]
    why: str
    changes: List[Dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Size(_Object):
    """The best plan of one of several sizes, clusters or stacks; None where there is none, with the reason in `note`."""
    cluster: str
    gpus: Optional[int]
    id: Optional[str]
    stack: Optional[str]
    step_ms: Optional[float]
    tokens_per_s: Optional[float]
    mfu: Optional[float]
    device_mib: Optional[float]
    days: Optional[float]
    cost_usd: Optional[float]
    note: Optional[str]
    plan: Optional[str]


@dataclasses.dataclass(frozen=True)
class Row(_Object):
    """A plan of a sweep; fields that were swept and are no column are in `note`."""
    strategy: str
    mbs: Optional[int]
    step_ms: Optional[float]
    tokens_per_s_per_gpu: Optional[float]
    mfu: Optional[float]
    device_mib: Optional[float]
    fits: Optional[str]
    p_fits: Optional[float]
    note: Optional[str]


@dataclasses.dataclass(frozen=True)
class Difference(_Object):
    """One thing that two plans are compared in."""
    what: str
    a: Union[float, str, None]
    b: Union[float, str, None]
    change: Union[float, str, None]


@dataclasses.dataclass(frozen=True)
class Run(_Object):
    """A training run."""
    losses: List[Optional[float]]
    first_step: int
    step_ms: Dict[str, float]
    tokens_per_s: float
    memory: Memory
    run_id: Optional[int]


def make(kind: Any, value: Any) -> Any:
    """A value of JSON as `kind`, an annotation above."""
    if value is None:
        return None
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind) if field.name != "raw"]
        return kind(raw=value, **{name: make(hints[name], value.get(name)) for name in names})
    kinds = getattr(kind, "__args__", ())
    if getattr(kind, "__origin__", None) is list:
        return [make(kinds[0], element) for element in value]
    if getattr(kind, "__origin__", None) is Union:
        return make(next(k for k in kinds if k is not type(None)), value)
    return value
