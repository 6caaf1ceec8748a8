/* Launchers of attention by batched GEMMs and a softmax kernel: where cuDNN has no graph, and as a
 * second opinion. The op is cut into turns: some queries of some key heads of a sequence, as many
 * as the op's scratch holds scores of. The query heads of a key head follow one another, so the
 * gradients of keys and values are always summed in one order. Where cuBLASLt refuses a batched
 * product, attention.cu does the op. */
#pragma once
#include "exec/kernels.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  EXEC_CUDA_WAY_AUTO,    /* cuDNN where it has a graph, else batched GEMMs, else the plain kernel */
  EXEC_CUDA_WAY_BATCHED, /* batched GEMMs, else the plain kernel */
  EXEC_CUDA_WAY_PLAIN,   /* the plain kernel of attention.cu */
} ExecCudaWay;

/* What the environment variable FSDPLAN_ATTENTION asks for; AUTO if it is not set. */
gboolean exec_cuda_attention_way (ExecCudaWay *out, GError **error);

/* Prepares the calling thread for its current CUDA device. Each open is followed by a close. */
gboolean exec_cuda_batched_attention_open (GError **error);
void exec_cuda_batched_attention_close (void);

/* Each is an ExecLauncher; the code it returns is one for exec_cuda_check. */
int exec_cuda_batched_attention (const ExecArgs *args, void *stream);
int exec_cuda_batched_attention_bwd (const ExecArgs *args, void *stream);
int exec_cuda_batched_latent (const ExecArgs *args, void *stream);
int exec_cuda_batched_latent_bwd (const ExecArgs *args, void *stream);

G_END_DECLS
