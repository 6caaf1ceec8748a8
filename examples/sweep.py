#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How step time and memory follow from sequence length and recompute, as a table in CSV.

    PYTHONPATH=python python3 examples/sweep.py llama3-8b dgx-h100:1 128

Needs the package in python/ and the program; each line is one prediction."""
import csv
import sys

import fsdplan


def main() -> int:
    if len(sys.argv) != 4:
        print("usage: sweep.py MODEL CLUSTER GBS", file=sys.stderr)
        return 2
    model, cluster, gbs = sys.argv[1:]
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["seq", "recompute", "step_ms", "device_mib", "fits"])
    for seq in (2048, 4096, 8192):
        for recompute in ("none", "selective", "full"):
            try:
                p = fsdplan.sim(model=model, cluster=cluster, gbs=gbs, seq=seq, set={"recompute": recompute})
            except fsdplan.Error as error:
                print(f"seq={seq} recompute={recompute}: {error.message}", file=sys.stderr)
                return error.status
            table.writerow([seq, recompute, f"{p.step_ms:.1f}", f"{p.memory.device_mib:.0f}", "yes" if p.fits else "no"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
