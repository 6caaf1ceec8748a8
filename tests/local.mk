# A test's extension picks its driver: .tap programs (Check) print a result per case, .test files are
# golden (run-golden.sh), .sh scripts pass, fail or skip (77) as a whole.
TEST_EXTENSIONS = .tap .test .sh
TAP_LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
TAP_LOG_DRIVER_FLAGS = --merge
TEST_LOG_COMPILER = $(SHELL) $(srcdir)/%D%/golden/run-golden.sh

# Built programs first in the PATH; the user's store below the build folder; no test ends by the clock
# of a fast machine; one BLAS thread per rank; Open MPI (4 and 5) as root, more ranks than cores, and
# no leak reports below mpirun: plug-ins are unloaded before a suppression could name them.
AM_TESTS_ENVIRONMENT = export LC_ALL=C \
  top_srcdir='$(abs_top_srcdir)' top_builddir='$(abs_top_builddir)' \
  PATH='$(abs_top_builddir)'":$$PATH" XDG_DATA_HOME='$(abs_top_builddir)/$(test_data)' \
  XDG_CONFIG_HOME='$(abs_top_builddir)/$(test_data)' \
  FSDPLAN_CATALOGUE='$(abs_top_builddir)/db/catalogue.db' \
  CK_TAP_LOG_FILE_NAME=- CK_VERBOSITY=silent CK_FORK=$(CHECK_FORK) CK_DEFAULT_TIMEOUT=300 \
  G_DEBUG=fatal-criticals FSDPLAN_DEBUG_CHECK=1 \
  OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 \
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
  OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
  OMPI_MCA_btl_vader_single_copy_mechanism=none \
  OMPI_MCA_mca_base_env_list=ASAN_OPTIONS=detect_leaks=0 \
  LSAN_OPTIONS='suppressions=$(abs_top_srcdir)/%D%/lsan.supp:print_suppressions=0' \
  CC='$(CC)' HEADER_CPPFLAGS='$(library_cflags)';
test_data = %D%/data-home

clean-local:
	rm -rf $(test_data)

# Programs without an LDADD of their own; their source has their name.
LDADD = $(test_archives) $(plan_archives) $(CHECK_LIBS) $(plan_libs)
reference_archive = %D%/reference/libreference.a
exec_test_ldadd = $(test_archives) $(reference_archive) $(exec_archives) $(CHECK_LIBS) $(plan_libs) $(exec_libs)

# What takes longest begins first, so that nothing is left to run alone at the end.
long_tests = \
  %D%/prop/prop-search.tap \
  %D%/prop/prop-product.tap \
  %D%/unit/test-store-crash.tap \
  %D%/unit/test-exec-narrow.tap \
  %D%/unit/test-exec-offload.tap \
  %D%/unit/test-exec-quantised.tap \
  %D%/unit/test-exec-split.tap
short_tests = \
  %D%/unit/test-advise.tap \
  %D%/unit/test-bench.tap \
  %D%/unit/test-blend.tap \
  %D%/unit/test-buckets.tap \
  %D%/unit/test-calibrate.tap \
  %D%/unit/test-catalogue.tap \
  %D%/unit/test-cluster.tap \
  %D%/unit/test-checkpoint.tap \
  %D%/unit/test-clusters.tap \
  %D%/unit/test-comm.tap \
  %D%/unit/test-cost.tap \
  %D%/unit/test-cost-calls.tap \
  %D%/unit/test-cost-curves.tap \
  %D%/unit/test-csv.tap \
  %D%/unit/test-json.tap \
  %D%/unit/test-dtype.tap \
  %D%/unit/test-emit.tap \
  %D%/unit/test-exact.tap \
  %D%/unit/test-exec.tap \
  %D%/unit/test-gradients.tap \
  %D%/unit/test-hazards.tap \
  %D%/unit/test-exec-pauses.tap \
  %D%/unit/test-indexed.tap \
  %D%/unit/test-kernels.tap \
  %D%/unit/test-kernels-128x128.tap \
  %D%/unit/test-kernels-attention.tap \
  %D%/unit/test-kernels-documents.tap \
  %D%/unit/test-kernels-largest.tap \
  %D%/unit/test-kernels-latent.tap \
  %D%/unit/test-kernels-rope.tap \
  %D%/unit/test-kernels-dropout.tap \
  %D%/unit/test-kernels-split.tap \
  %D%/unit/test-kernels-experts.tap \
  %D%/unit/test-kernels-grouped.tap \
  %D%/unit/test-kernels-wide.tap \
  %D%/unit/test-launch.tap \
  %D%/unit/test-rendezvous.tap \
  %D%/unit/test-record-stream.tap \
  %D%/unit/test-report-html.tap \
  %D%/unit/test-layout.tap \
  %D%/unit/test-logs.tap \
  %D%/unit/test-lower.tap \
  %D%/unit/test-lower-acts.tap \
  %D%/unit/test-lower-graphs.tap \
  %D%/unit/test-lower-delta.tap \
  %D%/unit/test-lower-gathers.tap \
  %D%/unit/test-lower-pattern.tap \
  %D%/unit/test-lower-pools.tap \
  %D%/unit/test-megatron.tap \
  %D%/unit/test-megatron-shape.tap \
  %D%/unit/test-memory.tap \
  %D%/unit/test-model.tap \
  %D%/unit/test-model-config.tap \
  %D%/unit/test-model-config-write.tap \
  %D%/unit/test-model-delta.tap \
  %D%/unit/test-model-pattern.tap \
  %D%/unit/test-model-flops.tap \
  %D%/unit/test-number.tap \
  %D%/unit/test-placement.tap \
  %D%/unit/test-plan.tap \
  %D%/unit/test-rules.tap \
  %D%/unit/test-plot.tap \
  %D%/unit/test-plot-plans.tap \
  %D%/unit/test-plot-stages.tap \
  %D%/unit/test-pool.tap \
  %D%/unit/test-probe.tap \
  %D%/unit/test-published.tap \
  %D%/unit/test-run-experts.tap \
  %D%/unit/test-run-logs.tap \
  %D%/unit/test-run-table.tap \
  %D%/unit/test-schedule.tap \
  %D%/unit/test-sim.tap \
  %D%/unit/test-stack.tap \
  %D%/unit/test-stack-memory.tap \
  %D%/unit/test-lower-torch.tap \
  %D%/unit/test-store.tap \
  %D%/unit/test-store-files.tap \
  %D%/unit/test-store-transfer.tap \
  %D%/unit/test-tensor.tap \
  %D%/unit/test-timings.tap \
  %D%/unit/test-tokens.tap \
  %D%/unit/test-topology.tap \
  %D%/unit/test-trace.tap \
  %D%/unit/test-units.tap \
  %D%/prop/prop-accuracy.tap \
  %D%/prop/prop-answers.tap \
  %D%/unit/test-weights.tap \
  %D%/prop/prop-blocks.tap \
  %D%/prop/prop-exposed.tap \
  %D%/prop/prop-cost.tap \
  %D%/prop/prop-emit.tap \
  %D%/prop/prop-emit-stacks.tap \
  %D%/prop/prop-exec.tap \
  %D%/prop/prop-floor.tap \
  %D%/prop/prop-fold.tap \
  %D%/prop/prop-combined.tap \
  %D%/prop/prop-kinds.tap \
  %D%/prop/prop-model-text.tap \
  %D%/prop/prop-footprint.tap \
  %D%/prop/prop-lower.tap \
  %D%/prop/prop-model.tap \
  %D%/prop/prop-interleaved.tap \
  %D%/prop/prop-pipeline.tap \
  %D%/prop/prop-batches.tap \
  %D%/prop/prop-stages.tap \
  %D%/prop/prop-schedule.tap \
  %D%/prop/prop-sim.tap \
  %D%/prop/prop-threads.tap \
  %D%/prop/prop-vocabulary.tap
check_tests = $(long_tests) $(short_tests)
tests_unit_test_bench_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_blend_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_checkpoint_tap_LDADD = $(exec_test_ldadd)
comm_ranks = %D%/unit/test-comm-ranks.c %D%/unit/test-comm-ranks.h
tests_unit_test_comm_tap_SOURCES = %D%/unit/test-comm.c $(comm_ranks)
tests_unit_test_comm_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_exact_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_exec_tap_LDADD = $(exec_test_ldadd)
# The evaluator and its kernels once more, with double in the place of float.
EXTRA_DIST += %D%/case.h %D%/share.h %D%/unit/double.h
double_cppflags = $(AM_CPPFLAGS) -include $(top_srcdir)/%D%/unit/double.h
tests_unit_libdouble_a_SOURCES = exec/comm/comm.c tests/reference/evaluate.c tests/reference/evaluate-moments.c \
  tests/reference/evaluate-network.c tests/reference/evaluate-experts.c tests/reference/evaluate-arrays.c \
  tests/reference/evaluate-expert.c \
  tests/reference/evaluate-heads.c tests/reference/evaluate-latent.c tests/reference/evaluate-split.c \
  tests/reference/evaluate-context.c tests/reference/evaluate-dropout.c tests/reference/evaluate-reduce.c \
  exec/cpu/gemm-plain.c exec/cpu/kernels-cpu.c exec/cpu/kernels-cpu-operand.c \
  exec/cpu/attend.c exec/cpu/kernels-cpu-activation.c exec/cpu/kernels-cpu-attention.c exec/cpu/kernels-cpu-rope.c \
  exec/cpu/kernels-cpu-dropout.c exec/cpu/kernels-cpu-experts.c exec/cpu/kernels-cpu-grouped.c \
  exec/cpu/kernels-cpu-loss.c exec/cpu/kernels-cpu-norm.c exec/cpu/kernels-cpu-optimizer.c \
  exec/cpu/kernels-cpu-params.c exec/cpu/kernels-cpu-positions.c exec/cpu/kernels-cpu-quantize.c exec/cpu/kernels-cpu-row.c \
  exec/number/random.c
tests_unit_libdouble_a_CPPFLAGS = $(double_cppflags)
tests_unit_test_gradients_tap_CPPFLAGS = $(double_cppflags)
tests_unit_test_gradients_tap_LDADD = %D%/unit/libdouble.a $(exec_test_ldadd)
tests_unit_test_exec_narrow_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_exec_pauses_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_exec_offload_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_exec_quantised_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_exec_split_tap_LDADD = $(exec_test_ldadd)
kernel_operands = %D%/unit/test-kernels-operands.c %D%/unit/test-kernels-operands.h
tests_unit_test_kernels_tap_SOURCES = %D%/unit/test-kernels.c $(kernel_operands)
tests_unit_test_kernels_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_kernels_128x128_tap_SOURCES = %D%/unit/test-kernels-128x128.c $(kernel_operands)
tests_unit_test_kernels_128x128_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_kernels_attention_tap_SOURCES = %D%/unit/test-kernels-attention.c $(kernel_operands)
tests_unit_test_kernels_attention_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_kernels_documents_tap_SOURCES = %D%/unit/test-kernels-documents.c $(kernel_operands)
tests_unit_test_kernels_documents_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_kernels_largest_tap_SOURCES = %D%/unit/test-kernels-largest.c $(kernel_operands)
tests_unit_test_kernels_largest_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_kernels_latent_tap_SOURCES = %D%/unit/test-kernels-latent.c $(kernel_operands)
tests_unit_test_kernels_latent_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_kernels_rope_tap_SOURCES = %D%/unit/test-kernels-rope.c $(kernel_operands)
tests_unit_test_kernels_rope_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_kernels_dropout_tap_SOURCES = %D%/unit/test-kernels-dropout.c $(kernel_operands)
tests_unit_test_kernels_dropout_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_kernels_split_tap_SOURCES = %D%/unit/test-kernels-split.c $(kernel_operands)
tests_unit_test_kernels_split_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_kernels_experts_tap_SOURCES = %D%/unit/test-kernels-experts.c $(kernel_operands)
tests_unit_test_kernels_experts_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_kernels_grouped_tap_SOURCES = %D%/unit/test-kernels-grouped.c $(kernel_operands)
tests_unit_test_kernels_grouped_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_kernels_wide_tap_SOURCES = %D%/unit/test-kernels-wide.c $(kernel_operands)
tests_unit_test_kernels_wide_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_indexed_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_launch_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_rendezvous_tap_SOURCES = %D%/unit/test-rendezvous.c $(comm_ranks)
tests_unit_test_rendezvous_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_number_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_placement_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_pool_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_tokens_tap_LDADD = $(exec_test_ldadd)
tests_unit_test_weights_tap_LDADD = $(exec_test_ldadd)
shards = %D%/prop/shards.c %D%/prop/shards.h
product = %D%/prop/product.c %D%/prop/product.h $(shards)
tests_unit_test_exec_offload_tap_SOURCES = %D%/unit/test-exec-offload.c $(shards)
split_case = %D%/unit/test-exec-split-case.c %D%/unit/test-exec-split-case.h $(shards)
tests_unit_test_exec_quantised_tap_SOURCES = %D%/unit/test-exec-quantised.c $(split_case)
tests_unit_test_exec_split_tap_SOURCES = %D%/unit/test-exec-split.c $(split_case)
tests_prop_prop_exec_tap_SOURCES = %D%/prop/prop-exec.c $(shards)
tests_prop_prop_exec_tap_LDADD = $(exec_test_ldadd)
tests_prop_prop_threads_tap_LDADD = $(exec_test_ldadd)
tests_prop_prop_product_tap_SOURCES = %D%/prop/prop-product.c $(product)
tests_prop_prop_product_tap_LDADD = $(exec_test_ldadd)
check_PROGRAMS += %D%/exec/schema-check
tests_exec_schema_check_SOURCES = %D%/exec/schema-check.c
tests_exec_schema_check_LDADD = $(JSON_LIBS) $(GLIB_LIBS)
check_PROGRAMS += %D%/prop/product-pairs
tests_prop_product_pairs_SOURCES = %D%/prop/product-pairs.c $(product)
tests_prop_product_pairs_LDADD = $(reference_archive) $(exec_archives) $(plan_libs) $(exec_libs)
tests_unit_test_report_html_tap_SOURCES = %D%/unit/test-report-html.c cli/report/report-html.c
store_samples = %D%/unit/test-store-samples.c %D%/unit/test-store-samples.h
store_vfs = %D%/unit/test-store-vfs.c %D%/unit/test-store-vfs.h
tests_unit_test_store_tap_SOURCES = %D%/unit/test-store.c $(store_samples)
tests_unit_test_store_crash_tap_SOURCES = %D%/unit/test-store-crash.c $(store_samples) $(store_vfs)
tests_unit_test_store_files_tap_SOURCES = %D%/unit/test-store-files.c $(store_samples)
tests_unit_test_store_transfer_tap_SOURCES = %D%/unit/test-store-transfer.c $(store_samples)
tests_unit_test_trace_tap_CPPFLAGS = $(AM_CPPFLAGS) $(JSON_CFLAGS)

# What clever routines are held to; written plainly, and used by tests alone.
check_LIBRARIES = $(reference_archive)
tests_reference_libreference_a_SOURCES = \
  %D%/reference/evaluate.c %D%/reference/evaluate.h %D%/reference/evaluate-experts.h %D%/reference/evaluate-private.h \
  %D%/reference/evaluate-moments.c \
  %D%/reference/evaluate-arrays.c \
  %D%/reference/evaluate-context.c %D%/reference/evaluate-context.h \
  %D%/reference/evaluate-dropout.c %D%/reference/evaluate-dropout.h \
  %D%/reference/evaluate-experts.c \
  %D%/reference/evaluate-expert.c \
  %D%/reference/evaluate-heads.c \
  %D%/reference/evaluate-latent.c \
  %D%/reference/evaluate-network.c \
  %D%/reference/evaluate-reduce.c \
  %D%/reference/evaluate-source.c \
  %D%/reference/evaluate-split.c %D%/reference/evaluate-split.h \
  %D%/reference/rope.c %D%/reference/rope.h

if HAVE_CHECK
test_archives = %D%/prop/librandom.a
check_LIBRARIES += $(test_archives) %D%/unit/libdouble.a
tests_prop_librandom_a_SOURCES = %D%/prop/random.c %D%/prop/random-experts.c %D%/prop/random-loads.c \
  %D%/prop/random.h %D%/prop/pipelines.c %D%/prop/pipelines.h %D%/prop/leanest.h %D%/prop/same-model.h \
  %D%/prop/count-kinds.h
check_PROGRAMS += $(check_tests)
TESTS += $(long_tests)
endif

# The parsers' fuzzers: make check feeds each its corpus and texts like those in it, make fuzz lets
# libFuzzer go on from there.
fuzz_mutate = %D%/fuzz/accepted.c %D%/fuzz/accepted.h %D%/fuzz/mutate.c %D%/fuzz/mutate.h
fuzz_replay = %D%/fuzz/replay.c $(fuzz_mutate)
fuzz_replays = \
  %D%/fuzz/replay-adjust.tap \
  %D%/fuzz/replay-cluster.tap \
  %D%/fuzz/replay-commands.tap \
  %D%/fuzz/replay-files.tap \
  %D%/fuzz/replay-import.tap \
  %D%/fuzz/replay-indexed.tap \
  %D%/fuzz/replay-logs.tap \
  %D%/fuzz/replay-megatron.tap \
  %D%/fuzz/replay-model.tap \
  %D%/fuzz/replay-plan.tap \
  %D%/fuzz/replay-runs.tap \
  %D%/fuzz/replay-safetensors.tap \
  %D%/fuzz/replay-schedule.tap \
  %D%/fuzz/replay-steps.tap \
  %D%/fuzz/replay-store.tap \
  %D%/fuzz/replay-timing.tap \
  %D%/fuzz/replay-topology.tap \
  %D%/fuzz/replay-trace.tap
check_PROGRAMS += $(fuzz_replays)
TESTS += $(fuzz_replays)
tests_fuzz_replay_adjust_tap_SOURCES = %D%/fuzz/fuzz-adjust.c $(fuzz_replay)
tests_fuzz_replay_cluster_tap_SOURCES = %D%/fuzz/fuzz-cluster.c $(fuzz_replay)
tests_fuzz_replay_commands_tap_SOURCES = %D%/fuzz/fuzz-commands.c $(fsdplan_commands) $(fuzz_replay)
tests_fuzz_replay_commands_tap_LDADD = $(fsdplan_LDADD)
tests_fuzz_replay_files_tap_SOURCES = %D%/fuzz/fuzz-files.c $(fuzz_replay)
tests_fuzz_replay_files_tap_LDADD = $(exec_archives) $(plan_libs) $(exec_libs)
tests_fuzz_replay_import_tap_SOURCES = %D%/fuzz/fuzz-import.c $(fuzz_replay)
tests_fuzz_replay_indexed_tap_SOURCES = %D%/fuzz/fuzz-indexed.c $(fuzz_replay)
tests_fuzz_replay_indexed_tap_LDADD = $(exec_archives) $(plan_libs) $(exec_libs)
tests_fuzz_replay_logs_tap_SOURCES = %D%/fuzz/fuzz-logs.c $(fuzz_replay)
tests_fuzz_replay_megatron_tap_SOURCES = %D%/fuzz/fuzz-megatron.c $(fuzz_replay)
tests_fuzz_replay_model_tap_SOURCES = %D%/fuzz/fuzz-model.c $(fuzz_replay)
tests_fuzz_replay_plan_tap_SOURCES = %D%/fuzz/fuzz-plan.c $(fuzz_replay)
tests_fuzz_replay_runs_tap_SOURCES = %D%/fuzz/fuzz-runs.c $(fuzz_replay)
tests_fuzz_replay_safetensors_tap_SOURCES = %D%/fuzz/fuzz-safetensors.c $(fuzz_replay)
tests_fuzz_replay_schedule_tap_SOURCES = %D%/fuzz/fuzz-schedule.c $(fuzz_replay)
tests_fuzz_replay_steps_tap_SOURCES = %D%/fuzz/fuzz-steps.c $(fuzz_replay)
tests_fuzz_replay_store_tap_SOURCES = %D%/fuzz/fuzz-store.c $(fuzz_replay)
tests_fuzz_replay_timing_tap_SOURCES = %D%/fuzz/fuzz-timing.c $(fuzz_replay)
tests_fuzz_replay_topology_tap_SOURCES = %D%/fuzz/fuzz-topology.c $(fuzz_replay)
tests_fuzz_replay_trace_tap_SOURCES = %D%/fuzz/fuzz-trace.c $(fuzz_replay)

if ENABLE_FUZZERS
fuzzers = \
  %D%/fuzz/fuzz-adjust \
  %D%/fuzz/fuzz-cluster \
  %D%/fuzz/fuzz-commands \
  %D%/fuzz/fuzz-files \
  %D%/fuzz/fuzz-import \
  %D%/fuzz/fuzz-indexed \
  %D%/fuzz/fuzz-logs \
  %D%/fuzz/fuzz-megatron \
  %D%/fuzz/fuzz-model \
  %D%/fuzz/fuzz-plan \
  %D%/fuzz/fuzz-runs \
  %D%/fuzz/fuzz-safetensors \
  %D%/fuzz/fuzz-schedule \
  %D%/fuzz/fuzz-steps \
  %D%/fuzz/fuzz-store \
  %D%/fuzz/fuzz-timing \
  %D%/fuzz/fuzz-topology \
  %D%/fuzz/fuzz-trace
noinst_PROGRAMS += $(fuzzers)
tests_fuzz_fuzz_adjust_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_adjust_SOURCES = %D%/fuzz/fuzz-adjust.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_cluster_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_cluster_SOURCES = %D%/fuzz/fuzz-cluster.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_commands_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_commands_SOURCES = %D%/fuzz/fuzz-commands.c $(fsdplan_commands) %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_commands_LDADD = $(fsdplan_LDADD)
tests_fuzz_fuzz_files_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_files_SOURCES = %D%/fuzz/fuzz-files.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_files_LDADD = $(exec_archives) $(plan_libs) $(exec_libs)
tests_fuzz_fuzz_import_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_import_SOURCES = %D%/fuzz/fuzz-import.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_indexed_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_indexed_SOURCES = %D%/fuzz/fuzz-indexed.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_indexed_LDADD = $(exec_archives) $(plan_libs) $(exec_libs)
tests_fuzz_fuzz_logs_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_logs_SOURCES = %D%/fuzz/fuzz-logs.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_megatron_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_megatron_SOURCES = %D%/fuzz/fuzz-megatron.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_model_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_model_SOURCES = %D%/fuzz/fuzz-model.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_plan_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_plan_SOURCES = %D%/fuzz/fuzz-plan.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_runs_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_runs_SOURCES = %D%/fuzz/fuzz-runs.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_safetensors_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_safetensors_SOURCES = %D%/fuzz/fuzz-safetensors.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_schedule_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_schedule_SOURCES = %D%/fuzz/fuzz-schedule.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_steps_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_steps_SOURCES = %D%/fuzz/fuzz-steps.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_store_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_store_SOURCES = %D%/fuzz/fuzz-store.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_timing_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_timing_SOURCES = %D%/fuzz/fuzz-timing.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_topology_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_topology_SOURCES = %D%/fuzz/fuzz-topology.c %D%/fuzz/mutator.c $(fuzz_mutate)
tests_fuzz_fuzz_trace_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_LDFLAGS)
tests_fuzz_fuzz_trace_SOURCES = %D%/fuzz/fuzz-trace.c %D%/fuzz/mutator.c $(fuzz_mutate)
endif
FUZZ_SECONDS = 20
FUZZ_SEED = 0
fuzz: $(fuzzers) db/catalogue.db
	@FSDPLAN_CATALOGUE='$(abs_top_builddir)/db/catalogue.db' \
	  $(SHELL) $(srcdir)/%D%/fuzz/run-fuzz.sh $(FUZZ_SECONDS) $(FUZZ_SEED) $(srcdir)/%D%/fuzz/corpus $(fuzzers)

# Built by make check so that it keeps compiling, run by make bench only.
check_PROGRAMS += %D%/bench/bench-sim
bench: %D%/bench/bench-sim$(EXEEXT) fsdplan$(EXEEXT) fsdplan-exec-cpu$(EXEEXT)
	%D%/bench/bench-sim$(EXEEXT)
	@$(SHELL) $(srcdir)/%D%/bench/time-queries.sh ./fsdplan$(EXEEXT)
	@$(SHELL) $(srcdir)/%D%/bench/race-torch.sh ./fsdplan$(EXEEXT)
# What 100 simulations more take, in instructions: the same on every run.
bench-instructions: %D%/bench/bench-sim$(EXEEXT)
	@$(SHELL) $(srcdir)/%D%/bench/count-instructions.sh %D%/bench/bench-sim$(EXEEXT)
# How well steps on this machine's processors are predicted.
bench-here: fsdplan$(EXEEXT) fsdplan-exec-cpu$(EXEEXT)
	@$(SHELL) $(srcdir)/%D%/bench/predict-here.sh ./fsdplan$(EXEEXT)
# A step of 100M parameters here and in PyTorch, where PYTHON has that.
bench-torch: fsdplan$(EXEEXT) fsdplan-exec-cpu$(EXEEXT)
	@$(SHELL) $(srcdir)/%D%/bench/race-torch.sh ./fsdplan$(EXEEXT)
# How well collectives and steps over a network follow the model of it.
bench-network: fsdplan$(EXEEXT) fsdplan-exec-cpu$(EXEEXT)
	@top_srcdir='$(abs_top_srcdir)' $(SHELL) $(srcdir)/%D%/bench/predict-network.sh ./fsdplan$(EXEEXT)
# The tests that fail most often; no fake device is built for them.
check-quick:
	programs=`printf '%s ' $(check_tests) | tr ' ' '\n' | grep /unit/ | tr '\n' ' '`; \
	$(MAKE) $(AM_MAKEFLAGS) check check_PROGRAMS="$$programs" \
	  TESTS="$$programs $(golden_tests) $(source_tests)"
# All but what looks at the source, or runs for long what shorter tests run, too: the fake device
# watches the accesses of kernels by itself, and the fuzzer of whole commands is built with sanitizers
# and runs its corpus first. Programs that nothing else runs are not built.
check-sanitized:
	programs=`printf '%s ' $(check_PROGRAMS) | tr ' ' '\n' | \
	  grep -vE '/(bench-sim|exec-cuda|product-pairs|(prop-search|replay-commands|test-cuda-(graph|kernels))[.]tap)$$' | tr '\n' ' '`; \
	tests=`printf '%s ' $(TESTS) | tr ' ' '\n' | \
	  grep -vE '/(check-|prop-search[.]|replay-commands[.]|test-cuda-(graph|kernels)[.])' | \
	  grep -vE '/(answers|bench-gpu|front|gpu-rehearsal|mpi-product|python|readme|sources|torch|usage)[.]sh' | \
	  tr '\n' ' '`; \
	$(MAKE) $(AM_MAKEFLAGS) check check_PROGRAMS="$$programs" TESTS="$$tests"
# What runs by other code where BLAS, MPI and hwloc are missing, and one answer of each kind.
minimal_programs = \
  %D%/unit/test-bench.tap \
  %D%/unit/test-comm.tap \
  %D%/unit/test-exec.tap \
  %D%/unit/test-gradients.tap \
  %D%/unit/test-kernels.tap \
  %D%/unit/test-launch.tap \
  %D%/unit/test-rendezvous.tap \
  %D%/unit/test-placement.tap \
  %D%/unit/test-probe.tap \
  %D%/prop/prop-exec.tap
minimal_tests = \
  %D%/exec/checkpoint.sh \
  %D%/exec/faults.sh \
  %D%/exec/local.sh \
  %D%/exec/ranks.sh \
  %D%/exec/record.sh \
  %D%/exec/train.sh \
  %D%/golden/emit-megatron.test \
  %D%/golden/query-batch.test \
  %D%/golden/query-card.test \
  %D%/golden/sim-llama3-8b.test
check-minimal:
	$(MAKE) $(AM_MAKEFLAGS) check check_PROGRAMS='$(minimal_programs)' \
	  TESTS='$(minimal_programs) $(minimal_tests)'
# Before a release: every case of everything, the GPU day's script on the fake device, every plan.
check-release:
	FSDPLAN_SHARE=1 FSDPLAN_PRODUCT=whole $(MAKE) $(AM_MAKEFLAGS) check
# Every plan of the product of tests/prop/product.c; make check runs a share.
check-product:
	FSDPLAN_PRODUCT=whole $(MAKE) $(AM_MAKEFLAGS) check TESTS=%D%/prop/prop-product.tap
	@grep '^# ' %D%/prop/prop-product.log
# The headers of older toolkits, from the network.
check-toolkits:
	srcdir=$(srcdir) CC="$(CC)" GLIB_CFLAGS="$(GLIB_CFLAGS) $(JSON_CFLAGS)" sh $(srcdir)/%D%/check-toolkits.sh
# What needs root and a minute: all GPUs of the nodes that are played.
check-cluster:
	GPUS=8 $(MAKE) $(AM_MAKEFLAGS) check TESTS='%D%/exec/slurm.sh %D%/exec/network.sh'
.PHONY: bench bench-here bench-instructions bench-network bench-torch check-cluster check-toolkits check-minimal \
  check-product check-quick check-release check-sanitized fuzz

golden_tests = \
  %D%/golden/bench-dry-run.test \
  %D%/golden/bench-refused.test \
  %D%/golden/calibrate-distances.test \
  %D%/golden/calibrate-keeps.test \
  %D%/golden/calibrate-left-out.test \
  %D%/golden/calibrate-refused.test \
  %D%/golden/calibrate-small.test \
  %D%/golden/db-delete.test \
  %D%/golden/db-export-csv.test \
  %D%/golden/db-export-sql.test \
  %D%/golden/db-import.test \
  %D%/golden/db-list-json.test \
  %D%/golden/db-list-plans.test \
  %D%/golden/db-list.test \
  %D%/golden/db-refused.test \
  %D%/golden/db-show.test \
  %D%/golden/diff-csv.test \
  %D%/golden/diff-explain.test \
  %D%/golden/diff-from-megatron.test \
  %D%/golden/diff-json.test \
  %D%/golden/diff-models.test \
  %D%/golden/diff-nothing-fits.test \
  %D%/golden/diff-recompute.test \
  %D%/golden/emit-accelerate-fsdp1.test \
  %D%/golden/emit-accelerate.test \
  %D%/golden/emit-bridge-ddp.test \
  %D%/golden/emit-bridge-latent.test \
  %D%/golden/emit-bridge-pattern.test \
  %D%/golden/emit-bridge.test \
  %D%/golden/emit-graphs.test \
  %D%/golden/emit-eod.test \
  %D%/golden/emit-from-megatron.test \
  %D%/golden/emit-deepseek-pipeline.test \
  %D%/golden/emit-fsdp1.test \
  %D%/golden/emit-fsdp2.test \
  %D%/golden/emit-llama4-maverick.test \
  %D%/golden/emit-nemotron-3-nano.test \
  %D%/golden/emit-qwen3-next.test \
  %D%/golden/emit-llama4-scout.test \
  %D%/golden/emit-megatron-ddp.test \
  %D%/golden/emit-mi300x.test \
  %D%/golden/emit-megatron-fsdp-hybrid.test \
  %D%/golden/emit-megatron-fsdp.test \
  %D%/golden/emit-megatron-nodes.test \
  %D%/golden/emit-megatron.test \
  %D%/golden/emit-mpirun.test \
  %D%/golden/emit-nanotron.test \
  %D%/golden/emit-plan.test \
  %D%/golden/emit-read-back.test \
  %D%/golden/emit-refused-stacks.test \
  %D%/golden/emit-rope-scaling.test \
  %D%/golden/emit-refused.test \
  %D%/golden/emit-slurm-nanotron.test \
  %D%/golden/emit-slurm-native.test \
  %D%/golden/emit-slurm.test \
  %D%/golden/emit-torchrun.test \
  %D%/golden/emit-torchtitan-latent.test \
  %D%/golden/emit-torchtitan-gpt-oss.test \
  %D%/golden/emit-torchtitan-qwen3.test \
  %D%/golden/emit-torchtitan-pipeline.test \
  %D%/golden/emit-afab.test \
  %D%/golden/emit-torchtitan.test \
  %D%/golden/emit-unknown.test \
  %D%/golden/export-config.test \
  %D%/golden/export-refused.test \
  %D%/golden/from-megatron-70b.test \
  %D%/golden/from-megatron-interleaved.test \
  %D%/golden/from-megatron-pipeline.test \
  %D%/golden/from-megatron-8b-bf16.test \
  %D%/golden/from-megatron-8b-fp8.test \
  %D%/golden/from-megatron-broken.test \
  %D%/golden/from-megatron-cluster.test \
  %D%/golden/from-megatron-deepseek.test \
  %D%/golden/from-megatron-deepseek-pipeline.test \
  %D%/golden/from-megatron-gpt2.test \
  %D%/golden/from-megatron-log.test \
  %D%/golden/from-megatron-mixtral.test \
  %D%/golden/from-megatron-model.test \
  %D%/golden/from-megatron-no-value.test \
  %D%/golden/from-megatron-open-quote.test \
  %D%/golden/from-megatron-other-model.test \
  %D%/golden/from-megatron-other-version.test \
  %D%/golden/from-megatron-overrides.test \
  %D%/golden/from-megatron-presets.test \
  %D%/golden/from-megatron-qwen2.test \
  %D%/golden/from-megatron-unknown-vocabulary.test \
  %D%/golden/from-megatron-unset-variable.test \
  %D%/golden/help-command.test \
  %D%/golden/help-completion.test \
  %D%/golden/help-diff.test \
  %D%/golden/help-db.test \
  %D%/golden/help-emit.test \
  %D%/golden/help-export.test \
  %D%/golden/help-import.test \
  %D%/golden/help-lower.test \
  %D%/golden/help-plot.test \
  %D%/golden/help-query.test \
  %D%/golden/help-report.test \
  %D%/golden/help-run.test \
  %D%/golden/help-show.test \
  %D%/golden/help-sim.test \
  %D%/golden/help-bench.test \
  %D%/golden/help-calibrate.test \
  %D%/golden/help-validate.test \
  %D%/golden/help.test \
  %D%/golden/import-export.test \
  %D%/golden/import-line.test \
  %D%/golden/import-megatron.test \
  %D%/golden/import-nccl.test \
  %D%/golden/import-refused.test \
  %D%/golden/import-tables.test \
  %D%/golden/import-torchtitan.test \
  %D%/golden/lower-experts-only.test \
  %D%/golden/lower-fsdp2.test \
  %D%/golden/lower-megatron-fsdp.test \
  %D%/golden/lower-megatron.test \
  %D%/golden/lower-nanotron.test \
  %D%/golden/lower-native-chunks.test \
  %D%/golden/lower-native-context.test \
  %D%/golden/lower-native-experts.test \
  %D%/golden/lower-native-experts-gather.test \
  %D%/golden/lower-native-experts-mxfp8.test \
  %D%/golden/query-native-gpt-oss.test \
  %D%/golden/lower-native-no_shard.test \
  %D%/golden/lower-native-optim.test \
  %D%/golden/lower-native-optim_grads.test \
  %D%/golden/lower-native-optim_grads_params.test \
  %D%/golden/lower-native-pieces.test \
  %D%/golden/lower-one-rank.test \
  %D%/golden/plot-breakdown.test \
  %D%/golden/plot-breakdown-named.test \
  %D%/golden/plot-nothing-fits.test \
  %D%/golden/plot-refused.test \
  %D%/golden/byte-order-mark.test \
  %D%/golden/plot-stages-fullest.test \
  %D%/golden/plot-scaling.test \
  %D%/golden/plot-scaling-weak.test \
  %D%/golden/query-explain-illegal.test \
  %D%/golden/query-explain-json.test \
  %D%/golden/query-explain-too-large.test \
  %D%/golden/query-explain-twice.test \
  %D%/golden/query-explain.test \
  %D%/golden/query-from-megatron.test \
  %D%/golden/query-batch.test \
  %D%/golden/query-card.test \
  %D%/golden/query-mi300x.test \
  %D%/golden/query-closest.test \
  %D%/golden/query-closest-experts.test \
  %D%/golden/query-closest-hazard.test \
  %D%/golden/query-closest-megatron.test \
  %D%/golden/query-host-memory.test \
  %D%/golden/query-explain-task.test \
  %D%/golden/query-hazard.test \
  %D%/golden/query-illegal.test \
  %D%/golden/query-kept.test \
  %D%/golden/query-refused.test \
  %D%/golden/emit-pipeline.test \
  %D%/golden/plot-pipeline.test \
  %D%/golden/plot-pipeline-overlap.test \
  %D%/golden/sim-offload.test \
  %D%/golden/sim-pipeline.test \
  %D%/golden/query-stacks.test \
  %D%/golden/query-stacks-refused.test \
  %D%/golden/query-llama4.test \
  %D%/golden/query-max-seq.test \
  %D%/golden/query-max-seq-step.test \
  %D%/golden/query-max-mbs.test \
  %D%/golden/query-gpus.test \
  %D%/golden/query-gpus-late.test \
  %D%/golden/query-gpus-budget.test \
  %D%/golden/query-hybrid.test \
  %D%/golden/query-apart.test \
  %D%/golden/query-clusters.test \
  %D%/golden/query-moments.test \
  %D%/golden/query-nothing-fits.test \
  %D%/golden/query-only-set.test \
  %D%/golden/query-p-fits.test \
  %D%/golden/query-pipeline.test \
  %D%/golden/query-tiny.test \
  %D%/golden/query-unmodelled-stack.test \
  %D%/golden/refused-experts.test \
  %D%/golden/sim-explain.test \
  %D%/golden/sim-fp8-ub.test \
  %D%/golden/sim-fsdp1.test \
  %D%/golden/sim-fsdp2.test \
  %D%/golden/sim-gbs-in-tokens.test \
  %D%/golden/sim-megatron.test \
  %D%/golden/sim-mi300x.test \
  %D%/golden/sim-nanotron.test \
  %D%/golden/sim-gpt2.test \
  %D%/golden/sim-hw.test \
  %D%/golden/sim-mxfp8-hfsdp.test \
  %D%/golden/lower-experts.test \
  %D%/golden/lower-mtp.test \
  %D%/golden/lower-windows.test \
  %D%/golden/query-mixtral.test \
  %D%/golden/sim-deepseek-v3.test \
  %D%/golden/sim-mixtral.test \
  %D%/golden/refused-mtp.test \
  %D%/golden/refused-pipeline.test \
  %D%/golden/show-deepseek-v3.test \
  %D%/golden/show-cluster-alias.test \
  %D%/golden/show-cluster-ambiguous.test \
  %D%/golden/show-cluster-unknown.test \
  %D%/golden/show-costs.test \
  %D%/golden/show-dgx-h100.test \
  %D%/golden/show-dgx-h100-csv.test \
  %D%/golden/show-dgx-h100-ini.test \
  %D%/golden/show-gb200-json.test \
  %D%/golden/show-fields.test \
  %D%/golden/show-gpt2-json.test \
  %D%/golden/show-gpus.test \
  %D%/golden/show-llama3-8b.test \
  %D%/golden/show-llama3.2-1b-json.test \
  %D%/golden/show-nemotron-3-nano.test \
  %D%/golden/show-qwen3-next.test \
  %D%/golden/show-model-keys.test \
  %D%/golden/show-names.test \
  %D%/golden/show-plan.test \
  %D%/golden/show-plan-cp.test \
  %D%/golden/show-plan-csv.test \
  %D%/golden/show-plan-json.test \
  %D%/golden/show-rules.test \
  %D%/golden/show-stacks.test \
  %D%/golden/show-topology.test \
  %D%/golden/show-topology-ini.test \
  %D%/golden/show-topology-unnamed.test \
  %D%/golden/sim-llama3-70b.test \
  %D%/golden/sim-llama3-8b-json.test \
  %D%/golden/sim-llama3-8b.test \
  %D%/golden/sim-nothing-fits.test \
  %D%/golden/sim-recompute.test \
  %D%/golden/sim-nemotron-3-nano.test \
  %D%/golden/sim-qwen3-next.test \
  %D%/golden/sim-tokens.test \
  %D%/golden/sim-torchtitan-deep.test \
  %D%/golden/sim-torchtitan-pipeline.test \
  %D%/golden/sim-afab.test \
  %D%/golden/sim-pipeline-batches.test \
  %D%/golden/sim-sweep.test \
  %D%/golden/sim-sweep-sure.test \
  %D%/golden/sim-workspaces.test \
  %D%/golden/validate-foundry.test \
  %D%/golden/validate-json.test \
  %D%/golden/validate-refused.test \
  %D%/golden/validate-reliability.test \
  %D%/golden/validate-rows.test \
  %D%/golden/validate-small.test \
  %D%/golden/validate-sites.test \
  %D%/golden/validate-stdin.test \
  %D%/golden/validate-stored.test \
  %D%/golden/validate-wrong.test
source_tests = \
  %D%/check-cuda.sh \
  %D%/check-headers.sh \
  %D%/check-layers.sh \
  %D%/check-style.sh \
  %D%/check-wide.sh
script_tests = \
  $(source_tests) \
  %D%/exec/bench.sh \
  %D%/exec/carried.sh \
  %D%/exec/catalogue.sh \
  %D%/exec/checkpoint.sh \
  %D%/exec/completion.sh \
  %D%/exec/emit.sh \
  %D%/exec/emit-files.sh \
  %D%/exec/export.sh \
  %D%/exec/faults.sh \
  %D%/exec/gpu-sections.sh \
  %D%/exec/limits.sh \
  %D%/exec/local.sh \
  %D%/exec/log.sh \
  %D%/exec/html.sh \
  %D%/exec/config.sh \
  %D%/exec/python.sh \
  %D%/exec/schema.sh \
  %D%/exec/man.sh \
  %D%/exec/mpi.sh \
  %D%/exec/threads.sh \
  %D%/exec/mpi-product.sh \
  %D%/exec/network.sh \
  %D%/exec/ranks.sh \
  %D%/exec/record.sh \
  %D%/exec/report.sh \
  %D%/exec/slurm.sh \
  %D%/exec/sources.sh \
  %D%/exec/store.sh \
  %D%/exec/torch.sh \
  %D%/exec/train.sh \
  %D%/exec/output.sh \
  %D%/exec/usage.sh %D%/exec/answers.sh %D%/exec/front.sh \
  %D%/exec/workspaces.sh \
  %D%/golden/readme.sh
TESTS += $(golden_tests) $(script_tests)

EXTRA_DIST += %D%/README.md %D%/check-toolkits.sh %D%/lsan.supp $(script_tests) \
  %D%/gpu/race-torch.py %D%/gpu/sections.sh \
  %D%/bench/count-instructions.sh %D%/bench/predict-here.sh %D%/bench/predict-network.sh \
  %D%/bench/race-torch.py %D%/bench/race-torch.sh \
  %D%/bench/time-queries.sh %D%/exec/two-hosts.sh \
  %D%/unit/test-cost-case.h %D%/unit/test-config-case.h %D%/unit/test-lower-case.h %D%/unit/test-plan-case.h %D%/unit/test-names.h \
  %D%/unit/store-v1.sql %D%/unit/store-v2.sql %D%/unit/store-v3.sql %D%/unit/store-v4.sql %D%/golden/store-small.json \
  %D%/golden/runs-sites.csv %D%/golden/runs-small.csv \
  %D%/golden/runs-wrong.csv %D%/golden/workspaces.csv %D%/golden/logs \
  %D%/exec/emit-files.py %D%/exec/export-files.py %D%/exec/megatron-logits.py %D%/exec/projects.py %D%/exec/torch-losses.csv %D%/exec/torch-losses-gpt2.csv %D%/exec/torch-losses.py %D%/exec/transformers-losses.py \
  $(golden_tests) $(golden_tests:.test=.expected) %D%/golden/run-golden.sh \
  %D%/golden/megatron %D%/golden/topology \
  %D%/fuzz/corpus %D%/fuzz/run-fuzz.sh \
  %D%/release/network-split.sh %D%/release/odd-system.c %D%/release/ptx.sh %D%/release/store-fire.sh %D%/release/tsan-glib.c %D%/release/tsan.sh

# A library that the probe loads instead of the driver's, one that makes a rank slow, one that stops or
# kills one at a place, and one that presses Ctrl-C.
check_DATA = \
  %D%/fake/fault-rank.so %D%/fake/interrupt.so %D%/fake/nvml-fake.so %D%/fake/slow-rank.so
CLEANFILES += $(check_DATA)
EXTRA_DIST += %D%/fake/machine.xml %D%/fake/fault-rank.c %D%/fake/interrupt.c %D%/fake/nvml-fake.c \
  %D%/fake/slow-rank.c
%D%/fake/nvml-fake.so: %D%/fake/nvml-fake.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(CC) $(DEFS) -I. $(CPPFLAGS) -std=gnu11 $(CFLAGS) -shared -fPIC -o $@ $<

%D%/fake/interrupt.so: %D%/fake/interrupt.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(CC) $(DEFS) -I. $(CPPFLAGS) -std=gnu11 $(CFLAGS) -shared -fPIC -o $@ $<

%D%/fake/fault-rank.so: %D%/fake/fault-rank.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(CC) $(DEFS) -I. $(CPPFLAGS) -std=gnu11 $(CFLAGS) -shared -fPIC -o $@ $< $(DL_LIBS)

%D%/fake/slow-rank.so: %D%/fake/slow-rank.c
	$(AM_V_CCLD)$(MKDIR_P) $(@D) && $(CC) $(DEFS) -I. $(CPPFLAGS) -std=gnu11 $(CFLAGS) -shared -fPIC -o $@ $< $(DL_LIBS)

# CUDA on the CPU: the runtime and cuBLASLt as an archive, for host code compiled with
# $(fake_cuda_cppflags), and the kernels as another, with hooks where they touch memory (trace.cpp).
# Programs of the two need $(fake_cuda_ldflags).
AM_CXXFLAGS = -std=gnu++17 -ffp-contract=off $(WARN_CXXFLAGS) $(SAN_CFLAGS)
fake_cuda_archives = %D%/fake/libcudafakekernels.a %D%/fake/libcudafake.a
fake_cuda_cppflags = -I$(srcdir)/%D%/fake/include
fake_cuda_ldflags = $(AM_LDFLAGS) -Wl,--wrap=memcpy,--wrap=memset
fake_cuda_libs = $(fake_cuda_archives) $(exec_test_ldadd) -lstdc++
fake_cuda_sources = \
  %D%/fake/cublaslt.cpp %D%/fake/cublaslt.hpp \
  %D%/fake/cublaslt-check.cpp \
  %D%/fake/cublaslt-gemm.cpp \
  %D%/fake/cuda-fake.cpp %D%/fake/cuda-fake.h %D%/fake/device.hpp %D%/fake/simt.hpp \
  %D%/fake/memory.cpp \
  %D%/fake/operands.cpp %D%/fake/watch.h \
  %D%/fake/ptx.hpp %D%/fake/ptx-launch.cpp %D%/fake/ptx-read.cpp %D%/fake/ptx-run.cpp \
  %D%/fake/order.cpp %D%/fake/order.h \
  %D%/fake/races.cpp \
  %D%/fake/runtime.cpp \
  %D%/fake/stream.cpp \
  %D%/fake/trace.cpp
fake_kernel_sources = %D%/fake/cuda-kernels.cpp %D%/fake/planted.cpp %D%/fake/planted.h
fake_cudnn_sources = \
  %D%/fake/cudnn-fake.c %D%/fake/cudnn-fake.h %D%/fake/cudnn-fake-private.h \
  %D%/fake/cudnn-fake-run.c
fake_headers = \
  %D%/fake/include/cublasLt-calls.h \
  %D%/fake/include/cublasLt.h \
  %D%/fake/include/cublas_api.h \
  %D%/fake/include/cuda_runtime.h \
  %D%/fake/include/cuda_runtime_api.h \
  %D%/fake/include/driver_types.h \
  %D%/fake/include/driver_values.h \
  %D%/fake/include/library_types.h
compare_sources = \
  %D%/fake/compare.c %D%/fake/compare.h %D%/fake/compare-dims.c %D%/fake/compare-dims.h \
  %D%/fake/compare-operand.c %D%/fake/compare-operand.h \
  %D%/fake/compare-activation.c %D%/fake/compare-experts.c %D%/fake/compare-narrow.c \
  %D%/fake/compare-largest.c %D%/fake/compare-norms.c %D%/fake/compare-params.c %D%/fake/compare-split.c %D%/fake/compare-squares.c
fake_kernel_test_sources = $(compare_sources) %D%/fake/test-cuda-kernels.c
fake_test_sources = \
  %D%/fake/test-cublaslt.c %D%/fake/test-cublaslt-batch.c \
  %D%/fake/test-cuda-fake.c \
  %D%/fake/test-cuda-order.c
cuda_case_sources = %D%/fake/cuda-case.c %D%/fake/cuda-case.h %D%/fake/watch.c
fake_walk_sources = %D%/fake/test-cuda-gemm.c %D%/fake/test-cuda-walk.c \
  %D%/fake/test-cuda-bench.c %D%/fake/test-cuda-blocks.c %D%/fake/test-cuda-graph.c \
  %D%/fake/test-cuda-nccl.c %D%/fake/test-cuda-stages.c \
  %D%/fake/test-cuda-bytes.c %D%/fake/test-cuda-experts.c %D%/fake/test-cuda-modes.c %D%/fake/test-cuda-operands.c \
  %D%/fake/test-cuda-plans.c %D%/fake/test-cuda-params.c %D%/fake/test-cuda-split.c %D%/fake/test-cuda-squares.c \
  $(cuda_case_sources)
gpu_sources = $(compare_sources) %D%/gpu/test-cuda-kernels.c %D%/gpu/gpu-there.h
gemm_compare_sources = %D%/fake/gemm-compare.c %D%/fake/gemm-compare.h
batched_compare_sources = %D%/fake/batched-compare.c %D%/fake/batched-compare.h
fake_attention_sources = %D%/fake/test-cuda-attention.c $(batched_compare_sources)
EXTRA_DIST += $(fake_cuda_sources) $(fake_kernel_sources) $(fake_headers) \
  $(fake_kernel_test_sources) $(fake_test_sources) $(fake_walk_sources) $(gpu_sources) \
  $(gemm_compare_sources) %D%/gpu/test-cuda-gemm.c %D%/fake/real-headers.c \
  $(fake_attention_sources) %D%/gpu/test-cuda-attention.c
if HAVE_CHECK
if HAVE_CXX
check_LIBRARIES += $(fake_cuda_archives) %D%/fake/libexeccudafake.a
tests_fake_libcudafake_a_SOURCES = $(fake_cuda_sources)
tests_fake_libcudafakekernels_a_SOURCES = $(fake_kernel_sources)
tests_fake_libcudafakekernels_a_CXXFLAGS = $(AM_CXXFLAGS) -fno-sanitize=address -fsanitize=thread
tests_fake_libexeccudafake_a_SOURCES = \
  $(cuda_host_sources) exec/cuda/attention-fused.c $(cudnn_sources) $(fake_cudnn_sources)
tests_fake_libexeccudafake_a_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
fake_tests = \
  %D%/fake/test-cublaslt.tap \
  %D%/fake/test-cublaslt-batch.tap \
  %D%/fake/test-cuda-fake.tap \
  %D%/fake/test-cuda-kernels.tap \
  %D%/fake/test-cuda-order.tap \
  %D%/fake/test-cuda-attention.tap \
  %D%/fake/test-cuda-gemm.tap \
  %D%/fake/test-cuda-blocks.tap \
  %D%/fake/test-cuda-bytes.tap \
  %D%/fake/test-cuda-squares.tap \
  %D%/fake/test-cuda-graph.tap \
  %D%/fake/test-cuda-modes.tap \
  %D%/fake/test-cuda-operands.tap \
  %D%/fake/test-cuda-plans.tap \
  %D%/fake/test-cuda-params.tap %D%/fake/test-cuda-split.tap \
  %D%/fake/test-cuda-walk.tap
check_PROGRAMS += $(fake_tests)
TESTS += $(fake_tests)
tests_fake_test_cublaslt_tap_SOURCES = %D%/fake/test-cublaslt.c exec/cpu/gemm-plain.c
tests_fake_test_cublaslt_tap_LDADD = $(fake_cuda_libs)
tests_fake_test_cublaslt_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cublaslt_batch_tap_SOURCES = %D%/fake/test-cublaslt-batch.c
tests_fake_test_cublaslt_batch_tap_LDADD = $(fake_cuda_libs)
tests_fake_test_cublaslt_batch_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_fake_tap_SOURCES = %D%/fake/test-cuda-fake.c
tests_fake_test_cuda_fake_tap_LDADD = $(fake_cuda_libs)
tests_fake_test_cuda_fake_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_order_tap_SOURCES = %D%/fake/test-cuda-order.c
tests_fake_test_cuda_order_tap_LDADD = $(fake_cuda_libs)
tests_fake_test_cuda_order_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_kernels_tap_SOURCES = $(fake_kernel_test_sources)
tests_fake_test_cuda_kernels_tap_LDADD = $(fake_cuda_libs)
tests_fake_test_cuda_kernels_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_attention_tap_SOURCES = \
  $(fake_attention_sources) $(cuda_case_sources) exec/cpu/gemm-plain.c
tests_fake_test_cuda_attention_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_attention_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_attention_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_gemm_tap_SOURCES = \
  %D%/fake/test-cuda-gemm.c $(gemm_compare_sources) exec/cpu/gemm-plain.c
tests_fake_test_cuda_gemm_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_gemm_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_gemm_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_squares_tap_SOURCES = %D%/fake/test-cuda-squares.c
tests_fake_test_cuda_squares_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_squares_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_squares_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_blocks_tap_SOURCES = %D%/fake/test-cuda-blocks.c
tests_fake_test_cuda_blocks_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_blocks_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_blocks_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_graph_tap_SOURCES = \
  %D%/fake/test-cuda-graph.c $(cuda_case_sources) exec/cpu/gemm-plain.c
tests_fake_test_cuda_graph_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_graph_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_graph_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_bytes_tap_SOURCES = \
  %D%/fake/test-cuda-bytes.c $(cuda_case_sources) exec/cpu/gemm-plain.c
tests_fake_test_cuda_bytes_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_bytes_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_bytes_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_plans_tap_SOURCES = \
  %D%/fake/test-cuda-plans.c $(cuda_case_sources) exec/cpu/gemm-plain.c
tests_fake_test_cuda_plans_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_plans_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_plans_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_modes_tap_SOURCES = \
  %D%/fake/test-cuda-modes.c $(cuda_case_sources) exec/cpu/gemm-plain.c
tests_fake_test_cuda_modes_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_modes_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_modes_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_operands_tap_SOURCES = \
  %D%/fake/test-cuda-operands.c $(cuda_case_sources) exec/cpu/gemm-plain.c
tests_fake_test_cuda_operands_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_operands_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_operands_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_params_tap_SOURCES = \
  %D%/fake/test-cuda-params.c $(cuda_case_sources) exec/cpu/gemm-plain.c
tests_fake_test_cuda_params_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_params_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_params_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_split_tap_SOURCES = \
  %D%/fake/test-cuda-split.c $(cuda_case_sources) exec/cpu/gemm-plain.c
tests_fake_test_cuda_split_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_split_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_split_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_walk_tap_SOURCES = \
  %D%/fake/test-cuda-walk.c $(cuda_case_sources) exec/cpu/gemm-plain.c
tests_fake_test_cuda_walk_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_walk_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_walk_tap_LDFLAGS = $(fake_cuda_ldflags)
endif
# Tests that travel have a product of their own: a library for it would be the most of each.
if HAVE_CUDA
check_LIBRARIES += %D%/fake/librealheaders.a
tests_fake_librealheaders_a_SOURCES = %D%/fake/real-headers.c
tests_fake_librealheaders_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
check_PROGRAMS += %D%/gpu/test-cuda-attention.tap
TESTS += %D%/gpu/test-cuda-attention.tap
carried_programs += %D%/gpu/test-cuda-attention.tap
tests_gpu_test_cuda_attention_tap_SOURCES = \
  %D%/gpu/test-cuda-attention.c $(batched_compare_sources) exec/cpu/gemm-plain.c
tests_gpu_test_cuda_attention_tap_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_test_cuda_attention_tap_LDADD = \
  libexeccuda.a libcudakernels.a $(exec_test_ldadd) $(CUDA_LIBS)
check_PROGRAMS += %D%/gpu/test-cuda-gemm.tap %D%/gpu/test-cuda-kernels.tap
TESTS += %D%/gpu/test-cuda-gemm.tap %D%/gpu/test-cuda-kernels.tap
carried_programs += %D%/gpu/test-cuda-gemm.tap %D%/gpu/test-cuda-kernels.tap
tests_gpu_test_cuda_gemm_tap_SOURCES = \
  %D%/gpu/test-cuda-gemm.c $(gemm_compare_sources) exec/cpu/gemm-plain.c
tests_gpu_test_cuda_gemm_tap_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_test_cuda_gemm_tap_LDADD = libexeccuda.a libcudakernels.a $(exec_test_ldadd) $(CUDA_LIBS)
tests_gpu_test_cuda_kernels_tap_SOURCES = $(gpu_sources) exec/cpu/gemm-plain.c
tests_gpu_test_cuda_kernels_tap_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_test_cuda_kernels_tap_LDADD = libcudakernels.a $(exec_test_ldadd) $(CUDA_LIBS)
endif
endif

# NCCL: between threads on fake devices; on this machine's GPUs where it is found.
fake_nccl_sources = \
  %D%/fake/nccl-fake.c %D%/fake/nccl-fake.h %D%/fake/nccl-fake-private.h \
  %D%/fake/nccl-fake-carry.c %D%/fake/nccl-fake-memory.c
nccl_ranks = %D%/fake/nccl-ranks.c %D%/fake/nccl-ranks.h $(comm_ranks)
fake_nccl_test_sources = %D%/fake/test-nccl.c %D%/fake/nccl-meeting.c %D%/fake/nccl-meeting.h $(nccl_ranks)
gpu_nccl_sources = %D%/gpu/test-nccl.c $(nccl_ranks)
EXTRA_DIST += $(fake_nccl_sources) $(fake_nccl_test_sources) $(gpu_nccl_sources) \
  %D%/fake/include/nccl.h %D%/fake/real-nccl.c
if HAVE_CHECK
if HAVE_CXX
fake_nccl_tests = \
  %D%/fake/test-cuda-bench.tap \
  %D%/fake/test-cuda-experts.tap \
  %D%/fake/test-cuda-nccl.tap \
  %D%/fake/test-cuda-stages.tap \
  %D%/fake/test-nccl.tap
check_PROGRAMS += $(fake_nccl_tests)
TESTS += $(fake_nccl_tests)
tests_fake_test_cuda_bench_tap_SOURCES = \
  %D%/fake/test-cuda-bench.c $(cuda_case_sources) $(fake_nccl_sources) $(nccl_sources) \
  exec/cpu/gemm-plain.c
tests_fake_test_cuda_bench_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_bench_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_bench_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_nccl_tap_SOURCES = \
  %D%/fake/test-cuda-nccl.c $(cuda_case_sources) $(fake_nccl_sources) $(nccl_sources) \
  exec/cpu/gemm-plain.c
tests_fake_test_cuda_nccl_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_nccl_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_nccl_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_experts_tap_SOURCES = \
  %D%/fake/test-cuda-experts.c $(cuda_case_sources) $(fake_nccl_sources) $(nccl_sources) \
  exec/cpu/gemm-plain.c
tests_fake_test_cuda_experts_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_experts_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_experts_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_cuda_stages_tap_SOURCES = \
  %D%/fake/test-cuda-stages.c $(cuda_case_sources) $(fake_nccl_sources) $(nccl_sources) \
  exec/cpu/gemm-plain.c
tests_fake_test_cuda_stages_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cuda_stages_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cuda_stages_tap_LDFLAGS = $(fake_cuda_ldflags)
tests_fake_test_nccl_tap_SOURCES = $(fake_nccl_test_sources) $(fake_nccl_sources) $(nccl_sources)
tests_fake_test_nccl_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_nccl_tap_LDADD = $(fake_cuda_libs)
tests_fake_test_nccl_tap_LDFLAGS = $(fake_cuda_ldflags)
endif
if HAVE_NCCL
check_LIBRARIES += %D%/fake/librealnccl.a
tests_fake_librealnccl_a_SOURCES = %D%/fake/real-nccl.c
tests_fake_librealnccl_a_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS)
check_PROGRAMS += %D%/gpu/test-nccl.tap
TESTS += %D%/gpu/test-nccl.tap
carried_programs += %D%/gpu/test-nccl.tap
tests_gpu_test_nccl_tap_SOURCES = $(gpu_nccl_sources) exec/cpu/gemm-plain.c
tests_gpu_test_nccl_tap_CPPFLAGS = $(AM_CPPFLAGS) $(NCCL_CPPFLAGS)
tests_gpu_test_nccl_tap_LDADD = libexecnccl.a libcudakernels.a $(exec_test_ldadd) $(DL_LIBS) $(CUDA_LIBS)
endif
endif

# cuDNN: its graphs interpreted on fake devices; asked about GPUs that are not there where it is found.
attention_compare_sources = %D%/fake/attention-compare.c %D%/fake/attention-compare.h
EXTRA_DIST += $(fake_cudnn_sources) $(attention_compare_sources) \
  %D%/fake/test-cudnn.c %D%/gpu/test-cudnn.c %D%/gpu/test-cudnn-ask.c \
  %D%/fake/exec-cuda.c %D%/exec/bench-gpu.sh %D%/exec/gpu-rehearsal.sh \
  %D%/fake/include/cudnn.h %D%/fake/include/cudnn-calls.h %D%/fake/real-cudnn.c
if HAVE_CHECK
if HAVE_CXX
check_PROGRAMS += %D%/fake/test-cudnn.tap
TESTS += %D%/fake/test-cudnn.tap
tests_fake_test_cudnn_tap_SOURCES = %D%/fake/test-cudnn.c $(attention_compare_sources)
tests_fake_test_cudnn_tap_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_test_cudnn_tap_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_libs)
tests_fake_test_cudnn_tap_LDFLAGS = $(fake_cuda_ldflags)

# The whole program on fake GPUs, with NCCL between them.
check_PROGRAMS += %D%/fake/exec-cuda
tests_fake_exec_cuda_SOURCES = %D%/fake/exec-cuda.c $(exec_shared) cli/run/backend-cuda.c \
  exec/cuda/attention-driver.c $(fake_nccl_sources) $(nccl_sources)
tests_fake_exec_cuda_CPPFLAGS = $(AM_CPPFLAGS) $(fake_cuda_cppflags)
tests_fake_exec_cuda_LDADD = %D%/fake/libexeccudafake.a $(fake_cuda_archives) \
  libplots.a libadvise.a libdb.a libexec.a libsim.a libprobe.a libplanner.a \
  $(SMARTCOLS_LIBS) $(plan_libs) $(exec_libs) $(DL_LIBS) -lstdc++
tests_fake_exec_cuda_LDFLAGS = $(fake_cuda_ldflags) -Wl,--wrap=main
TESTS += %D%/exec/bench-gpu.sh %D%/exec/gpu-rehearsal.sh
endif
if HAVE_CUDNN
check_LIBRARIES += %D%/fake/librealcudnn.a
tests_fake_librealcudnn_a_SOURCES = %D%/fake/real-cudnn.c
tests_fake_librealcudnn_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDNN_CPPFLAGS)
check_PROGRAMS += %D%/gpu/test-cudnn.tap %D%/gpu/test-cudnn-ask.tap
TESTS += %D%/gpu/test-cudnn.tap %D%/gpu/test-cudnn-ask.tap
carried_programs += %D%/gpu/test-cudnn.tap
tests_gpu_test_cudnn_tap_SOURCES = \
  %D%/gpu/test-cudnn.c $(attention_compare_sources) exec/cpu/gemm-plain.c
tests_gpu_test_cudnn_tap_CPPFLAGS = $(AM_CPPFLAGS) $(CUDNN_CPPFLAGS)
tests_gpu_test_cudnn_tap_LDADD = libexeccudnn.a $(exec_test_ldadd) $(DL_LIBS) $(CUDA_LIBS)
tests_gpu_test_cudnn_ask_tap_SOURCES = %D%/gpu/test-cudnn-ask.c
tests_gpu_test_cudnn_ask_tap_CPPFLAGS = $(AM_CPPFLAGS) $(CUDNN_CPPFLAGS)
tests_gpu_test_cudnn_ask_tap_LDADD = libexeccudnn.a $(exec_test_ldadd) $(DL_LIBS) $(CUDA_LIBS)
endif
endif

# Last: what takes long has begun by then.
if HAVE_CHECK
TESTS += $(short_tests)
endif
