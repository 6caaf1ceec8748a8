/* Launchers of dropout, like those in exec/cuda/kernels/kernels.h. */
#pragma once
#include "exec/kernels.h"
G_BEGIN_DECLS

/* dropout.cu */
int exec_cuda_dropout (const ExecArgs *args, void *stream);
int exec_cuda_dropout_add (const ExecArgs *args, void *stream);
int exec_cuda_dropout_bwd (const ExecArgs *args, void *stream);

G_END_DECLS
