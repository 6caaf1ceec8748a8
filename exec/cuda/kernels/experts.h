/* Launchers of what experts do, as in kernels.h. */
#pragma once
#include "exec/kernels.h"
G_BEGIN_DECLS

#define EXEC_CUDA_MOST_EXPERTS 1024 /* that a router chooses from */

/* router.cu */
int exec_cuda_route (const ExecArgs *args, void *stream);
int exec_cuda_balance (const ExecArgs *args, void *stream);
int exec_cuda_count_routes (const ExecArgs *args, void *stream);
int exec_cuda_route_bwd (const ExecArgs *args, void *stream);

/* experts.cu */
int exec_cuda_permute (const ExecArgs *args, void *stream);
int exec_cuda_unpermute (const ExecArgs *args, void *stream);
int exec_cuda_scale_rows (const ExecArgs *args, void *stream);
int exec_cuda_scale_rows_bwd (const ExecArgs *args, void *stream);
int exec_cuda_expert_activate (const ExecArgs *args, void *stream);
int exec_cuda_expert_activate_bwd (const ExecArgs *args, void *stream);
int exec_cuda_gate (const ExecArgs *args, void *stream);
int exec_cuda_gate_bwd (const ExecArgs *args, void *stream);

/* expert-bias.cu: biases of experts, and sinks of attention */
int exec_cuda_add_expert_bias (const ExecArgs *args, void *stream);
int exec_cuda_add_expert_bias_bwd (const ExecArgs *args, void *stream);
int exec_cuda_attention_sink (const ExecArgs *args, void *stream);
int exec_cuda_attention_sink_bwd (const ExecArgs *args, void *stream);

/* row-map.cu */
int exec_cuda_drop_tokens (const ExecArgs *args, void *stream);

/* row-map.cu: makes the map of a row_map. */
int exec_cuda_sort_rows (const ExecArgs *args, void *stream);

G_END_DECLS
