-- The user's store, version 5. A store is known by its application_id, its version is
-- user_version; db/store.c sets both.
--
-- Units are in the names: _ns nanoseconds, _ms milliseconds, _bytes bytes, _mib 2^20 bytes,
-- _pct per cent. Times within a step count from its start. Names of ops, streams and categories
-- are those of planner/schedule/op-list.h. `created` is UTC, ISO 8601; `uid` is the same in every store
-- that holds the row, `id` is this store's own number.
--
-- What was measured is added and deleted, never changed: the triggers at the end see to it.

-- What was planned, in canonical text: enough to lower the schedule again. Lives as long as a run or
-- an answer names it.
CREATE TABLE plan (
  id           INTEGER PRIMARY KEY AUTOINCREMENT, -- people write it down, as @7: never used twice
  hash         TEXT NOT NULL,           -- of plan_text alone, so not unique here
  model_text   TEXT NOT NULL,
  cluster_text TEXT NOT NULL,
  plan_text    TEXT NOT NULL
) STRICT;

CREATE INDEX plan_by_hash ON plan (hash);

-- One execution. With its plan, all it takes to repeat it. Version 1 did not record pid, data and
-- settings: only its rows may lack them.
CREATE TABLE run (
  id                INTEGER PRIMARY KEY AUTOINCREMENT, -- people write it down: never used twice
  uid               TEXT NOT NULL UNIQUE,
  created           TEXT NOT NULL,
  program_version   TEXT NOT NULL,      -- git describe
  backend           TEXT NOT NULL,      -- kernels: cpu, cuda
  comm              TEXT NOT NULL,      -- collectives: self, threads, mpi, nccl
  device            TEXT NOT NULL,
  host              TEXT NOT NULL,
  pid               INTEGER,            -- of rank 0 on that host: is it still at work?
  plan_id           INTEGER NOT NULL REFERENCES plan (id),
  schedule_hash     TEXT NOT NULL,
  ranks             INTEGER NOT NULL CHECK (ranks > 0),
  steps             INTEGER NOT NULL CHECK (steps >= 0), -- asked for; run_step holds those done
  seed              INTEGER NOT NULL,   -- of initial weights and data
  data              TEXT,               -- what was trained on: synthetic
  settings          TEXT,               -- lines NAME=VALUE: learning rate and all else no plan has
  params_id         TEXT,               -- parameter set of the prediction; NULL: none was made
  state             TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed')),
  message           TEXT,               -- why it failed, or what is worth knowing of it
  predicted_step_ns INTEGER NOT NULL CHECK (predicted_step_ns >= 0), -- 0: unknown
  measured_step_ns  INTEGER NOT NULL CHECK (measured_step_ns >= 0),  -- median; 0: unknown
  CHECK (uid LIKE 'v1 %' OR (pid IS NOT NULL AND data IS NOT NULL AND settings IS NOT NULL))
) STRICT;

CREATE INDEX run_by_plan ON run (plan_id);

-- One training step of a run, as rank 0 saw it.
CREATE TABLE run_step (
  run_id    INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  step      INTEGER NOT NULL CHECK (step >= 0),
  loss      REAL,                       -- mean per token; NULL: not a number
  grad_norm REAL,                       -- before clipping; NULL: not a number
  step_ns   INTEGER NOT NULL CHECK (step_ns >= 0),
  eval_loss REAL,                       -- mean per token; NULL: none followed, or not a number
  PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

-- One steady step of one rank: simulated, or measured.
CREATE TABLE trace (
  id                  INTEGER PRIMARY KEY,
  run_id              INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  origin              TEXT NOT NULL,    -- sim, or the backend
  rank                INTEGER NOT NULL CHECK (rank >= 0),
  step_ns             INTEGER NOT NULL, -- from one step to the next; the sum of the next five and the last
  compute_ns          INTEGER NOT NULL,
  exposed_gather_ns   INTEGER NOT NULL,
  exposed_reduce_ns   INTEGER NOT NULL,
  host_ns             INTEGER NOT NULL,
  idle_ns             INTEGER NOT NULL,
  allocated_bytes     INTEGER NOT NULL CHECK (allocated_bytes >= 0),     -- live between steps
  max_allocated_bytes INTEGER NOT NULL CHECK (max_allocated_bytes >= 0), -- at the fullest moment
  reserved_bytes      INTEGER NOT NULL CHECK (reserved_bytes >= 0),      -- held by the allocator
  device_bytes        INTEGER NOT NULL CHECK (device_bytes >= 0),  -- with context and libraries
  peak_node           INTEGER NOT NULL, -- the op that reaches max_allocated_bytes
  peak_unit           INTEGER NOT NULL,
  exposed_tensor_ns   INTEGER NOT NULL DEFAULT 0, -- parts of step_ns, both: new in version 2
  exposed_copy_ns     INTEGER NOT NULL DEFAULT 0,
  UNIQUE (run_id, origin, rank)
) STRICT;

-- Spans of a trace in issue order.
CREATE TABLE trace_op (
  trace_id INTEGER NOT NULL REFERENCES trace (id) ON DELETE CASCADE,
  position INTEGER NOT NULL,            -- in issue order, from 0
  node     INTEGER NOT NULL,            -- of the schedule
  unit     INTEGER NOT NULL,            -- -1: belongs to none
  op       TEXT NOT NULL,
  stream   TEXT NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns   INTEGER NOT NULL,
  PRIMARY KEY (trace_id, position)
) STRICT, WITHOUT ROWID;

-- Memory of a trace by category, at two moments.
CREATE TABLE trace_memory (
  trace_id      INTEGER NOT NULL REFERENCES trace (id) ON DELETE CASCADE,
  category      TEXT NOT NULL,
  peak_bytes    INTEGER NOT NULL CHECK (peak_bytes >= 0),    -- at the trace's fullest moment
  resting_bytes INTEGER NOT NULL CHECK (resting_bytes >= 0), -- between steps
  PRIMARY KEY (trace_id, category)
) STRICT, WITHOUT ROWID;

-- Every change of live memory during a trace, in issue order.
CREATE TABLE trace_sample (
  trace_id   INTEGER NOT NULL REFERENCES trace (id) ON DELETE CASCADE,
  position   INTEGER NOT NULL,          -- in issue order, from 0
  span       INTEGER NOT NULL,          -- spans of the trace issued before it
  category   TEXT NOT NULL,
  at_ns      INTEGER NOT NULL,          -- the host's clock
  live_bytes INTEGER NOT NULL,          -- of that category, after the change
  PRIMARY KEY (trace_id, position)
) STRICT, WITHOUT ROWID;

-- What was asked of the planner. The same question by the same program is one row.
CREATE TABLE query (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  uid             TEXT NOT NULL UNIQUE,
  created         TEXT NOT NULL,
  program_version TEXT NOT NULL,
  question        TEXT NOT NULL,        -- the words of the command line, quoted for a shell
  params_id       TEXT NOT NULL         -- parameter set of the predictions
) STRICT;

-- A plan that was printed as an answer, with what was predicted then.
CREATE TABLE answer (
  query_id     INTEGER NOT NULL REFERENCES query (id) ON DELETE CASCADE,
  place        INTEGER NOT NULL CHECK (place > 0), -- in what was printed
  plan_id      INTEGER NOT NULL REFERENCES plan (id),
  step_ns      INTEGER NOT NULL CHECK (step_ns >= 0),
  device_bytes INTEGER NOT NULL CHECK (device_bytes >= 0),
  PRIMARY KEY (query_id, place)
) STRICT, WITHOUT ROWID;

CREATE INDEX answer_by_plan ON answer (plan_id);

-- A cluster of the user's own.
CREATE TABLE cluster (
  name    TEXT PRIMARY KEY NOT NULL,
  text    TEXT NOT NULL,                -- canonical, as planner/cluster prints it
  source  TEXT NOT NULL,                -- where its figures are from
  created TEXT NOT NULL
) STRICT;

-- A training configuration that somebody measured, here or elsewhere. NULL: not known.
CREATE TABLE run_measurement (
  id                   INTEGER PRIMARY KEY AUTOINCREMENT,
  created              TEXT NOT NULL,   -- when it came into this store
  source               TEXT NOT NULL,   -- who published it, where
  row_id               TEXT NOT NULL,   -- its name there
  row_group            TEXT NOT NULL,   -- repeats and close variants, never to be separated
  use                  TEXT NOT NULL CHECK (use IN ('fit', 'report')), -- never fitted to: report
  quality              TEXT NOT NULL,   -- A complete and checked ... D barely usable
  stack                TEXT NOT NULL,
  stack_date           TEXT,            -- month of the software, or its release
  model_text           TEXT NOT NULL,
  cluster_text         TEXT,            -- where it is known; else the next three
  gpu                  TEXT,
  gpus                 INTEGER CHECK (gpus > 0), -- in all
  nodes                INTEGER CHECK (nodes > 0),
  plan_text            TEXT NOT NULL,
  step_ms              REAL CHECK (step_ms > 0),
  tokens_per_s_per_gpu REAL CHECK (tokens_per_s_per_gpu > 0),
  allocated_mib        REAL CHECK (allocated_mib >= 0),     -- live between steps
  max_allocated_mib    REAL CHECK (max_allocated_mib >= 0), -- at the fullest moment
  reserved_mib         REAL CHECK (reserved_mib >= 0),      -- held by the allocator
  device_mib           REAL CHECK (device_mib >= 0),        -- with context and libraries
  oom                  TEXT CHECK (oom IN ('yes', 'no')),
  time_ok              TEXT NOT NULL CHECK (time_ok IN ('yes', 'no')),   -- fit for scoring
  memory_ok            TEXT NOT NULL CHECK (memory_ok IN ('yes', 'no')),
  notes                TEXT NOT NULL,
  UNIQUE (source, row_id),
  CHECK (cluster_text IS NOT NULL OR (gpu IS NOT NULL AND gpus IS NOT NULL)),
  CHECK (coalesce (step_ms, tokens_per_s_per_gpu, allocated_mib, max_allocated_mib, reserved_mib,
                   device_mib, oom) IS NOT NULL)
) STRICT;

-- One op, computing or collective, at one size, timed alone on this machine or one like it.
CREATE TABLE op_measurement (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  uid             TEXT NOT NULL UNIQUE,
  created         TEXT NOT NULL,
  program_version TEXT NOT NULL,
  host            TEXT NOT NULL,
  machine         TEXT NOT NULL,        -- fingerprint: device, or devices with their links
  backend         TEXT NOT NULL,
  comm            TEXT NOT NULL,        -- self for an op that computes
  ranks           INTEGER NOT NULL CHECK (ranks > 0),
  op              TEXT NOT NULL,
  shape           TEXT NOT NULL,        -- NAME=SIZE ..., all that its duration depends on
  format          TEXT NOT NULL,        -- of its operands
  median_ns       INTEGER NOT NULL CHECK (median_ns > 0),
  spread_ns       INTEGER NOT NULL CHECK (spread_ns >= 0), -- from the 10th to the 90th percentile
  samples         INTEGER NOT NULL CHECK (samples > 0)     -- after warming up
) STRICT;

-- Workspace that cuDNN wants for attention of a shape, in its own words: it was asked, without a GPU
-- or on one. Of a shape, version and architecture there is one answer.
CREATE TABLE attention_workspace (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  created         TEXT NOT NULL,
  program_version TEXT NOT NULL,
  cudnn           INTEGER NOT NULL CHECK (cudnn > 0), -- its version as it numbers itself: 91900
  architecture    TEXT NOT NULL,        -- compute capability: 9.0
  pass            TEXT NOT NULL CHECK (pass IN ('forward', 'backward', 'deterministic')),
  mask            TEXT NOT NULL CHECK (mask IN ('causal')),
  format          TEXT NOT NULL,        -- of its operands
  batch           INTEGER NOT NULL CHECK (batch > 0),
  seq             INTEGER NOT NULL CHECK (seq > 0),
  heads           INTEGER NOT NULL CHECK (heads > 0),
  kv_heads        INTEGER NOT NULL CHECK (kv_heads > 0),
  head_dim        INTEGER NOT NULL CHECK (head_dim > 0),
  workspace_bytes INTEGER NOT NULL CHECK (workspace_bytes >= 0), -- with what is between operations
  UNIQUE (cudnn, architecture, pass, mask, format, batch, seq, heads, kv_heads, head_dim)
) STRICT;

-- Parameters of the cost model, and how well they predict what they were not fitted to.
CREATE TABLE param_set (
  id               TEXT PRIMARY KEY NOT NULL,
  created          TEXT NOT NULL,
  program_version  TEXT NOT NULL,
  text             TEXT NOT NULL,
  validation       TEXT NOT NULL,       -- how the next was found: which rows were left out
  error_pct        REAL NOT NULL CHECK (error_pct >= 0) -- of step times, mean, cross-validated
) STRICT;

-- A row that a parameter set was fitted to. Such rows cannot be deleted before the set.
CREATE TABLE param_set_row (
  param_set_id       TEXT NOT NULL REFERENCES param_set (id) ON DELETE CASCADE,
  run_id             INTEGER REFERENCES run (id),
  run_measurement_id INTEGER REFERENCES run_measurement (id),
  op_measurement_id  INTEGER REFERENCES op_measurement (id),
  UNIQUE (param_set_id, run_id),
  UNIQUE (param_set_id, run_measurement_id),
  UNIQUE (param_set_id, op_measurement_id),
  CHECK ((run_id IS NOT NULL) + (run_measurement_id IS NOT NULL) + (op_measurement_id IS NOT NULL)
         = 1)
) STRICT;

CREATE INDEX param_set_row_by_run ON param_set_row (run_id);
CREATE INDEX param_set_row_by_run_measurement ON param_set_row (run_measurement_id);
CREATE INDEX param_set_row_by_op_measurement ON param_set_row (op_measurement_id);

CREATE TRIGGER param_set_row_is_for_fitting BEFORE INSERT ON param_set_row
WHEN (SELECT use FROM run_measurement WHERE id = NEW.run_measurement_id) = 'report'
BEGIN SELECT RAISE (ABORT, 'a row for reporting is never fitted to'); END;

-- A run changes once: from running to done or failed.
CREATE TRIGGER run_is_final BEFORE UPDATE ON run WHEN OLD.state <> 'running'
BEGIN SELECT RAISE (ABORT, 'a run that ended is never changed'); END;
CREATE TRIGGER run_is_what_it_was BEFORE UPDATE OF id, uid, created, program_version, backend, comm,
  device, host, pid, plan_id, schedule_hash, ranks, steps, seed, data, settings, params_id ON run
BEGIN SELECT RAISE (ABORT, 'what a run is does not change'); END;
CREATE TRIGGER plan_is_final BEFORE UPDATE ON plan
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
CREATE TRIGGER run_step_is_final BEFORE UPDATE ON run_step
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
CREATE TRIGGER trace_is_final BEFORE UPDATE ON trace
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
CREATE TRIGGER trace_op_is_final BEFORE UPDATE ON trace_op
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
CREATE TRIGGER trace_memory_is_final BEFORE UPDATE ON trace_memory
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
CREATE TRIGGER trace_sample_is_final BEFORE UPDATE ON trace_sample
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
CREATE TRIGGER run_measurement_is_final BEFORE UPDATE ON run_measurement
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
CREATE TRIGGER op_measurement_is_final BEFORE UPDATE ON op_measurement
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
CREATE TRIGGER attention_workspace_is_final BEFORE UPDATE ON attention_workspace
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
CREATE TRIGGER param_set_is_final BEFORE UPDATE ON param_set
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
CREATE TRIGGER param_set_row_is_final BEFORE UPDATE ON param_set_row
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
CREATE TRIGGER query_is_final BEFORE UPDATE ON query
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
CREATE TRIGGER answer_is_final BEFORE UPDATE ON answer
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;

-- A plan goes with the last run or answer that names it.
CREATE TRIGGER run_takes_its_plan AFTER DELETE ON run
WHEN NOT EXISTS (SELECT 1 FROM run WHERE plan_id = OLD.plan_id)
  AND NOT EXISTS (SELECT 1 FROM answer WHERE plan_id = OLD.plan_id)
BEGIN DELETE FROM plan WHERE id = OLD.plan_id; END;
CREATE TRIGGER answer_takes_its_plan AFTER DELETE ON answer
WHEN NOT EXISTS (SELECT 1 FROM run WHERE plan_id = OLD.plan_id)
  AND NOT EXISTS (SELECT 1 FROM answer WHERE plan_id = OLD.plan_id)
BEGIN DELETE FROM plan WHERE id = OLD.plan_id; END;
