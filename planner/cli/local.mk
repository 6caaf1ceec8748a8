# fsdplan plans and links no BLAS, MPI or GPU library; fsdplan-exec-cpu runs what it planned. The
# link order is the layer order, and is written here only.
bin_PROGRAMS += fsdplan fsdplan-exec-cpu
cli_shared = \
  %D%/complete.c \
  %D%/context.c %D%/context.h \
  %D%/options.c %D%/options.h \
  %D%/output.c %D%/output.h \
  %D%/predict.c %D%/predict.h

plan_archives = libplots.a libdb.a libsim.a libprobe.a libplanner.a
exec_archives = libplots.a libdb.a libexec.a libsim.a libprobe.a libplanner.a
plan_libs = $(SQLITE_LIBS) $(JSON_LIBS) $(GLIB_LIBS)

fsdplan_SOURCES = \
  $(cli_shared) \
  %D%/cmd-completion.c \
  %D%/cmd-db.c \
  %D%/cmd-diff.c \
  %D%/cmd-lower.c \
  %D%/cmd-plot.c \
  %D%/cmd-run.c \
  %D%/cmd-show.c \
  %D%/cmd-sim.c \
  %D%/commands.h \
  %D%/main.c \
  %D%/show-model.c %D%/show-model.h \
  %D%/show-plan.c %D%/show-plan.h
fsdplan_LDADD = $(plan_archives) $(SMARTCOLS_LIBS) $(plan_libs)

fsdplan_exec_cpu_SOURCES = \
  $(cli_shared) \
  %D%/main-exec.c \
  %D%/train.c %D%/train.h
fsdplan_exec_cpu_LDADD = $(exec_archives) $(SMARTCOLS_LIBS) $(plan_libs) $(exec_libs)

nodist_fsdplan_SOURCES = $(completion_embedded)

# Completion: printed by the program, and installed under the names that the shells look for.
completion_embedded = %D%/completion.bash.inc %D%/completion.zsh.inc
BUILT_SOURCES += $(completion_embedded)
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

EXTRA_DIST += %D%/README.md %D%/completion.bash %D%/completion.zsh

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
