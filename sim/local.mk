noinst_LIBRARIES += libsim.a
libsim_a_SOURCES = \
  %D%/adjust.c %D%/adjust.h \
  %D%/doubt.c %D%/doubt.h \
  %D%/blocks.c %D%/blocks-long.c %D%/blocks-long.h %D%/blocks-state.c %D%/blocks.h %D%/blocks-private.h \
  %D%/busy.c %D%/busy.h \
  %D%/calibrate.c %D%/calibrate.h \
  %D%/cost.c %D%/cost.h \
  %D%/cost-calls.c \
  %D%/cost-collective.c \
  %D%/cost-compute.c \
  %D%/cost-defaults.c \
  %D%/cost-params.h \
  %D%/cost-launch.c \
  %D%/cost-private.h \
  %D%/cost-timed.c \
  %D%/crowd.c %D%/crowd.h \
  %D%/engine.c %D%/engine.h \
  %D%/measurements.c %D%/measurements.h \
  %D%/fold.c %D%/fold.h \
  %D%/footprint.c %D%/footprint.h %D%/footprint-private.h \
  %D%/measure.c %D%/measure.h \
  %D%/gaps.c %D%/gaps.h \
  %D%/lead.c %D%/lead.h \
  %D%/leap.c %D%/leap.h \
  %D%/memory.c %D%/memory.h \
  %D%/program.c %D%/program.h \
  %D%/recall.c %D%/recall.h \
  %D%/rejoin.c %D%/rejoin.h \
  %D%/sharing.c %D%/sharing.h \
  %D%/sim.c %D%/sim.h \
  %D%/tally.c %D%/tally.h \
  %D%/timings.c %D%/timings.h
EXTRA_DIST += %D%/README.md
