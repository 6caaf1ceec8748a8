-- Takes a store from version 3 to version 4. Never changed once it is released.
--
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

CREATE TRIGGER attention_workspace_is_final BEFORE UPDATE ON attention_workspace
BEGIN SELECT RAISE (ABORT, 'what was stored is never changed'); END;
