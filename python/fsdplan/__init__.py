# SPDX-License-Identifier: Apache-2.0
"""Asks the program fsdplan, and gives its answers as dataclasses.

    import fsdplan
    best = fsdplan.query(model="llama3-8b", cluster="dgx-h100:1", gbs=128, seq=8192).results[0]
    print(best.step_ms, best.memory.device_mib, best.plan["mbs"])
    print(fsdplan.emit(plan=best.id))

Keywords are the options of the command, with _ for -: p_fits=0.99 is --p-fits=0.99. A dict is an option given
several times (set={"tp": 2, "sp": True} is --set=tp=2 --set=sp=on), so is a list of clusters; another list is joined
by commas. True is an option without a value. The program is the one in $FSDPLAN, or found in $PATH.

What the answers mean is in docs/schema; members that this package does not name are in `raw`."""
from ._answers import (Answer, Answers, Difference, Explanation, Front, Memory, Prediction, Row, Run, Size, Stage, Time,
                       Training)
from ._call import Error, call, diff, emit, explain, query, run, show, sim, sizes, sweep, validate, version

__all__ = [
    "Answer", "Answers", "Difference", "Error", "Explanation", "Front", "Memory", "Prediction", "Row", "Run", "Size",
    "Stage", "Time", "Training", "call", "diff", "emit", "explain", "query", "run", "show", "sim", "sizes", "sweep",
    "validate", "version",
]
