noinst_LIBRARIES += libplots.a
libplots_a_SOURCES = \
  %D%/accuracy.c \
  %D%/breakdown.c \
  %D%/labels.c %D%/labels.h \
  %D%/loss.c \
  %D%/memory.c \
  %D%/pareto.c \
  %D%/pipeline.c \
  %D%/plot.c %D%/plot.h %D%/plot-private.h \
  %D%/scaling.c \
  %D%/timeline.c \
  %D%/tradeoff.c
nodist_libplots_a_SOURCES = $(plots_embedded)

# Embedded, so that the program needs no installed file.
plots_embedded = \
  %D%/accuracy.gp.inc %D%/breakdown.gp.inc %D%/loss.gp.inc %D%/memory.gp.inc %D%/pareto.gp.inc \
  %D%/scaling.gp.inc %D%/style.gp.inc %D%/timeline.gp.inc %D%/tradeoff.gp.inc
BUILT_SOURCES += $(plots_embedded)
CLEANFILES += $(plots_embedded)
$(libplots_a_OBJECTS): | $(plots_embedded)
EXTRA_DIST += %D%/README.md \
  %D%/accuracy.gp %D%/breakdown.gp %D%/loss.gp %D%/memory.gp %D%/pareto.gp \
  %D%/scaling.gp %D%/style.gp %D%/timeline.gp %D%/tradeoff.gp
%D%/accuracy.gp.inc: %D%/accuracy.gp
	$(EMBED)
%D%/breakdown.gp.inc: %D%/breakdown.gp
	$(EMBED)
%D%/loss.gp.inc: %D%/loss.gp
	$(EMBED)
%D%/memory.gp.inc: %D%/memory.gp
	$(EMBED)
%D%/pareto.gp.inc: %D%/pareto.gp
	$(EMBED)
%D%/scaling.gp.inc: %D%/scaling.gp
	$(EMBED)
%D%/style.gp.inc: %D%/style.gp
	$(EMBED)
%D%/timeline.gp.inc: %D%/timeline.gp
	$(EMBED)
%D%/tradeoff.gp.inc: %D%/tradeoff.gp
	$(EMBED)
