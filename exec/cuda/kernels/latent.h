/* Launchers of latent attention, like those in exec/cuda/kernels/kernels.h. */
#pragma once
#include "exec/kernels.h"
G_BEGIN_DECLS

/* latent-rope.cu */
int exec_cuda_latent_rope (const ExecArgs *args, void *stream);
int exec_cuda_latent_rope_bwd (const ExecArgs *args, void *stream);

/* attention.cu */
int exec_cuda_latent_attention (const ExecArgs *args, void *stream);
int exec_cuda_latent_attention_bwd (const ExecArgs *args, void *stream);

G_END_DECLS
