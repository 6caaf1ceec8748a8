#!/bin/sh
# The Python package gives what the program prints, its errors with status and message, and the examples
# that read JSON and CSV run. Skipped where there is no Python 3.8.
set -eu
unset FSDPLAN_DEBUG_CHECK # which checks every schedule of a search: other tests do it for the same plans
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit (sys.version_info < (3, 8))' 2>/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export PYTHONPATH="$top_srcdir/python" PYTHONDONTWRITEBYTECODE=1 XDG_DATA_HOME="$work/data"

"$python" - <<'END'
import dataclasses, json, subprocess, typing
import fsdplan

job = dict(model="llama-tiny", cluster="h100-80gb:2", gbs=8, seq=128)


def printed(command, *words):
    line = ["fsdplan", command, "--model=llama-tiny", "--cluster=h100-80gb:2", "--gbs=8", "--seq=128", *words,
            "--format=json"]
    return json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)


def same(answer, raw):
    """Every member that the package names is what the program printed, down to the leaves."""
    if dataclasses.is_dataclass(answer):
        assert answer.raw == raw
        for field in dataclasses.fields(answer):
            if field.name != "raw":
                same(getattr(answer, field.name), raw.get(field.name))
    elif isinstance(answer, list) and answer and dataclasses.is_dataclass(answer[0]):
        assert len(answer) == len(raw)
        for one, other in zip(answer, raw):
            same(one, other)
    else:
        assert answer == raw, (answer, raw)


same(fsdplan.sim(**job, set={"tp": 2, "sp": True}, tokens="1B"), printed("sim", "--set=tp=2", "--set=sp=on", "--tokens=1B"))
same(fsdplan.sweep({"mbs": [1, 2], "strategy": None}, **job), printed("sim", "--sweep=mbs=1,2", "--sweep=strategy"))
same(fsdplan.diff(**job, to={"mbs": 2}), printed("diff", "--to=mbs=2"))
same(fsdplan.explain("mbs=2", **job), printed("query", "--explain=mbs=2"))
same(fsdplan.sizes(**job, gpus=[1, 2]), printed("query", "--gpus=1,2"))
answers = fsdplan.query(**job, top=2)
raw = printed("query", "--top=2")
same(answers.results, raw["results"])
same(answers.pareto, raw["pareto"])
assert answers.complete and answers.results[0].rank == 1 and answers.results[0].fits is True
assert fsdplan.emit(plan=answers.results[0].id).startswith("#!/bin/bash")
assert "fully_shard" in fsdplan.emit("megatron_fsdp", plan=answers.results[0].id)
pipeline = fsdplan.sim(model="llama3-8b", cluster="dgx-h100:1", gbs=8, set={"stack": "megatron", "strategy": "optim", "pp": 2})
assert len(pipeline.stages) == 2 and pipeline.stages[1].first_layer == 16
assert fsdplan.sim(model="llama3-70b", cluster="dgx-h100:1", gbs=8).fits is False
run = fsdplan.run(model="llama-tiny", gbs=4, seq=16, steps=2, db=":memory:")
assert len(run.losses) == 2 and run.run_id is None and run.memory.device_mib > 0
assert fsdplan.show(model="llama3-8b")["parameters"] == 8030261248
assert [row["gpus"] for row in fsdplan.call("query", **job, gpus=[1, 2])] == [1, 2]

for status, words, wanted in [
        (2, lambda: fsdplan.sim(**job, set={"strategy": "none"}), "strategy"),
        (2, lambda: fsdplan.sim(**job, nonsense=1), "nonsense"),
        (2, lambda: fsdplan.emit(model="none"), "model"),
        (3, lambda: fsdplan.query(model="llama3-70b", cluster="h100-80gb:1", gbs=8), "nothing fits")]:
    try:
        words()
    except fsdplan.Error as error:
        assert error.status == status and wanted in error.message and str(error) == error.message, error
    else:
        raise AssertionError(wanted)
END

# A program that is missing; one that prints no JSON.
FSDPLAN=$work/none "$python" -c '
import fsdplan
try: fsdplan.show()
except fsdplan.Error as error: assert error.status == 1 and "none" in error.message, error
else: raise AssertionError'
printf '#!/bin/sh\necho hello; echo "fsdplan: broken" >&2; exit 1\n' >other
chmod +x other
FSDPLAN=$work/other "$python" -c '
import fsdplan
try: fsdplan.show()
except fsdplan.Error as error: assert error.status == 1 and error.message == "broken", error
else: raise AssertionError'

"$python" "$top_srcdir/examples/sweep.py" none dgx-h100:1 128 >/dev/null 2>err && exit 1
grep -q "recompute=none: model: 'none'" err
"$python" "$top_srcdir/examples/sweep.py" llama3-8b dgx-h100:1 128 >sweep.csv
test "$(wc -l <sweep.csv)" -eq 10 && grep -qE '^8192,none,[0-9.]+,[0-9]+,yes$' sweep.csv
sh "$top_srcdir/examples/sweep.sh" llama3-8b dgx-h100:1 128 >best.csv
test "$(wc -l <best.csv)" -eq 4 && grep -q '^8192,1,,' best.csv
# The package that pip makes, where it can without a network.
if "$python" -c 'import pip, setuptools, wheel' 2>/dev/null; then
  cp -r "$top_srcdir/python" tree && chmod -R u+w tree
  "$python" -m pip install -q --no-index --no-deps --no-build-isolation --target installed ./tree >pip.log 2>&1 ||
    { cat pip.log; exit 1; }
  PYTHONPATH=$work/installed "$python" -c 'import fsdplan; assert "installed" in fsdplan.__file__; fsdplan.version ()'
fi
