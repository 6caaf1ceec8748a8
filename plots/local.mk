noinst_LIBRARIES += libplots.a
libplots_a_SOURCES = \
  %D%/labels.c %D%/labels.h \
  %D%/memory.c \
  %D%/pareto.c \
  %D%/plot.c %D%/plot.h %D%/plot-private.h \
  %D%/timeline.c
nodist_libplots_a_SOURCES = $(plots_embedded)

# Embedded, so that the program needs no installed file.
plots_embedded = \
  %D%/memory.gp.inc %D%/pareto.gp.inc %D%/style.gp.inc %D%/timeline.gp.inc
BUILT_SOURCES += $(plots_embedded)
CLEANFILES += $(plots_embedded)
EXTRA_DIST += %D%/README.md %D%/memory.gp %D%/pareto.gp %D%/style.gp %D%/timeline.gp
%D%/memory.gp.inc: %D%/memory.gp
	$(EMBED)
%D%/pareto.gp.inc: %D%/pareto.gp
	$(EMBED)
%D%/style.gp.inc: %D%/style.gp
	$(EMBED)
%D%/timeline.gp.inc: %D%/timeline.gp
	$(EMBED)
