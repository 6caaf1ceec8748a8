noinst_LIBRARIES += libplanner.a
libplanner_a_SOURCES =
# Text, numbers, errors.
libplanner_a_SOURCES += \
  %D%/base/csv.c %D%/base/csv.h \
  %D%/base/dtype.c %D%/base/dtype.h \
  %D%/base/each.h \
  %D%/base/error.c %D%/base/error.h \
  %D%/base/json.c %D%/base/json.h \
  %D%/base/lines.c %D%/base/lines.h \
  %D%/base/text.c %D%/base/text.h \
  %D%/base/units.c %D%/base/units.h
# Transformers.
libplanner_a_SOURCES += \
  %D%/model/cut.h \
  %D%/model/delta.h \
  %D%/model/ssm.h \
  %D%/model/layer-kinds.c %D%/model/layer-kinds.h \
  %D%/model/model.c %D%/model/model-private.h %D%/model/model.h \
  %D%/model/model-config.c \
  %D%/model/model-config-experts.c \
  %D%/model/model-config-gpt.c \
  %D%/model/model-config-llama4.c \
  %D%/model/model-config-pattern.c \
  %D%/model/model-config-keys.c \
  %D%/model/model-config-rope.c \
  %D%/model/model-config-write.c %D%/model/model-config-write.h \
  %D%/model/model-json.c \
  %D%/model/model-tensors.c \
  %D%/model/model-text.c \
  %D%/model/alibi.c %D%/model/alibi.h \
  %D%/model/preset.c %D%/model/preset.h \
  %D%/model/rope.c %D%/model/rope.h \
  %D%/model/safetensors.c %D%/model/safetensors.h \
  %D%/model/stage.c %D%/model/stage.h \
  %D%/model/tensor.h \
  %D%/model/tensor-list.h
# Machines.
libplanner_a_SOURCES += \
  %D%/cluster/cluster.c %D%/cluster/cluster-private.h %D%/cluster/cluster.h \
  %D%/cluster/cluster-facts.c %D%/cluster/cluster-facts.h \
  %D%/cluster/cluster-names.c \
  %D%/cluster/cluster-text.c \
  %D%/cluster/topology.c %D%/cluster/topology-private.h %D%/cluster/topology.h \
  %D%/cluster/topology-matrix.c \
  %D%/cluster/topology-xml.c
# What one rank does in a step, and what happened when it ran.
libplanner_a_SOURCES += \
  %D%/schedule/arena.c %D%/schedule/arena.h \
  %D%/schedule/echo.h \
  %D%/schedule/manner.c %D%/schedule/manner.h \
  %D%/schedule/meter.c %D%/schedule/meter.h \
  %D%/schedule/op.c %D%/schedule/op.h \
  %D%/schedule/op-list.h %D%/schedule/op-enums.h \
  %D%/schedule/joined.c %D%/schedule/joined.h \
  %D%/schedule/quantizers.c %D%/schedule/quantizers.h \
  %D%/schedule/sequence.c %D%/schedule/sequence.h \
  %D%/schedule/schedule.c %D%/schedule/schedule-private.h %D%/schedule/schedule.h \
  %D%/schedule/check-stages.c %D%/schedule/check-stages.h \
  %D%/schedule/schedule-check.c \
  %D%/schedule/schedule-text.c \
  %D%/schedule/scratch.c %D%/schedule/scratch.h \
  %D%/schedule/step-ops.c %D%/schedule/step-ops.h \
  %D%/schedule/trace.c %D%/schedule/trace.h \
  %D%/schedule/trace-phases.c \
  %D%/schedule/trace-text.c \
  %D%/schedule/workspaces.c %D%/schedule/workspaces.h
# Points of the plan space, rules, frameworks.
libplanner_a_SOURCES += \
  %D%/plan/megatron-lacks.c %D%/plan/megatron-lacks.h \
  %D%/plan/native.c %D%/plan/native.h \
  %D%/plan/placing.h \
  %D%/plan/plan.c %D%/plan/plan.h \
  %D%/plan/plan-fields.h \
  %D%/plan/plan-words.c %D%/plan/plan-words.h \
  %D%/plan/rules.c %D%/plan/rules-private.h %D%/plan/rules.h \
  %D%/plan/rules-experts.c \
  %D%/plan/rules-graphs.c \
  %D%/plan/rules-illegal.c \
  %D%/plan/rules-pipeline.c \
  %D%/plan/rules-stacks.c \
  %D%/plan/rules-unbuilt.c \
  %D%/plan/stack.c %D%/plan/stack.h %D%/plan/stack-private.h %D%/plan/stack-choices.h \
  %D%/plan/stack-grads.h %D%/plan/stack-issue.h %D%/plan/stack-layer.h %D%/plan/stack-weights.h \
  %D%/plan/stack-fsdp1.c \
  %D%/plan/stack-fsdp2.c \
  %D%/plan/stack-megatron-fsdp.c \
  %D%/plan/stack-megatron.c \
  %D%/plan/stack-nanotron.c \
  %D%/plan/stack-native.c \
  %D%/plan/stack-history.c %D%/plan/stack-history.h \
  %D%/plan/pp-layout.c %D%/plan/pp-layout.h \
  %D%/plan/stages.c %D%/plan/stages.h
# Where parameters lie.
libplanner_a_SOURCES += \
  %D%/layout/buckets.c %D%/layout/buckets.h \
  %D%/layout/layout.c %D%/layout/layout.h \
  %D%/layout/packing.c %D%/layout/packing.h \
  %D%/layout/slice.c %D%/layout/slice.h
# A plan to a schedule.
libplanner_a_SOURCES += \
  %D%/case/case.c %D%/case/case.h \
  %D%/graph/layer-builder.h %D%/graph/layer-delta.c %D%/graph/layer-experts.c %D%/graph/layer-latent.c \
  %D%/graph/layer-ssm.c \
  %D%/graph/layer-captured.c \
  %D%/graph/layer-graph.c %D%/graph/layer-graph.h %D%/graph/layer-kept.c \
  %D%/graph/layer-nodes.h %D%/graph/layer-values.h %D%/graph/value-set.h \
  %D%/case/hazards.c %D%/case/hazards.h \
  %D%/lower/lower.c %D%/lower/lower-private.h %D%/lower/lower.h \
  %D%/lower/lower-acts.c %D%/lower/lower-acts.h \
  %D%/lower/lower-attention.c \
  %D%/lower/lower-backward.c \
  %D%/lower/lower-buckets.c %D%/lower/lower-buckets.h \
  %D%/lower/lower-emit.c %D%/lower/lower-emit.h \
  %D%/lower/lower-experts.c \
  %D%/lower/lower-forward.c \
  %D%/lower/lower-gradient.c \
  %D%/lower/lower-joined-rows.c \
  %D%/lower/lower-mixers.c \
  %D%/lower/lower-module.c \
  %D%/lower/lower-layer.c %D%/lower/lower-layer-private.h %D%/lower/lower-layer.h \
  %D%/lower/lower-layer-backward.c \
  %D%/lower/lower-loss.c %D%/lower/lower-loss.h \
  %D%/lower/lower-groups.c \
  %D%/lower/lower-combined.c %D%/lower/lower-combined.h \
  %D%/lower/lower-pipeline.c \
  %D%/lower/lower-interleaved.c \
  %D%/lower/lower-permute.c \
  %D%/lower/lower-sequential.c \
  %D%/lower/lower-offload.c %D%/lower/lower-offload.h \
  %D%/lower/lower-buffers.h %D%/lower/lower-parts.h %D%/lower/lower-shape.h \
  %D%/lower/lower-quantizers.c \
  %D%/lower/lower-step.c %D%/lower/lower-step.h \
  %D%/lower/lower-tp-overlap.c \
  %D%/lower/lower-values.c
# The best plans of a space.
libplanner_a_SOURCES += \
  %D%/search/bound.c %D%/search/bound.h \
  %D%/search/detour.c %D%/search/detour.h \
  %D%/search/cuts.c %D%/search/cuts.h \
  %D%/search/search.c %D%/search/search.h \
  %D%/search/space.c %D%/search/space.h
# Megatron-LM's command lines and logs.
libplanner_a_SOURCES += \
  %D%/megatron/megatron.c %D%/megatron/megatron.h \
  %D%/megatron/megatron-command.c \
  %D%/megatron/megatron-expand.c \
  %D%/megatron/megatron-flags.h \
  %D%/megatron/megatron-log.c \
  %D%/megatron/megatron-pattern.c %D%/megatron/megatron-pattern.h \
  %D%/megatron/megatron-rules.c %D%/megatron/megatron-rules.h \
  %D%/megatron/megatron-settings.c %D%/megatron/megatron-settings.h \
  %D%/megatron/megatron-shape.c %D%/megatron/megatron-shape.h \
  %D%/megatron/megatron-shell.c %D%/megatron/megatron-shell-private.h %D%/megatron/megatron-shell.h \
  %D%/megatron/megatron-stages.c %D%/megatron/megatron-stages.h \
  %D%/megatron/megatron-table.c %D%/megatron/megatron-table.h
# A plan as what starts it.
libplanner_a_SOURCES += \
  %D%/emit/emit.c %D%/emit/emit-private.h %D%/emit/emit.h \
  %D%/emit/emit-accelerate.c \
  %D%/emit/emit-bridge.c \
  %D%/emit/emit-fsdp1.c \
  %D%/emit/emit-fsdp2.c \
  %D%/emit/emit-megatron.c \
  %D%/emit/emit-megatron-fsdp.c \
  %D%/emit/emit-megatron-model.c \
  %D%/emit/emit-nanotron.c \
  %D%/emit/emit-script.c \
  %D%/emit/emit-torch.c \
  %D%/emit/emit-torchtitan.c
# Tables and logs of measured runs.
libplanner_a_SOURCES += \
  %D%/runs/accuracy.c %D%/runs/accuracy.h \
  %D%/runs/event-file.c %D%/runs/event-file.h \
  %D%/runs/nccl-log.c %D%/runs/nccl-log.h \
  %D%/runs/run-columns.h \
  %D%/runs/run-experts.c \
  %D%/runs/run-facts.c \
  %D%/runs/run-stages.c \
  %D%/runs/run-model-cluster.c \
  %D%/runs/run-notes.c \
  %D%/runs/run-private.h \
  %D%/runs/run-row.c \
  %D%/runs/run-table.c %D%/runs/run-table.h \
  %D%/runs/step-log.c %D%/runs/step-log.h \
  %D%/runs/train-log.c %D%/runs/train-log.h
nodist_libplanner_a_SOURCES = $(planner_embedded)

planner_embedded = %D%/data/clusters.ini.inc %D%/data/gpus.ini.inc \
  %D%/data/megatron-flags.txt.inc %D%/data/models.ini.inc %D%/data/runs.ini.inc
BUILT_SOURCES += $(planner_embedded)
CLEANFILES += $(planner_embedded)
# A target made by itself, before BUILT_SOURCES are, finds them too.
$(libplanner_a_OBJECTS): | $(planner_embedded)
EXTRA_DIST += %D%/README.md %D%/data/clusters.ini %D%/data/emit-names.txt %D%/data/gpus.ini %D%/data/megatron-flags.txt \
  %D%/data/models.ini %D%/data/runs.ini
%D%/data/clusters.ini.inc: %D%/data/clusters.ini
	$(EMBED)
%D%/data/megatron-flags.txt.inc: %D%/data/megatron-flags.txt
	$(EMBED)
%D%/data/models.ini.inc: %D%/data/models.ini
	$(EMBED)
%D%/data/runs.ini.inc: %D%/data/runs.ini
	$(EMBED)
%D%/data/gpus.ini.inc: %D%/data/gpus.ini
	$(EMBED)
