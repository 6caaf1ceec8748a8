/* Kernels of rotary positions and attention. */
#pragma once
#include "exec/kernels.h"
G_BEGIN_DECLS

/* exec/cpu/kernels-cpu-positions.c */
void exec_cpu_rope (const ExecArgs *args);

/* exec/cpu/kernels-cpu-rope.c */
void exec_cpu_latent_rope (const ExecArgs *args);
void exec_cpu_latent_rope_bwd (const ExecArgs *args);

/* exec/cpu/kernels-cpu-attention.c */
void exec_cpu_attention (const ExecArgs *args);
void exec_cpu_attention_bwd (const ExecArgs *args);
void exec_cpu_attention_join (const ExecArgs *args);
void exec_cpu_attention_sink (const ExecArgs *args);
void exec_cpu_attention_sink_bwd (const ExecArgs *args);
void exec_cpu_latent_attention (const ExecArgs *args);
void exec_cpu_latent_attention_bwd (const ExecArgs *args);

G_END_DECLS
