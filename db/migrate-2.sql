-- Takes a store from version 2 to version 3. Never changed once it is released.
--
-- Plans get numbers that are never used twice, and questions with their answers name them, too.
-- Foreign keys are off, and what refers to plan goes on doing so.
CREATE TABLE new_plan (
  id           INTEGER PRIMARY KEY AUTOINCREMENT, -- people write it down, as @7: never used twice
  hash         TEXT NOT NULL,           -- of plan_text alone, so not unique here
  model_text   TEXT NOT NULL,
  cluster_text TEXT NOT NULL,
  plan_text    TEXT NOT NULL
) STRICT;

INSERT INTO new_plan (id, hash, model_text, cluster_text, plan_text)
SELECT id, hash, model_text, cluster_text, plan_text FROM plan;
DROP TABLE plan;
ALTER TABLE new_plan RENAME TO plan;
CREATE INDEX plan_by_hash ON plan (hash);
CREATE TRIGGER plan_is_final BEFORE UPDATE ON plan
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;

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
