-- The catalogue: what is known about hardware before anything was measured here. Built from
-- planner/data and db/data by db/catalogue-build.c, never written again, replaced whole by an
-- upgrade. Its application_id and version are in db/catalogue-format.h.
--
-- Units: _bytes bytes, _ns nanoseconds, _per_s per second. Bus bandwidth is nccl-tests' (what a
-- link carries, whatever the number of ranks); size is what nccl-tests calls it.

CREATE TABLE source (
  id   TEXT PRIMARY KEY,                -- a word in db/data, or the text itself
  text TEXT NOT NULL                    -- "assumed: ..." where nobody measured or published it
) STRICT, WITHOUT ROWID;

-- Devices and clusters, as planner/data states them. Keys and units are planner/cluster/cluster-facts.h.
CREATE TABLE gpu (
  name TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE gpu_fact (
  gpu    TEXT NOT NULL REFERENCES gpu (name),
  key    TEXT NOT NULL,
  value  REAL NOT NULL,                 -- in `unit`; yes is 1, no 0; a version is major.minor
  unit   TEXT NOT NULL,                 -- base unit, or empty
  source TEXT NOT NULL REFERENCES source (id),
  PRIMARY KEY (gpu, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE cluster (
  name             TEXT PRIMARY KEY,
  gpu              TEXT NOT NULL REFERENCES gpu (name),
  nodes            INTEGER NOT NULL CHECK (nodes > 0), -- when no number is given
  devices_per_node INTEGER NOT NULL CHECK (devices_per_node > 0)
) STRICT, WITHOUT ROWID;

-- Links, topology and hosts; what is the device's alone is not repeated.
CREATE TABLE cluster_fact (
  cluster TEXT NOT NULL REFERENCES cluster (name),
  key     TEXT NOT NULL,
  value   REAL NOT NULL,
  unit    TEXT NOT NULL,
  source  TEXT NOT NULL REFERENCES source (id),
  PRIMARY KEY (cluster, key)
) STRICT, WITHOUT ROWID;

-- A collective over some ranks, measured at one or more sizes.
CREATE TABLE collective_curve (
  id              TEXT PRIMARY KEY,
  source          TEXT NOT NULL REFERENCES source (id),
  gpu             TEXT REFERENCES gpu (name), -- NULL: not stated
  ranks           INTEGER NOT NULL CHECK (ranks > 1),
  nodes           INTEGER NOT NULL CHECK (nodes > 0 AND ranks % nodes = 0),
  op              TEXT NOT NULL
                  CHECK (op IN ('all_gather', 'reduce_scatter', 'all_reduce', 'all_to_all')),
  algorithm       TEXT NOT NULL         -- auto: as NCCL chose
                  CHECK (algorithm IN ('auto', 'ring', 'nvls', 'symmetric')),
  link            TEXT NOT NULL,        -- inside a node, in words
  network         TEXT,                 -- between nodes, in words
  nvlink_domain   INTEGER CHECK (nvlink_domain > 0), -- GPUs; NULL: a node's
  nic_bytes_per_s REAL CHECK (nic_bytes_per_s > 0),  -- per GPU, one way
  note            TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX curve_by_gpu ON collective_curve (gpu, op);

CREATE TABLE collective_point (
  curve           TEXT NOT NULL REFERENCES collective_curve (id),
  size_bytes      INTEGER CHECK (size_bytes > 0), -- NULL: large, not stated
  bus_bytes_per_s REAL NOT NULL CHECK (bus_bytes_per_s > 0),
  time_ns         INTEGER CHECK (time_ns > 0),
  row             TEXT NOT NULL UNIQUE, -- of the table it was taken from
  UNIQUE (curve, size_bytes)
) STRICT;

-- A matrix product (m x k) x (k x n), or `batch` of them in one launch.
CREATE TABLE product (
  row         TEXT PRIMARY KEY,
  source      TEXT NOT NULL REFERENCES source (id),
  gpu         TEXT NOT NULL REFERENCES gpu (name),
  kind        TEXT NOT NULL CHECK (kind IN ('product', 'grouped')),
  pass        TEXT NOT NULL CHECK (pass IN ('forward', 'dgrad', 'wgrad')),
  batch       INTEGER NOT NULL CHECK (batch > 0),
  m           INTEGER NOT NULL CHECK (m > 0),
  n           INTEGER NOT NULL CHECK (n > 0),
  k           INTEGER NOT NULL CHECK (k > 0),
  layout      TEXT CHECK (layout IN ('TN', 'NN', 'NT')),
  accumulates INTEGER NOT NULL CHECK (accumulates IN (0, 1)), -- onto what the output holds
  out_dtype   TEXT NOT NULL,            -- factors are bf16
  flops_per_s REAL NOT NULL CHECK (flops_per_s > 0)
) STRICT, WITHOUT ROWID;

CREATE INDEX product_by_gpu ON product (gpu, kind, pass);

-- Attention. Its source counts operations in a way of its own, so that shares above 1 occur:
-- compare these rows with one another only.
CREATE TABLE attention (
  row              TEXT PRIMARY KEY,
  source           TEXT NOT NULL REFERENCES source (id),
  gpu              TEXT NOT NULL REFERENCES gpu (name),
  pass             TEXT NOT NULL CHECK (pass IN ('forward', 'backward')),
  batch            INTEGER NOT NULL CHECK (batch > 0),
  seq              INTEGER NOT NULL CHECK (seq > 0),
  heads            INTEGER NOT NULL CHECK (heads > 0),
  kv_heads         INTEGER NOT NULL CHECK (kv_heads > 0),
  qk_dim           INTEGER NOT NULL CHECK (qk_dim > 0),
  v_dim            INTEGER NOT NULL CHECK (v_dim > 0),
  peak_flops_per_s REAL NOT NULL CHECK (peak_flops_per_s > 0),
  share            REAL NOT NULL CHECK (share > 0) -- of that peak
) STRICT, WITHOUT ROWID;

-- Workspace of attention by cuDNN's version and the architecture (a compute capability), as in the
-- store's table of that name. Causal masks without a window.
CREATE TABLE attention_workspace (
  source          TEXT NOT NULL REFERENCES source (id),
  cudnn           INTEGER NOT NULL CHECK (cudnn > 0),
  architecture    TEXT NOT NULL,
  pass            TEXT NOT NULL CHECK (pass IN ('forward', 'backward', 'deterministic')),
  mask            TEXT NOT NULL CHECK (mask IN ('causal')),
  format          TEXT NOT NULL,
  batch           INTEGER NOT NULL CHECK (batch > 0),
  seq             INTEGER NOT NULL CHECK (seq > 0),
  heads           INTEGER NOT NULL CHECK (heads > 0),
  kv_heads        INTEGER NOT NULL CHECK (kv_heads > 0),
  head_dim        INTEGER NOT NULL CHECK (head_dim > 0),
  workspace_bytes INTEGER NOT NULL CHECK (workspace_bytes >= 0),
  PRIMARY KEY (cudnn, architecture, pass, mask, format, batch, seq, heads, kv_heads, head_dim)
) STRICT, WITHOUT ROWID;

-- Parameter sets of the cost model; keys are those of sim/cost/cost-params.h.
CREATE TABLE parameter (
  params TEXT NOT NULL,
  kind   TEXT NOT NULL CHECK (kind IN ('gpu', 'cpu')),
  key    TEXT NOT NULL,
  value  REAL NOT NULL,
  source TEXT NOT NULL REFERENCES source (id),
  PRIMARY KEY (params, key)
) STRICT, WITHOUT ROWID;
