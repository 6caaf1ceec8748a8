/* All columns of a table of training runs: X (ID, "name", TYPE, needed).
 *
 * TYPE   TEXT    anything             NAME   a word         SWITCH  yes, no
 *        COUNT   integer >= 0         INT    integer >= 1   REAL    0, or from 1e-6
 *        USE     fit, report
 * An empty cell is an unknown value; a table without a needed column is not a table of runs. MiB
 * are 2^20 bytes, `vocab` is rows of the embedding as allocated, `seq` is the length before context
 * parallelism splits it, `mbs` and `gbs` are sequences. `notes` is "key=value; key=value". */
#pragma once

/* clang-format off */
#define PLAN_RUN_COLUMN_LIST(X) \
  X (ROW_ID, "row_id", TEXT, TRUE) X (GROUP, "group", TEXT, FALSE) X (USE, "use", USE, FALSE) \
  X (STACK, "stack", NAME, TRUE) X (STACK_DATE, "stack_date", TEXT, FALSE) \
  X (SOURCE, "source", TEXT, TRUE) X (QUALITY, "quality", NAME, FALSE) \
  X (FAMILY, "family", NAME, TRUE) X (LAYERS, "layers", INT, TRUE) X (HIDDEN, "hidden", INT, TRUE) \
  X (FFN, "ffn", INT, TRUE) X (HEADS, "heads", INT, TRUE) X (KV_HEADS, "kv_heads", INT, FALSE) \
  X (HEAD_DIM, "head_dim", INT, FALSE) X (VOCAB, "vocab", INT, TRUE) X (TIED, "tied", SWITCH, FALSE) \
  X (SEQ, "seq", INT, TRUE) X (GPU, "gpu", NAME, TRUE) X (GPUS, "gpus", INT, TRUE) \
  X (GPUS_PER_NODE, "gpus_per_node", INT, FALSE) X (MBS, "mbs", INT, TRUE) X (GBS, "gbs", INT, TRUE) \
  X (TP, "tp", INT, FALSE) X (SP, "sp", SWITCH, FALSE) X (PP, "pp", INT, FALSE) \
  X (VPP, "vpp", INT, FALSE) X (CP, "cp", INT, FALSE) X (EP, "ep", INT, FALSE) \
  X (EXPERTS, "experts", COUNT, FALSE) X (TOPK, "topk", COUNT, FALSE) \
  X (EXPERT_FFN, "expert_ffn", COUNT, FALSE) X (SHARED_EXPERT_FFN, "shared_expert_ffn", COUNT, FALSE) \
  X (FIRST_DENSE_LAYERS, "first_dense_layers", COUNT, FALSE) X (STRATEGY, "strategy", NAME, TRUE) \
  X (DP_OUTER, "dp_outer", INT, FALSE) X (OUTER_STRATEGY, "outer_strategy", NAME, FALSE) \
  X (COMPUTE, "compute", NAME, TRUE) X (PARAM_GATHER, "param_gather", NAME, FALSE) \
  X (MAIN_PARAMS, "main_params", NAME, FALSE) X (MAIN_GRADS, "main_grads", NAME, FALSE) \
  X (GRAD_COMM, "grad_comm", NAME, FALSE) X (EXP_AVG, "exp_avg", NAME, FALSE) \
  X (EXP_AVG_SQ, "exp_avg_sq", NAME, FALSE) X (PRECISION_AWARE, "precision_aware", SWITCH, FALSE) \
  X (OPTIMIZER, "optimizer", NAME, FALSE) X (RECOMPUTE, "recompute", NAME, TRUE) \
  X (RECOMPUTE_MODULES, "recompute_modules", NAME, FALSE) \
  X (RECOMPUTE_METHOD, "recompute_method", NAME, FALSE) \
  X (RECOMPUTE_LAYERS, "recompute_layers", INT, FALSE) \
  X (DOUBLE_BUFFER, "double_buffer", SWITCH, FALSE) X (NCCL_UB, "nccl_ub", SWITCH, FALSE) \
  X (COMPILE, "compile", SWITCH, FALSE) X (OFFLOAD_OPTIMIZER, "offload_optimizer", REAL, FALSE) \
  X (OFFLOAD_ACTIVATIONS, "offload_activations", NAME, FALSE) X (TASK, "task", NAME, FALSE) \
  X (OOM, "oom", SWITCH, FALSE) X (STEP_MS, "step_ms", REAL, FALSE) \
  X (TOKENS_PER_S_PER_GPU, "tokens_per_s_per_gpu", REAL, FALSE) \
  X (TFLOPS_PER_GPU, "tflops_per_gpu", REAL, FALSE) X (TFLOPS_KIND, "tflops_kind", NAME, FALSE) \
  X (ALLOCATED_MIB, "allocated_mib", REAL, FALSE) X (MAX_ALLOCATED_MIB, "max_allocated_mib", REAL, FALSE) \
  X (RESERVED_MIB, "reserved_mib", REAL, FALSE) X (DEVICE_MIB, "device_mib", REAL, FALSE) \
  X (TIME_OK, "time_ok", SWITCH, FALSE) X (MEMORY_OK, "memory_ok", SWITCH, FALSE) \
  X (NOTES, "notes", TEXT, FALSE)
/* clang-format on */

typedef enum
{
#define X(id, name, type, needed) PLAN_RUN_##id,
  PLAN_RUN_COLUMN_LIST (X)
#undef X
      PLAN_N_RUN_COLUMNS
} PlanRunColumn;
