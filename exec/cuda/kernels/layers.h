/* Launchers of what only some models' layers have, like those in exec/cuda/kernels/kernels.h. */
#pragma once
#include "exec/kernels.h"
G_BEGIN_DECLS

/* dropout.cu */
int exec_cuda_dropout (const ExecArgs *args, void *stream);
int exec_cuda_dropout_add (const ExecArgs *args, void *stream);
int exec_cuda_dropout_bwd (const ExecArgs *args, void *stream);

/* latent-rope.cu */
int exec_cuda_latent_rope (const ExecArgs *args, void *stream);
int exec_cuda_latent_rope_bwd (const ExecArgs *args, void *stream);

/* attention.cu: latent attention */
int exec_cuda_latent_attention (const ExecArgs *args, void *stream);
int exec_cuda_latent_attention_bwd (const ExecArgs *args, void *stream);

G_END_DECLS
