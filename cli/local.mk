# fsdplan plans and links no BLAS, MPI or GPU library; fsdplan-exec-BACKEND runs what it planned. The
# link order is the layer order, and is written here only.
bin_PROGRAMS += fsdplan fsdplan-exec-cpu
cli_shared = \
  %D%/io/colour.c %D%/io/colour.h \
  %D%/io/commands.h \
  %D%/io/complete.c \
  %D%/io/config.c %D%/io/config.h \
  %D%/io/context.c %D%/io/context.h \
  %D%/io/limits.c %D%/io/limits.h \
  %D%/io/options.c %D%/io/options.h \
  %D%/io/output.c %D%/io/output.h \
  %D%/io/prediction-json.c %D%/io/prediction-json.h \
  %D%/io/watch.c %D%/io/watch.h

plan_archives = libplots.a libadvise.a libdb.a libsim.a libprobe.a libplanner.a
exec_archives = libplots.a libadvise.a libdb.a libexec.a libsim.a libprobe.a libplanner.a
plan_libs = $(probe_libs) $(NLOPT_LIBS) $(SQLITE_LIBS) $(JSON_LIBS) $(GLIB_LIBS)

# All but main, for what calls commands itself.
fsdplan_commands = \
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
  %D%/cmd-report.c \
  %D%/cmd-run.c \
  %D%/cmd-show.c \
  %D%/cmd-sim.c \
  %D%/cmd-validate.c \
  %D%/import-log.c \
  %D%/import-op.c \
  %D%/import-run.c \
  %D%/import.c %D%/import.h \
  %D%/diff-explain.c %D%/diff-explain.h \
  %D%/sim-explain.c %D%/sim-explain.h \
  %D%/validate-report.c %D%/validate-report.h \
  %D%/calibrate-parts.c %D%/calibrate-parts.h \
  %D%/io/compare.c %D%/io/compare.h \
  %D%/io/prediction-tables.c %D%/io/prediction-tables.h \
  %D%/io/sweep.c %D%/io/sweep.h \
  %D%/plot/plot-accuracy.c \
  %D%/plot/plot-kinds.h \
  %D%/plot/plot-loss.c \
  %D%/plot/plot-one.c \
  %D%/plot/plot-run.c %D%/plot/plot-run.h \
  %D%/plot/plot-plans.c \
  %D%/plot/plot-scaling.c \
  %D%/query/query-card.c \
  %D%/query/query-explain.c \
  %D%/query/query-keep.c %D%/query/query-keep.h \
  %D%/query/query-largest.c \
  %D%/query/query-print.c \
  %D%/query/query-sizes.c \
  %D%/query/query.c %D%/query/query.h \
  %D%/report/report-html.c %D%/report/report-html.h \
  %D%/report/report-page.c %D%/report/report-page.h \
  %D%/report/report-parts.c %D%/report/report-parts.h \
  %D%/report/report-run.c %D%/report/report-run.h \
  %D%/show/show-cluster.c %D%/show/show-cluster.h \
  %D%/show/show-model.c %D%/show/show-model.h \
  %D%/show/show-plan.c %D%/show/show-plan.h
fsdplan_SOURCES = $(fsdplan_commands) %D%/main.c
fsdplan_LDADD = $(plan_archives) $(SMARTCOLS_LIBS) $(plan_libs)

exec_shared = \
  $(cli_shared) \
  %D%/run/backend.h \
  %D%/run/bench-workspaces.c \
  %D%/run/bench.c %D%/run/bench.h \
  %D%/run/data.c %D%/run/data.h \
  %D%/run/export.c %D%/run/export.h \
  %D%/run/main-exec.c \
  %D%/run/ranks.c %D%/run/ranks.h \
  %D%/run/resume.c %D%/run/resume.h \
  %D%/run/run-log.c %D%/run/run-log.h \
  %D%/run/stages.c %D%/run/stages.h \
  %D%/run/ask.c %D%/run/ask.h \
  %D%/run/told.c %D%/run/told.h \
  %D%/run/train.c %D%/run/train.h
fsdplan_exec_cpu_SOURCES = $(exec_shared) %D%/run/backend-cpu.c
fsdplan_exec_cpu_LDADD = $(exec_archives) $(SMARTCOLS_LIBS) $(plan_libs) $(exec_libs)

if HAVE_CUDA
bin_PROGRAMS += fsdplan-exec-cuda
fsdplan_exec_cuda_SOURCES = $(exec_shared) %D%/run/backend-cuda.c
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
  libplots.a libadvise.a libdb.a $(cuda_archives) libexec.a libsim.a libprobe.a libplanner.a \
  $(SMARTCOLS_LIBS) $(plan_libs) $(exec_libs) $(DL_LIBS) $(CUDA_LIBS)
endif
EXTRA_DIST += %D%/run/backend-cuda.c

# The looks of a report; completion: printed by the program, and installed under the names that the
# shells look for.
cli_embedded = %D%/completion.bash.inc %D%/completion.zsh.inc %D%/completion.fish.inc %D%/report/report.css.inc
nodist_fsdplan_SOURCES = $(cli_embedded)
BUILT_SOURCES += $(cli_embedded)
$(fsdplan_OBJECTS): | $(cli_embedded)
CLEANFILES += $(cli_embedded)
%D%/report/report.css.inc: %D%/report/report.css
	$(EMBED)
%D%/completion.bash.inc: %D%/completion.bash
	$(EMBED)
%D%/completion.zsh.inc: %D%/completion.zsh
	$(EMBED)
%D%/completion.fish.inc: %D%/completion.fish
	$(EMBED)
bashcompdir = $(datadir)/bash-completion/completions
zshcompdir = $(datadir)/zsh/site-functions
fishcompdir = $(datadir)/fish/vendor_completions.d
bashcomp_DATA = %D%/completion/fsdplan
zshcomp_DATA = %D%/completion/_fsdplan
fishcomp_DATA = %D%/completion/fsdplan.fish
CLEANFILES += $(bashcomp_DATA) $(zshcomp_DATA) $(fishcomp_DATA)
%D%/completion/fsdplan: %D%/completion.bash
	$(AM_V_GEN)$(MKDIR_P) $(@D) && cp $< $@
%D%/completion/_fsdplan: %D%/completion.zsh
	$(AM_V_GEN)$(MKDIR_P) $(@D) && cp $< $@
%D%/completion/fsdplan.fish: %D%/completion.fish
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

EXTRA_DIST += %D%/README.md %D%/carry.sh %D%/completion.bash %D%/completion.zsh %D%/completion.fish %D%/man.h2m \
  %D%/report/report.css

# Man pages, one per command, all from --help; the summary is that of the table of commands.
if HAVE_HELP2MAN
command_mans = \
  fsdplan-bench.1 \
  fsdplan-calibrate.1 \
  fsdplan-completion.1 \
  fsdplan-db.1 \
  fsdplan-diff.1 \
  fsdplan-emit.1 \
  fsdplan-export.1 \
  fsdplan-import.1 \
  fsdplan-lower.1 \
  fsdplan-plot.1 \
  fsdplan-query.1 \
  fsdplan-report.1 \
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
