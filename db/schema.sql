-- The user's store, as version 1 made it. A store is known by its application_id, its
-- version is user_version; db/store.c sets both.
--
-- Units are in the names: _ns nanoseconds, _bytes bytes. Times within a step count from
-- its start. Names of ops, streams and categories are those of planner/op-list.h.

-- What was planned, in canonical text: enough to lower the schedule again.
CREATE TABLE plan (
  id           INTEGER PRIMARY KEY,
  hash         TEXT NOT NULL,           -- of plan_text alone, so not unique here
  model_text   TEXT NOT NULL,
  cluster_text TEXT NOT NULL,
  plan_text    TEXT NOT NULL
) STRICT;

CREATE INDEX plan_by_hash ON plan (hash);

-- One execution. With its plan, all it takes to repeat it.
CREATE TABLE run (
  id                INTEGER PRIMARY KEY AUTOINCREMENT, -- people write it down: never used twice
  created           TEXT NOT NULL,      -- UTC, ISO 8601
  program_version   TEXT NOT NULL,      -- git describe
  backend           TEXT NOT NULL,      -- kernels: cpu, cuda
  comm              TEXT NOT NULL,      -- collectives: self, threads, mpi, nccl
  device            TEXT NOT NULL,
  host              TEXT NOT NULL,
  plan_id           INTEGER NOT NULL REFERENCES plan (id),
  schedule_hash     TEXT NOT NULL,
  ranks             INTEGER NOT NULL CHECK (ranks > 0),
  steps             INTEGER NOT NULL CHECK (steps >= 0), -- asked for; run_step holds those done
  seed              INTEGER NOT NULL,
  params_id         TEXT,               -- parameter set of the prediction; NULL: none was made
  state             TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed')),
  message           TEXT,               -- why it failed
  predicted_step_ns INTEGER NOT NULL CHECK (predicted_step_ns >= 0), -- 0: unknown
  measured_step_ns  INTEGER NOT NULL CHECK (measured_step_ns >= 0)   -- median; 0: unknown
) STRICT;

CREATE INDEX run_by_plan ON run (plan_id);

-- One training step of a run, as rank 0 saw it.
CREATE TABLE run_step (
  run_id    INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  step      INTEGER NOT NULL CHECK (step >= 0),
  loss      REAL,                       -- mean per token; NULL: not a number
  grad_norm REAL,                       -- before clipping; NULL: not a number
  step_ns   INTEGER NOT NULL CHECK (step_ns >= 0),
  PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

-- One steady step of one rank: simulated, or measured.
CREATE TABLE trace (
  id                  INTEGER PRIMARY KEY,
  run_id              INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  origin              TEXT NOT NULL,    -- sim, or the backend
  rank                INTEGER NOT NULL CHECK (rank >= 0),
  step_ns             INTEGER NOT NULL, -- from one step to the next; the sum of the next five
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

-- Clusters that were probed or written down, so that plans can name them again.
CREATE TABLE cluster (
  name    TEXT PRIMARY KEY,             -- local/1a2b3c4d
  text    TEXT NOT NULL,                -- of an .ini file
  source  TEXT NOT NULL,                -- where the text comes from
  created TEXT NOT NULL                 -- UTC, ISO 8601
) STRICT;
