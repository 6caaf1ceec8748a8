noinst_LIBRARIES += libsim.a
libsim_a_SOURCES =
# What an op costs.
libsim_a_SOURCES += \
  %D%/cost/adjust.c %D%/cost/adjust.h \
  %D%/cost/cost.c %D%/cost/cost-private.h %D%/cost/cost.h \
  %D%/cost/cost-calls.c \
  %D%/cost/cost-collective.c \
  %D%/cost/cost-compute.c \
  %D%/cost/cost-defaults.c \
  %D%/cost/cost-launch.c \
  %D%/cost/cost-params.h \
  %D%/cost/cost-timed.c \
  %D%/cost/uncertainty.c %D%/cost/uncertainty.h \
  %D%/cost/measurements.c %D%/cost/measurements.h \
  %D%/cost/timings.c %D%/cost/timings.h
# The simulator, op by op.
libsim_a_SOURCES += \
  %D%/engine.c %D%/engine.h \
  %D%/meet.c %D%/meet.h \
  %D%/memory.c %D%/memory.h \
  %D%/record-stream.c %D%/record-stream.h \
  %D%/sharing.c %D%/sharing.h \
  %D%/sim.c %D%/sim.h
# The same results sooner.
libsim_a_SOURCES += \
  %D%/fast/arena-fit.c %D%/fast/arena-fit.h \
  %D%/fast/blocks.c %D%/fast/blocks-private.h %D%/fast/blocks.h \
  %D%/fast/blocks-state.c \
  %D%/fast/exposed.c %D%/fast/exposed.h \
  %D%/fast/fold.c %D%/fast/fold.h \
  %D%/fast/footprint.c %D%/fast/footprint.h \
  %D%/fast/measure.c %D%/fast/measure.h \
  %D%/fast/passes.c %D%/fast/passes.h \
  %D%/fast/program.c %D%/fast/program.h \
  %D%/fast/slowdown-bound.c %D%/fast/slowdown-bound.h \
  %D%/fast/stages.c %D%/fast/stages.h \
  %D%/fast/stretch.c %D%/fast/stretch.h \
  %D%/fast/tally.c %D%/fast/tally.h
# Parameters from measured runs.
libsim_a_SOURCES += \
  %D%/fit/calibrate.c %D%/fit/calibrate.h \
  %D%/fit/spreads.c %D%/fit/spreads.h
EXTRA_DIST += %D%/README.md
