noinst_LIBRARIES += libdb.a
libdb_a_SOURCES = \
  %D%/store.c %D%/store.h %D%/store-private.h \
  %D%/query.c \
  %D%/check.c \
  %D%/runs.c %D%/runs.h \
  %D%/traces.c %D%/traces.h \
  %D%/tables.c %D%/tables.h %D%/tables-private.h \
  %D%/tables-text.c \
  %D%/dump.c %D%/dump-private.h \
  %D%/import.c %D%/transfer.h
nodist_libdb_a_SOURCES = %D%/schema.sql.inc %D%/migrate-1.sql.inc

BUILT_SOURCES += $(nodist_libdb_a_SOURCES)
CLEANFILES += $(nodist_libdb_a_SOURCES)
EXTRA_DIST += %D%/README.md %D%/schema.sql %D%/migrate-1.sql
%D%/schema.sql.inc: %D%/schema.sql
	$(EMBED)
%D%/migrate-1.sql.inc: %D%/migrate-1.sql
	$(EMBED)
