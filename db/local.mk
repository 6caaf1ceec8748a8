noinst_LIBRARIES += libdb.a
libdb_a_SOURCES = \
  %D%/store.c %D%/store.h %D%/store-private.h \
  %D%/catalogue.c %D%/catalogue.h %D%/catalogue-format.h \
  %D%/clusters.c %D%/clusters.h \
  %D%/query.c \
  %D%/check.c \
  %D%/plans.c %D%/plans.h \
  %D%/runs.c %D%/runs.h \
  %D%/traces.c %D%/traces.h \
  %D%/tables.c %D%/tables.h %D%/tables-private.h \
  %D%/tables-text.c \
  %D%/dump.c %D%/dump-private.h \
  %D%/import.c %D%/transfer.h
nodist_libdb_a_SOURCES = %D%/schema.sql.inc %D%/migrate-1.sql.inc %D%/migrate-2.sql.inc \
  %D%/migrate-3.sql.inc %D%/migrate-4.sql.inc
libdb_a_CPPFLAGS = $(AM_CPPFLAGS) -DPKGDATADIR='"$(pkgdatadir)"'

BUILT_SOURCES += $(nodist_libdb_a_SOURCES)
CLEANFILES += $(nodist_libdb_a_SOURCES)
$(libdb_a_OBJECTS): | $(nodist_libdb_a_SOURCES)
EXTRA_DIST += %D%/README.md %D%/schema.sql %D%/migrate-1.sql %D%/migrate-2.sql \
  %D%/migrate-3.sql %D%/migrate-4.sql
%D%/schema.sql.inc: %D%/schema.sql
	$(EMBED)
%D%/migrate-1.sql.inc: %D%/migrate-1.sql
	$(EMBED)
%D%/migrate-2.sql.inc: %D%/migrate-2.sql
	$(EMBED)
%D%/migrate-3.sql.inc: %D%/migrate-3.sql
	$(EMBED)
%D%/migrate-4.sql.inc: %D%/migrate-4.sql
	$(EMBED)

# The shipped catalogue: text here, a database for the program.
noinst_PROGRAMS += %D%/catalogue-build
%C%_catalogue_build_SOURCES = %D%/catalogue-build.c
nodist_%C%_catalogue_build_SOURCES = %D%/catalogue.sql.inc
%C%_catalogue_build_LDADD = libplanner.a $(SQLITE_LIBS) $(JSON_LIBS) $(GLIB_LIBS)
catalogue_data = \
  %D%/data/attention.csv \
  %D%/data/curves.csv \
  %D%/data/parameters.csv \
  %D%/data/points.csv \
  %D%/data/products.csv \
  %D%/data/sources.csv \
  %D%/data/workspaces.csv
nodist_pkgdata_DATA = %D%/catalogue.db %D%/runs.csv %D%/adjustments.txt
BUILT_SOURCES += %D%/catalogue.sql.inc
$(%C%_catalogue_build_OBJECTS): | %D%/catalogue.sql.inc
CLEANFILES += %D%/catalogue.sql.inc %D%/catalogue.db %D%/catalogue.db.tmp %D%/runs.csv \
  %D%/adjustments.txt
EXTRA_DIST += %D%/catalogue.sql $(catalogue_data) %D%/data/runs.csv %D%/data/adjustments.txt
%D%/catalogue.sql.inc: %D%/catalogue.sql
	$(EMBED)
%D%/catalogue.db: %D%/catalogue-build$(EXEEXT) $(catalogue_data)
	$(AM_V_GEN)%D%/catalogue-build$(EXEEXT) $@.tmp $(srcdir)/%D%/data && mv $@.tmp $@
# Training runs, and what they taught: read as they are.
%D%/runs.csv: %D%/data/runs.csv
	$(AM_V_GEN)$(MKDIR_P) $(@D) && cp $< $@.tmp && chmod u+w $@.tmp && mv $@.tmp $@
%D%/adjustments.txt: %D%/data/adjustments.txt
	$(AM_V_GEN)$(MKDIR_P) $(@D) && cp $< $@.tmp && chmod u+w $@.tmp && mv $@.tmp $@
