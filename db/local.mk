noinst_LIBRARIES += libdb.a
libdb_a_SOURCES = \
  %D%/store.c %D%/store.h %D%/store-private.h \
  %D%/runs.c \
  %D%/traces.c
nodist_libdb_a_SOURCES = %D%/schema.sql.inc

BUILT_SOURCES += %D%/schema.sql.inc
CLEANFILES += %D%/schema.sql.inc
EXTRA_DIST += %D%/README.md %D%/schema.sql
%D%/schema.sql.inc: %D%/schema.sql
	$(EMBED)
