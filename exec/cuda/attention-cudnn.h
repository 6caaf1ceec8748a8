/* ExecAttention: cuDNN's attention on one GPU, for one thread. A plan is made once per shape;
 * compiling it by NVRTC takes a fraction of a second. The caller brings the workspace. */
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
  gboolean is_deterministic; /* dq without atomics; for some shapes workspace then grows with the
                                square of seq */
  gint64 window;             /* the most keys that a query sees, its own included; 0: all that are
                                not after it */
} ExecAttentionShape;

/* Whether cuDNN can be asked for this shape; UNSUPPORTED if it would refuse it in less clear words,
 * or read beyond a row. */
gboolean exec_attention_check_shape (const ExecAttentionShape *shape, GError **error);
gboolean exec_attention_shape_equal (const ExecAttentionShape *a, const ExecAttentionShape *b);

/* All in device memory, qkv and dqkv in rows as kernels-cpu-attention.c says. */
typedef struct
{
  const void *qkv;
  void *out, *lse;  /* written by the forward pass, read by the backward pass */
  const void *dout; /* of the backward pass, as is dqkv */
  void *dqkv;
  double scalar;   /* scores are divided by its root; 0: by that of head_dim */
  void *workspace; /* exec_attention_workspace bytes, aligned to 256 */
} ExecAttentionOperands;

typedef struct _ExecAttention ExecAttention;

/* For the current CUDA device. */
ExecAttention *exec_attention_new (GError **error);
void exec_attention_free (ExecAttention *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (ExecAttention, exec_attention_free)

/* Bytes of workspace: cuDNN's own, and those of intermediate results. Makes a plan for the shape if
 * there is none yet. UNSUPPORTED, with cuDNN's reason, where it has no kernel for the shape on this
 * GPU. */
gboolean exec_attention_workspace (ExecAttention *self, const ExecAttentionShape *shape,
                                   guint64 *out_bytes, GError **error);

/* Issues the attention on a CUDA stream. */
gboolean exec_attention_run (ExecAttention *self, const ExecAttentionShape *shape,
                             const ExecAttentionOperands *operands, void *stream, GError **error);

/* Loads the driver's library, which cuDNN needs even to be asked about a GPU that is not there.
 * Where there is no driver it loads the CUDA toolkit's stub. To be called before all others. */
gboolean exec_attention_load_driver (GError **error);

/* The bytes of exec_attention_workspace on a GPU that need not be there: cuDNN's heuristics are
 * given its properties. */
gboolean exec_attention_ask (const ExecAttentionShape *shape, const char *gpu, guint64 *out_bytes,
                             GError **error);

/* Names of GPUs that exec_attention_ask knows, NULL at the end. */
const char *const *exec_attention_gpus (void);

/* The name of a GPU of that compute capability (90 is 9.0); NULL: none is known. */
const char *exec_attention_gpu_of (gint64 capability);

/* cuDNN's version as it numbers itself (91900 is 9.19.0); 0: it is not found. */
guint exec_attention_version (void);

G_END_DECLS
