noinst_LIBRARIES += libsim.a
libsim_a_SOURCES = \
  %D%/cost/adjust.c %D%/cost/adjust.h \
  %D%/cost/doubt.c %D%/cost/doubt.h \
  %D%/blocks.c %D%/blocks-long.c %D%/blocks-long.h %D%/blocks-state.c %D%/blocks.h %D%/blocks-private.h \
  %D%/busy.c %D%/busy.h \
  %D%/calibrate.c %D%/calibrate.h \
  %D%/cost/cost.c %D%/cost/cost.h \
  %D%/cost/cost-calls.c \
  %D%/cost/cost-collective.c \
  %D%/cost/cost-compute.c \
  %D%/cost/cost-defaults.c \
  %D%/cost/cost-params.h \
  %D%/cost/cost-launch.c \
  %D%/cost/cost-private.h \
  %D%/cost/cost-timed.c \
  %D%/crowd.c %D%/crowd.h \
  %D%/engine.c %D%/engine.h \
  %D%/cost/measurements.c %D%/cost/measurements.h \
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
  %D%/cost/timings.c %D%/cost/timings.h
EXTRA_DIST += %D%/README.md
