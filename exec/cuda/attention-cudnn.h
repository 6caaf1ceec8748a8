/* ExecAttention: cuDNN's attention for one GPU and thread. What cuDNN makes for a shape is made
 * once; an NVRTC compilation of a fraction of a second. Workspace is the caller's. */
#pragma once
#include "planner/base/dtype.h"
#include <glib.h>
G_BEGIN_DECLS

/* Everything that a plan depends on. */
typedef struct
{
  gint64 batch, seq, heads, kv_heads, head_dim;
  PlanDtype dtype; /* bf16 or fp16 */
  gboolean is_backward;
  gboolean is_deterministic; /* dq without atomics: memory grows with the square of seq on some */
} ExecAttentionShape;

/* UNSUPPORTED where cuDNN need not be asked: what it would refuse in less clear words, or read
 * beyond a row. */
gboolean exec_attention_check_shape (const ExecAttentionShape *shape, GError **error);
gboolean exec_attention_shape_equal (const ExecAttentionShape *a, const ExecAttentionShape *b);

/* Device memory, qkv and dqkv in rows as kernels-cpu-attention.c says. */
typedef struct
{
  const void *qkv;
  void *out, *lse;  /* results forwards, operands backwards */
  const void *dout; /* backwards */
  void *dqkv;
  void *workspace; /* exec_attention_workspace, 256-byte aligned */
} ExecAttentionOperands;

typedef struct _ExecAttention ExecAttention;

/* For the device that is set. */
ExecAttention *exec_attention_new (GError **error);
void exec_attention_free (ExecAttention *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecAttention, exec_attention_free)

/* Bytes of workspace, cuDNN's own and that of intermediate results; UNSUPPORTED with cuDNN's reason
 * where it has no kernel for the shape here. Plans what was not planned before. */
gboolean exec_attention_workspace (ExecAttention *self, const ExecAttentionShape *shape,
                                   guint64 *out_bytes, GError **error);

/* Issues it on a CUDA stream. */
gboolean exec_attention_run (ExecAttention *self, const ExecAttentionShape *shape,
                             const ExecAttentionOperands *operands, void *stream, GError **error);

/* cuDNN loads the driver's library, also to be asked about a GPU that is not there: without a
 * driver the toolkit's stub is loaded for it. To be called first. */
gboolean exec_attention_load_driver (GError **error);

/* The same bytes for a GPU that need not be there: cuDNN's heuristics are asked by the GPU's
 * properties. */
gboolean exec_attention_ask (const ExecAttentionShape *shape, const char *gpu, guint64 *out_bytes,
                             GError **error);

/* Names that `ask` knows, NULL at the end. */
const char *const *exec_attention_gpus (void);

/* The name of one with that compute capability: 90 is 9.0. NULL: none. */
const char *exec_attention_gpu_of (gint64 capability);

/* As cuDNN numbers it: 91900. */
guint exec_attention_version (void);

G_END_DECLS
