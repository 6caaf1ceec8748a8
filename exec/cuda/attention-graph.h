/* ExecAttentionGraph: causal attention, perhaps within a window, or its gradient, as a graph of
 * operations of cuDNN's backend API, which fuses them into one kernel or a few. (cuDNN's single
 * operation for attention has no causal mask before 9.21.) Groups of query heads share a key head
 * and a value head; all heads lie in rows of qkv. */
#pragma once
#include "exec/cuda/attention-cudnn.h"
#include <stdbool.h>

#include <cudnn.h>
G_BEGIN_DECLS

/* The tensors that the caller gives a graph, by their unique ids. */
typedef enum
{
  EXEC_ATTENTION_Q = 1,
  EXEC_ATTENTION_K,
  EXEC_ATTENTION_V,
  EXEC_ATTENTION_OUT,
  EXEC_ATTENTION_STATS, /* log of the sum of exponentials of a row; fp32 [batch, heads, seq] */
  EXEC_ATTENTION_DOUT,
  EXEC_ATTENTION_DQ,
  EXEC_ATTENTION_DK,
  EXEC_ATTENTION_DV,
  EXEC_ATTENTION_ROW_SUMS, /* sum of out * dout of a row; fp32 [batch, heads, seq] */
  EXEC_ATTENTION_DQ_SUMS,  /* fp32 [batch, heads, seq, head_dim]; none in deterministic runs */
  EXEC_ATTENTION_SCALE,    /* from here on numbers in host memory, fp32 */
  EXEC_ATTENTION_MASKED,   /* the score of a key that is masked out */
  EXEC_ATTENTION_ONE,
  EXEC_ATTENTION_WINDOW, /* where there is one */
  EXEC_ATTENTION_N_TENSORS
} ExecAttentionTensor;

typedef struct
{
  GPtrArray *descriptors; /* all that the graph owns, oldest first */
  GArray *operations;     /* the descriptors that are operations */
  cudnnBackendDescriptor_t graph;
  gint64 next_id;
  cudnnStatus_t status; /* of the first call that failed */
  const char *failed;   /* what that call was about */
} ExecAttentionGraph;

/* Makes the graph for the GPU of a handle; without a handle, for any GPU. */
gboolean exec_attention_graph_init (ExecAttentionGraph *self, const ExecAttentionShape *shape,
                                    cudnnHandle_t handle, GError **error);
void exec_attention_graph_clear (ExecAttentionGraph *self);

/* Adds a descriptor that lives as long as the graph; NULL once a call has failed. */
cudnnBackendDescriptor_t exec_attention_graph_add (ExecAttentionGraph *self,
                                                   cudnnBackendDescriptorType_t type);
void exec_attention_graph_set (ExecAttentionGraph *self, cudnnBackendDescriptor_t descriptor,
                               cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                               gint64 count, const void *values);
void exec_attention_graph_finalize (ExecAttentionGraph *self, cudnnBackendDescriptor_t descriptor,
                                    const char *what);

/* How many engines the heuristics are asked for. */
#define EXEC_ATTENTION_ENGINES 4

typedef struct
{
  guint n;
  cudnnBackendDescriptor_t engine[EXEC_ATTENTION_ENGINES];
  gint64 workspace[EXEC_ATTENTION_ENGINES]; /* bytes */
} ExecAttentionEngines;

/* Asks the heuristics for engines, best first: for the GPU that `device` describes, or if that is
 * NULL for the handle's. */
void exec_attention_graph_engines (ExecAttentionGraph *self, cudnnBackendDescriptor_t device,
                                   ExecAttentionEngines *out);

/* Makes a plan of an engine for the handle's GPU, and gives the bytes of workspace it wants. NULL
 * if it cannot be built: then `error` says why, and the graph can still be used. */
cudnnBackendDescriptor_t exec_attention_graph_plan (ExecAttentionGraph *self, cudnnHandle_t handle,
                                                    cudnnBackendDescriptor_t engine,
                                                    gint64 *out_workspace, GError **error);

/* Bytes of intermediate results in the workspace: of row sums and sums of dq together, each
 * aligned; and of row sums alone. */
guint64 exec_attention_inner_bytes (const ExecAttentionShape *shape);
guint64 exec_attention_row_sums_bytes (const ExecAttentionShape *shape);

/* FALSE, with cuDNN's own words, once a call has failed. */
gboolean exec_attention_graph_check (const ExecAttentionGraph *self, GError **error);

G_END_DECLS
