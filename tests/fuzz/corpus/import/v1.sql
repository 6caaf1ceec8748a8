-- fsdplan store, version 1
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
PRAGMA application_id = 1718841452;
PRAGMA user_version = 1;
CREATE TABLE plan (
  id           INTEGER PRIMARY KEY,
  hash         TEXT NOT NULL,           -- of plan_text alone, so not unique here
  model_text   TEXT NOT NULL,
  cluster_text TEXT NOT NULL,
  plan_text    TEXT NOT NULL
) STRICT;
INSERT INTO "plan" VALUES(3,'ab12','layers=2,name=tiny','[local]
nodes=1
','stack=native
mbs=1
');
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
INSERT INTO run VALUES(2,'2026-08-01T10:00:00Z','0.1.0','cpu','threads','2 x "µ" CPU','node-1',3,'fe98',2,3,-9223372036854775808,'default-cpu-1','done',NULL,9223372036854775807,14000000);
INSERT INTO run VALUES(3,'2026-08-02T10:00:00Z','0.1.0','cpu','self','CPU','node-1',3,'fe98',1,3,1,NULL,'failed','rank 0: it''s out of memory',0,0);
INSERT INTO run VALUES(4,'2026-08-03T10:00:00Z','0.1.0','cpu','self','CPU','node-2',3,'fe98',1,3,1,NULL,'running',NULL,5,0);
CREATE TABLE run_step (
  run_id    INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
  step      INTEGER NOT NULL CHECK (step >= 0),
  loss      REAL,                       -- mean per token; NULL: not a number
  grad_norm REAL,                       -- before clipping; NULL: not a number
  step_ns   INTEGER NOT NULL CHECK (step_ns >= 0),
  PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;
INSERT INTO run_step VALUES(2,1,5.5,1.25,15000000);
INSERT INTO run_step VALUES(2,2,NULL,1e999,14000000);
INSERT INTO run_step VALUES(2,3,0.10000000000000000555,0.0,13000000);
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
INSERT INTO trace VALUES(7,2,'sim',0,100,60,20,10,5,5,11,12,13,14,1,-1);
INSERT INTO trace VALUES(8,2,'cpu',0,100,60,20,10,5,5,11,12,13,14,1,-1);
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
INSERT INTO trace_op VALUES(7,0,1,-1,'sync','host',0,5);
INSERT INTO trace_op VALUES(8,0,1,-1,'sync','host',0,6);
INSERT INTO trace_op VALUES(8,1,1,0,'sync','host',6,7);
CREATE TABLE trace_memory (
  trace_id      INTEGER NOT NULL REFERENCES trace (id) ON DELETE CASCADE,
  category      TEXT NOT NULL,
  peak_bytes    INTEGER NOT NULL CHECK (peak_bytes >= 0),    -- at the trace's fullest moment
  resting_bytes INTEGER NOT NULL CHECK (resting_bytes >= 0), -- between steps
  PRIMARY KEY (trace_id, category)
) STRICT, WITHOUT ROWID;
INSERT INTO trace_memory VALUES(7,'loss',12,0);
INSERT INTO trace_memory VALUES(8,'loss',12,0);
INSERT INTO trace_memory VALUES(8,'weights',11,11);
CREATE TABLE trace_sample (
  trace_id   INTEGER NOT NULL REFERENCES trace (id) ON DELETE CASCADE,
  position   INTEGER NOT NULL,          -- in issue order, from 0
  span       INTEGER NOT NULL,          -- spans of the trace issued before it
  category   TEXT NOT NULL,
  at_ns      INTEGER NOT NULL,          -- the host's clock
  live_bytes INTEGER NOT NULL,          -- of that category, after the change
  PRIMARY KEY (trace_id, position)
) STRICT, WITHOUT ROWID;
INSERT INTO trace_sample VALUES(8,0,0,'loss',3,12);
INSERT INTO trace_sample VALUES(8,1,1,'loss',6,0);
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('run',9);
CREATE INDEX plan_by_hash ON plan (hash);
CREATE INDEX run_by_plan ON run (plan_id);
COMMIT;
