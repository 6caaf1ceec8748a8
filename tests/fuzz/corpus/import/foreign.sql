-- fsdplan store, version 2
PRAGMA application_id = 1718841452;
PRAGMA user_version = 2;
CREATE TABLE t (x);
CREATE TRIGGER a AFTER INSERT ON t BEGIN INSERT INTO t SELECT x + 1 FROM t; END;
INSERT INTO t VALUES (1);
