/* Attention's launchers by products in batches and a softmax: where cuDNN has no graph, and as a
 * second opinion. A turn is some queries of some key heads of a sequence, as many as the op's
 * scratch holds scores of; the query heads of a key head follow one another, so that the gradients
 * of keys and values are summed in one order. What cuBLASLt takes in no batch, attention.cu does.
 */
#pragma once
#include "exec/kernels.h"
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  EXEC_CUDA_WAY_AUTO,    /* cuDNN's where it has a graph, else batched, else plain */
  EXEC_CUDA_WAY_BATCHED, /* never cuDNN's */
  EXEC_CUDA_WAY_PLAIN,   /* attention.cu's alone */
} ExecCudaWay;

/* What FSDPLAN_ATTENTION asks for: auto unless set. */
gboolean exec_cuda_attention_way (ExecCudaWay *out, GError **error);

/* For the thread that calls; each open is followed by a close. The device is set. */
gboolean exec_cuda_batched_attention_open (GError **error);
void exec_cuda_batched_attention_close (void);

/* An ExecLauncher each; the code is one for exec_cuda_check. */
int exec_cuda_batched_attention (const ExecArgs *args, void *stream);
int exec_cuda_batched_attention_bwd (const ExecArgs *args, void *stream);

G_END_DECLS
