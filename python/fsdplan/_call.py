# SPDX-License-Identifier: Apache-2.0
"""Commands as functions."""
from __future__ import annotations

import json
import os
import subprocess
from typing import Any, List

from ._answers import Answers, Difference, Explanation, Prediction, Row, Run, Size, make


class Error(Exception):
    """The program gave no answer. `status` is its exit status: 1 failed, 2 wrong usage, 3 nothing fits; `message`
    is what it said."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return ",".join(_word(v) for v in value)
    return str(value)


def _options(keywords: dict) -> List[str]:
    words = []
    for name, value in keywords.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, dict):
            words += [option + "=" + key + ("" if v is None else "=" + _word(v)) for key, v in value.items()]
        elif name == "cluster" and isinstance(value, (list, tuple)):
            words += [option + "=" + _word(v) for v in value]
        else:
            words.append(option + "=" + _word(value))
    return words


def _start(command: str, words: tuple, keywords: dict) -> subprocess.CompletedProcess:
    program = os.environ.get("FSDPLAN", "fsdplan")
    line = [program, command, *_options(keywords), *map(str, words)]
    try:
        return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Error(1, f"{program}: {error.strerror}") from error


def _fail(done: subprocess.CompletedProcess) -> Error:
    lines = done.stderr.strip().splitlines() or ["no answer"]
    return Error(done.returncode, lines[-1][len("fsdplan: "):] if lines[-1].startswith("fsdplan: ") else lines[-1])


def call(command: str, *words: str, **keywords: Any) -> Any:
    """Any command that prints JSON; what it printed. A plan that does not fit is an answer, too."""
    done = _start(command, words, {**keywords, "format": "json"})
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise _fail(done) from None
    if isinstance(answer, dict) and "error" in answer:
        raise Error(answer["error"]["status"], answer["error"]["message"])
    return answer


def _text(command: str, *words: str, **keywords: Any) -> str:
    done = _start(command, words, keywords)
    if done.returncode != 0:
        raise _fail(done)
    return done.stdout


def query(**keywords: Any) -> Answers:
    """The best plans of one model on one cluster, best first."""
    return make(Answers, call("query", **keywords))


def explain(plan: str, **keywords: Any) -> Explanation:
    """Why `plan`, as --explain takes it, is not the best."""
    return make(Explanation, call("query", explain=plan, **keywords))


def sizes(**keywords: Any) -> List[Size]:
    """The best plan of each of several sizes (gpus="8..64"), clusters (a list) or stacks."""
    return make(List[Size], call("query", **keywords))


def sim(**keywords: Any) -> Prediction:
    """What one plan costs."""
    return make(Prediction, call("sim", **keywords))


def sweep(over: dict, **keywords: Any) -> List[Row]:
    """What plans cost: every combination of values, such as {"mbs": [1, 2], "strategy": None}; None is all there are."""
    return make(List[Row], call("sim", sweep=over, **keywords))


def diff(*plans: str, **keywords: Any) -> List[Difference]:
    """Two plans side by side."""
    return make(List[Difference], call("diff", *plans, **keywords))


def run(**keywords: Any) -> Run:
    """Trains here."""
    return make(Run, call("run", **keywords))


def show(**keywords: Any) -> Any:
    """A model, a cluster, a plan or a list, as JSON has it."""
    return call("show", **keywords)


def validate(*tables: str, **keywords: Any) -> Any:
    """Predicted against measured, as JSON has it."""
    return call("validate", *tables, **keywords)


def emit(target: "str | None" = None, **keywords: Any) -> str:
    """What starts a plan, as text; `target` is what --as takes."""
    return _text("emit", **({"as": target} if target else {}), **keywords)


def version() -> str:
    """The program's."""
    return _text("--version").split()[-1]
