/* ExecAttentionGraph: causal attention, or its gradient, as a graph of operations of cuDNN's
 * backend API. cuDNN fuses it into one kernel or a few; its one-piece operation has no causal mask
 * before 9.21. Query heads share key and value heads in groups; all of them lie in rows of qkv. */
#pragma once
#include "exec/cuda/attention-cudnn.h"
#include <stdbool.h>

#include <cudnn.h>
G_BEGIN_DECLS

/* What a graph is given, by its unique ids. */
typedef enum
{
  EXEC_ATTENTION_Q = 1,
  EXEC_ATTENTION_K,
  EXEC_ATTENTION_V,
  EXEC_ATTENTION_OUT,
  EXEC_ATTENTION_STATS, /* log of the sum of exponentials; fp32 [batch, heads, seq] */
  EXEC_ATTENTION_DOUT,
  EXEC_ATTENTION_DQ,
  EXEC_ATTENTION_DK,
  EXEC_ATTENTION_DV,
  EXEC_ATTENTION_ROW_SUMS, /* of out * dout; fp32 [batch, heads, seq] */
  EXEC_ATTENTION_DQ_SUMS,  /* fp32 [batch, heads, seq, head_dim]; not if deterministic */
  EXEC_ATTENTION_SCALE,    /* host memory, fp32, from here on */
  EXEC_ATTENTION_MASKED,
  EXEC_ATTENTION_ONE,
  EXEC_ATTENTION_N_TENSORS
} ExecAttentionTensor;

typedef struct
{
  GPtrArray *descriptors; /* all of them, oldest first */
  GArray *operations;     /* those among them */
  cudnnBackendDescriptor_t graph;
  gint64 next_id;
  cudnnStatus_t status; /* of the first call that failed */
  const char *failed;   /* what that was */
} ExecAttentionGraph;

/* For a handle's device, or without one for any. */
gboolean exec_attention_graph_init (ExecAttentionGraph *self, const ExecAttentionShape *shape,
                                    cudnnHandle_t handle, GError **error);
void exec_attention_graph_clear (ExecAttentionGraph *self);

/* A descriptor that lives as long as the graph; NULL once something failed. */
cudnnBackendDescriptor_t exec_attention_graph_add (ExecAttentionGraph *self,
                                                   cudnnBackendDescriptorType_t type);
void exec_attention_graph_set (ExecAttentionGraph *self, cudnnBackendDescriptor_t descriptor,
                               cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                               gint64 count, const void *values);
void exec_attention_graph_finalize (ExecAttentionGraph *self, cudnnBackendDescriptor_t descriptor,
                                    const char *what);

/* What the heuristics propose, best first. */
#define EXEC_ATTENTION_ENGINES 4

typedef struct
{
  guint n;
  cudnnBackendDescriptor_t engine[EXEC_ATTENTION_ENGINES];
  gint64 workspace[EXEC_ATTENTION_ENGINES]; /* bytes */
} ExecAttentionEngines;

/* For the described device, or without one for the handle's. */
void exec_attention_graph_engines (ExecAttentionGraph *self, cudnnBackendDescriptor_t device,
                                   ExecAttentionEngines *out);

/* A plan by one of them, for the handle's device, and what workspace it says it wants; NULL: it
 * cannot be built, and the error, which is the graph's no longer, says why. */
cudnnBackendDescriptor_t exec_attention_graph_plan (ExecAttentionGraph *self, cudnnHandle_t handle,
                                                    cudnnBackendDescriptor_t engine,
                                                    gint64 *out_workspace, GError **error);

/* Bytes of what is between the operations and in memory: row sums and sums of dq, each aligned. */
guint64 exec_attention_inner_bytes (const ExecAttentionShape *shape);
guint64 exec_attention_row_sums_bytes (const ExecAttentionShape *shape);

/* FALSE, with cuDNN's own words, once something failed. */
gboolean exec_attention_graph_check (const ExecAttentionGraph *self, GError **error);

G_END_DECLS
