/* Kernels of experts: exec/cpu/kernels-cpu-experts.c, and for their activations
 * exec/cpu/kernels-cpu-activation.c. */
#pragma once
#include "exec/kernels.h"
G_BEGIN_DECLS

void exec_cpu_route (const ExecArgs *args);
void exec_cpu_route_bwd (const ExecArgs *args);
void exec_cpu_count_routes (const ExecArgs *args);
void exec_cpu_drop_tokens (const ExecArgs *args);
void exec_cpu_row_map (const ExecArgs *args);
void exec_cpu_permute (const ExecArgs *args);
void exec_cpu_unpermute (const ExecArgs *args);
void exec_cpu_grouped_gemm (const ExecArgs *args);
void exec_cpu_grouped_quantize (const ExecArgs *args);
void exec_cpu_grouped_transpose (const ExecArgs *args);
void exec_cpu_scale_rows (const ExecArgs *args);
void exec_cpu_scale_rows_bwd (const ExecArgs *args);
void exec_cpu_expert_activate (const ExecArgs *args);
void exec_cpu_expert_activate_bwd (const ExecArgs *args);
void exec_cpu_add_expert_bias (const ExecArgs *args);
void exec_cpu_add_expert_bias_bwd (const ExecArgs *args);
void exec_cpu_gate (const ExecArgs *args);
void exec_cpu_gate_bwd (const ExecArgs *args);

G_END_DECLS
