# Questions answered, for any program: what is asked about, predicted, searched, compared with what was
# measured. Prints nothing.
noinst_LIBRARIES += libadvise.a
libadvise_a_SOURCES = \
  %D%/adjustments.c %D%/adjustments.h \
  %D%/compute-split.c %D%/compute-split.h \
  %D%/explain-memory.c %D%/explain-memory.h \
  %D%/explain-time.c %D%/explain-time.h \
  %D%/floor.c %D%/floor.h \
  %D%/floor-work.c %D%/floor-work.h \
  %D%/input.c %D%/input.h \
  %D%/measurements.c %D%/measurements.h \
  %D%/predict.c %D%/predict.h \
  %D%/stages.c %D%/stages.h \
  %D%/query-closest.c \
  %D%/query.c %D%/query.h \
  %D%/resize.c %D%/resize.h \
  %D%/score.c %D%/score.h \
  %D%/timings.c %D%/timings.h \
  %D%/training.c %D%/training.h \
  %D%/uncertainty-fit.c %D%/uncertainty-fit.h \
  %D%/uncertainty.c %D%/uncertainty.h \
  %D%/validate.c %D%/validate.h \
  %D%/workspaces.c %D%/workspaces.h
EXTRA_DIST += %D%/README.md
