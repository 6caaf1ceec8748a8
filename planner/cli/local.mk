# fsdplan plans and links no BLAS, MPI or GPU library; fsdplan-exec-BACKEND runs what it planned. The
# link order is the layer order, and is written here only.
bin_PROGRAMS += fsdplan fsdplan-exec-cpu
cli_shared = \
  %D%/adjustments.c %D%/adjustments.h \
  %D%/complete.c \
  %D%/context.c %D%/context.h \
  %D%/doubt.c %D%/doubt.h \
  %D%/measurements.c %D%/measurements.h \
  %D%/options.c %D%/options.h \
  %D%/output.c %D%/output.h \
  %D%/predict.c %D%/predict.h \
  %D%/split.c %D%/split.h \
  %D%/timings.c %D%/timings.h \
  %D%/watch.c %D%/watch.h \
  %D%/workspaces.c %D%/workspaces.h

plan_archives = libplots.a libdb.a libsim.a libprobe.a libplanner.a
exec_archives = libplots.a libdb.a libexec.a libsim.a libprobe.a libplanner.a
plan_libs = $(probe_libs) $(NLOPT_LIBS) $(SQLITE_LIBS) $(JSON_LIBS) $(GLIB_LIBS)

fsdplan_SOURCES = \
  $(cli_shared) \
  %D%/cmd-calibrate.c \
  %D%/cmd-completion.c \
  %D%/cmd-db.c \
  %D%/cmd-diff.c \
  %D%/cmd-emit.c \
  %D%/cmd-import.c \
  %D%/cmd-lower.c \
  %D%/cmd-plot.c \
  %D%/cmd-query.c \
  %D%/cmd-run.c \
  %D%/cmd-show.c \
  %D%/cmd-sim.c \
  %D%/cmd-validate.c \
  %D%/commands.h \
  %D%/compare.c %D%/compare.h \
  %D%/doubt-fit.c %D%/doubt-fit.h \
  %D%/floor.c %D%/floor.h \
  %D%/import.c %D%/import.h \
  %D%/import-log.c \
  %D%/import-op.c \
  %D%/main.c \
  %D%/plot-accuracy.c %D%/plot-kinds.h \
  %D%/plot-plans.c \
  %D%/plot-scaling.c \
  %D%/query.c %D%/query.h \
  %D%/query-card.c %D%/query-closest.c \
  %D%/query-explain.c \
  %D%/query-keep.c %D%/query-keep.h \
  %D%/query-largest.c \
  %D%/query-print.c \
  %D%/query-sizes.c \
  %D%/score.c %D%/score.h \
  %D%/show-cluster.c %D%/show-cluster.h \
  %D%/show-model.c %D%/show-model.h \
  %D%/show-plan.c %D%/show-plan.h \
  %D%/training.c %D%/training.h \
  %D%/validate.c %D%/validate.h \
  %D%/validate-report.c %D%/validate-report.h
fsdplan_LDADD = $(plan_archives) $(SMARTCOLS_LIBS) $(plan_libs)

exec_shared = \
  $(cli_shared) \
  %D%/backend.h \
  %D%/bench.c %D%/bench.h \
  %D%/bench-workspaces.c \
  %D%/main-exec.c \
  %D%/ranks.c %D%/ranks.h \
  %D%/train.c %D%/train.h
fsdplan_exec_cpu_SOURCES = $(exec_shared) %D%/backend-cpu.c
fsdplan_exec_cpu_LDADD = $(exec_archives) $(SMARTCOLS_LIBS) $(plan_libs) $(exec_libs)

if HAVE_CUDA
bin_PROGRAMS += fsdplan-exec-cuda
fsdplan_exec_cuda_SOURCES = $(exec_shared) %D%/backend-cuda.c
cuda_archives =
if HAVE_NCCL
cuda_archives += libexecnccl.a
endif
cuda_archives += libexeccuda.a
if HAVE_CUDNN
cuda_archives += libexeccudnn.a
endif
cuda_archives += libcudakernels.a
fsdplan_exec_cuda_LDADD = \
  libplots.a libdb.a $(cuda_archives) libexec.a libsim.a libprobe.a libplanner.a \
  $(SMARTCOLS_LIBS) $(plan_libs) $(exec_libs) $(CUDNN_LIBS) $(NCCL_LIBS) $(CUDA_LIBS)
endif
EXTRA_DIST += %D%/backend-cuda.c

nodist_fsdplan_SOURCES = $(completion_embedded)

# Completion: printed by the program, and installed under the names that the shells look for.
completion_embedded = %D%/completion.bash.inc %D%/completion.zsh.inc
BUILT_SOURCES += $(completion_embedded)
$(fsdplan_OBJECTS): | $(completion_embedded)
CLEANFILES += $(completion_embedded)
%D%/completion.bash.inc: %D%/completion.bash
	$(EMBED)
%D%/completion.zsh.inc: %D%/completion.zsh
	$(EMBED)
bashcompdir = $(datadir)/bash-completion/completions
zshcompdir = $(datadir)/zsh/site-functions
bashcomp_DATA = %D%/completion/fsdplan
zshcomp_DATA = %D%/completion/_fsdplan
CLEANFILES += $(bashcomp_DATA) $(zshcomp_DATA)
%D%/completion/fsdplan: %D%/completion.bash
	$(AM_V_GEN)$(MKDIR_P) $(@D) && cp $< $@
%D%/completion/_fsdplan: %D%/completion.zsh
	$(AM_V_GEN)$(MKDIR_P) $(@D) && cp $< $@

# A folder that runs where none of the libraries is; configured with --enable-static-deps few are left.
# Tests of GPUs (tests/local.mk), and what runs them, travel with the programs.
carried_programs = fsdplan$(EXEEXT) fsdplan-exec-cpu$(EXEEXT)
if HAVE_CUDA
carried_programs += fsdplan-exec-cuda$(EXEEXT)
endif
carried: $(carried_programs) db/catalogue.db
	@test '$(STATIC_DEPS)' = yes || \
	  { echo 'make carried: configure with --enable-static-deps first' >&2; exit 1; }
	$(AM_V_GEN)$(SHELL) $(srcdir)/%D%/carry.sh $@ db/catalogue.db $(carried_programs) && \
	  $(MKDIR_P) $@/tests/gpu && cp $(srcdir)/tests/gpu/sections.sh $(srcdir)/tests/gpu/race-torch.py $@/tests/gpu
.PHONY: carried
clean-local: clean-carried
.PHONY: clean-carried
clean-carried:
	rm -rf carried

EXTRA_DIST += %D%/README.md %D%/carry.sh %D%/completion.bash %D%/completion.zsh %D%/man.h2m

# Man pages, one per command, all from --help; the summary is that of the table of commands.
if HAVE_HELP2MAN
command_mans = \
  fsdplan-bench.1 \
  fsdplan-calibrate.1 \
  fsdplan-completion.1 \
  fsdplan-db.1 \
  fsdplan-diff.1 \
  fsdplan-emit.1 \
  fsdplan-import.1 \
  fsdplan-lower.1 \
  fsdplan-plot.1 \
  fsdplan-query.1 \
  fsdplan-run.1 \
  fsdplan-show.1 \
  fsdplan-sim.1 \
  fsdplan-validate.1
exec_mans = fsdplan-exec-cpu.1
if HAVE_CUDA
exec_mans += fsdplan-exec-cuda.1
endif
man_MANS += fsdplan.1 $(exec_mans) $(command_mans)
CLEANFILES += fsdplan.1 $(exec_mans) $(command_mans) man-*.h2m
fsdplan.1: fsdplan$(EXEEXT) $(srcdir)/%D%/man.h2m
	$(AM_V_GEN)$(SED) '/^\.BR fsdplan (1)/d' $(srcdir)/%D%/man.h2m > man-$@.h2m && \
	$(HELP2MAN) --no-info --output=$@ --locale=C.UTF-8 --include=man-$@.h2m \
	  --name='plan fully sharded training of large language models' ./fsdplan$(EXEEXT)
$(command_mans): fsdplan$(EXEEXT) fsdplan-exec-cpu$(EXEEXT) $(srcdir)/%D%/man.h2m
	$(AM_V_GEN)command=$(@:fsdplan-%.1=%) && \
	summary=`./fsdplan$(EXEEXT) __complete $$command | $(SED) -n "s/^$$command	//p"` && \
	$(SED) "/^\.BR fsdplan\\\\-$$command /d" $(srcdir)/%D%/man.h2m > man-$@.h2m && \
	$(HELP2MAN) --no-info --output=$@.tmp --locale=C.UTF-8 --include=man-$@.h2m \
	  --source='fsdplan $(VERSION)' --version-string=$(VERSION) --name="$$summary" \
	  "./fsdplan$(EXEEXT) $$command" && \
	$(SED) -e "s/^\.TH FSDPLAN /.TH FSDPLAN-`echo $$command | tr a-z A-Z` /" \
	  -e "s/^fsdplan $$command \\\\-/fsdplan\\\\-$$command \\\\-/" $@.tmp > $@ && rm -f $@.tmp
$(exec_mans): fsdplan-run.1
	$(AM_V_GEN)echo .so man1/fsdplan-run.1 > $@
endif
