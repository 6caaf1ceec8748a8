/* Launchers of biases of experts and of sinks, like those in exec/cuda/kernels/kernels.h. */
#pragma once
#include "exec/kernels.h"
G_BEGIN_DECLS

int exec_cuda_add_expert_bias (const ExecArgs *args, void *stream);
int exec_cuda_add_expert_bias_bwd (const ExecArgs *args, void *stream);
int exec_cuda_attention_sink (const ExecArgs *args, void *stream);
int exec_cuda_attention_sink_bwd (const ExecArgs *args, void *stream);

G_END_DECLS
