# fsdplan plans and links no BLAS, MPI or GPU library; fsdplan-exec-cpu runs what it planned. The
# link order is the layer order, and is written here only.
bin_PROGRAMS += fsdplan fsdplan-exec-cpu
cli_shared = \
  %D%/measurements.c %D%/measurements.h \
  %D%/options.c %D%/options.h \
  %D%/output.c %D%/output.h \
  %D%/predict.c %D%/predict.h

plan_archives = libplots.a libdb.a libsim.a libprobe.a libplanner.a
exec_archives = libplots.a libdb.a libexec.a libsim.a libprobe.a libplanner.a
plan_libs = $(probe_libs) $(SQLITE_LIBS) $(JSON_LIBS) $(GLIB_LIBS)

fsdplan_SOURCES = \
  $(cli_shared) \
  %D%/cmd-db.c \
  %D%/cmd-diff.c \
  %D%/cmd-lower.c \
  %D%/cmd-plot.c \
  %D%/cmd-run.c \
  %D%/cmd-show.c \
  %D%/cmd-sim.c \
  %D%/commands.h \
  %D%/main.c \
  %D%/show-cluster.c %D%/show-cluster.h \
  %D%/show-model.c %D%/show-model.h \
  %D%/show-plan.c %D%/show-plan.h
fsdplan_LDADD = $(plan_archives) $(SMARTCOLS_LIBS) $(plan_libs)

fsdplan_exec_cpu_SOURCES = \
  $(cli_shared) \
  %D%/main-exec.c \
  %D%/train.c %D%/train.h
fsdplan_exec_cpu_LDADD = $(exec_archives) $(SMARTCOLS_LIBS) $(plan_libs) $(exec_libs)

EXTRA_DIST += %D%/README.md

if HAVE_HELP2MAN
man_MANS += fsdplan.1 fsdplan-exec-cpu.1
CLEANFILES += fsdplan.1 fsdplan-exec-cpu.1
fsdplan.1: fsdplan$(EXEEXT)
	$(AM_V_GEN)$(HELP2MAN) --no-info --output=$@ \
	  --name='plan fully sharded training of large language models' ./fsdplan$(EXEEXT)
fsdplan-exec-cpu.1: fsdplan-exec-cpu$(EXEEXT)
	$(AM_V_GEN)$(HELP2MAN) --no-info --output=$@ --locale=C.UTF-8 \
	  --version-string=$(VERSION) --name='run a training plan on this machine' ./fsdplan-exec-cpu$(EXEEXT)
endif
