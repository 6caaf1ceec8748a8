/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cuda/attention-cudnn.h"

#include "exec/cuda/attention-graph.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#include <math.h>
#include <string.h>

struct _ExecAttention
{
  cudnnHandle_t handle;
  GPtrArray *plans; /* Plan */
};

typedef struct
{
  ExecAttentionShape shape;
  ExecAttentionGraph graph;
  cudnnBackendDescriptor_t plan; /* one of the graph's descriptors */
  gint64 workspace;              /* bytes that cuDNN itself wants */
} Plan;

static gboolean
check (cudnnStatus_t status, const char *call, GError **error)
{
  char text[512] = "";

  if (status == CUDNN_STATUS_SUCCESS)
    return TRUE;
  cudnnGetLastErrorString (text, sizeof text);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_BACKEND, "%s: %s%s%s", call,
               cudnnGetErrorString (status), *text != '\0' ? ": " : "", text);
  return FALSE;
}

/* Leaves the function when the call fails; its text is in the message. */
#define CUDNN_TRY(call, error) \
  G_STMT_START \
  { \
    if (!check (call, #call, error)) \
      return FALSE; \
  } \
  G_STMT_END

static void
plan_free (gpointer data)
{
  Plan *plan = data;

  exec_attention_graph_clear (&plan->graph);
  g_free (plan);
}

ExecAttention *
exec_attention_new (GError **error)
{
  cudnnHandle_t handle;
  ExecAttention *self;

  if (!check (cudnnCreate (&handle), "cudnnCreate", error))
    return NULL;
  self = g_new0 (ExecAttention, 1);
  self->handle = handle;
  self->plans = g_ptr_array_new_with_free_func (plan_free);
  return self;
}

void
exec_attention_free (ExecAttention *self)
{
  g_ptr_array_unref (self->plans);
  if (cudnnDestroy (self->handle) != CUDNN_STATUS_SUCCESS)
    g_warning ("cudnnDestroy failed");
  g_free (self);
}

/* --- plans -------------------------------------------------------------------------------- */

/* The oldest version that the graphs here are made for. Below 9.6 cuDNN adds to a gradient of q
 * that it does not clear (NVIDIA's cudnn-frontend clears it in
 * scaled_dot_product_flash_attention.h), and configure wants headers of 9.8. An older library may
 * still be loaded, because all from 9.0 on have the same name. */
#define OLDEST_VERSION 90800

/* Why this version of cuDNN does not do this shape right, as the end of a sentence; NULL: nothing
 * is known against it. Faults of versions are those that NVIDIA's cudnn-frontend knows; it refuses
 * all but the last, which it works around with a mask that costs time. */
static const char *
known_fault (const ExecAttentionShape *shape, guint version)
{
  if (shape->is_backward && shape->seq == 1)
    return "has more than one token backwards";
  if (version == 0)
    return "needs libcudnn.so.9, which is not found: NVIDIA's package cudnn9, or pip install "
           "nvidia-cudnn-cu12 with its folder in LD_LIBRARY_PATH";
  if (version < OLDEST_VERSION)
    return "is taken from version 9.8.0 on, and goes wrong backwards below 9.6";
  if (version == 91000 || version == 91001)
    return "is wrong in versions 9.10.0 and 9.10.1";
  if (shape->is_backward && shape->seq % 128 != 0 && version <= 91500)
    return "goes wrong backwards up to version 9.15.0 where tokens are no multiple of 128";
  return NULL;
}

gboolean
exec_attention_check_shape (const ExecAttentionShape *shape, GError **error)
{
  const char *why = NULL;

  if (shape->dtype != PLAN_DTYPE_BF16 && shape->dtype != PLAN_DTYPE_FP16)
    why = "is in bf16 or fp16";
  else if (shape->batch <= 0 || shape->seq <= 0 || shape->kv_heads <= 0 || shape->heads <= 0
           || shape->heads % shape->kv_heads != 0)
    why = "needs the same number of query heads for each key head";
  else if (shape->head_dim <= 0 || shape->head_dim % 8 != 0)
    why = "has heads of a multiple of 8 elements";
  else
    why = known_fault (shape, exec_attention_version ());
  if (why == NULL)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "cuDNN's attention %s", why);
  return FALSE;
}

gboolean
exec_attention_shape_equal (const ExecAttentionShape *a, const ExecAttentionShape *b)
{
  return a->batch == b->batch && a->seq == b->seq && a->heads == b->heads
         && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->dtype == b->dtype
         && a->is_backward == b->is_backward && a->is_deterministic == b->is_deterministic
         && a->window == b->window;
}

/* Makes a plan of the first engine that the heuristics propose and cuDNN can compile. */
static gboolean
compile (Plan *plan, cudnnHandle_t handle, GError **error)
{
  ExecAttentionGraph *graph = &plan->graph;
  g_autoptr (GError) why = NULL;
  ExecAttentionEngines engines;

  if (!exec_attention_graph_init (graph, &plan->shape, handle, error))
    return FALSE;
  exec_attention_graph_engines (graph, NULL, &engines);
  if (!exec_attention_graph_check (graph, error))
    return FALSE;
  for (guint i = 0; i < engines.n && plan->plan == NULL; i++)
    {
      g_clear_error (&why);
      plan->plan
          = exec_attention_graph_plan (graph, handle, engines.engine[i], &plan->workspace, &why);
      plan->workspace = MAX (plan->workspace, engines.workspace[i]);
      if (why != NULL)
        g_debug ("engine %u of %u: %s", i + 1, engines.n, why->message);
    }
  if (engines.n == 0)
    g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                         "cuDNN has no engine for attention of this shape on this GPU");
  else if (plan->plan == NULL)
    g_propagate_error (error, g_steal_pointer (&why));
  return plan->plan != NULL;
}

static const Plan *
plan_of (ExecAttention *self, const ExecAttentionShape *shape, GError **error)
{
  Plan *made;

  for (guint i = 0; i < self->plans->len; i++)
    if (exec_attention_shape_equal (shape, &((const Plan *)self->plans->pdata[i])->shape))
      return self->plans->pdata[i];
  if (!exec_attention_check_shape (shape, error))
    return NULL;
  made = g_new0 (Plan, 1);
  made->shape = *shape;
  if (!compile (made, self->handle, error))
    {
      plan_free (made);
      return NULL;
    }
  g_ptr_array_add (self->plans, made);
  return made;
}

gboolean
exec_attention_workspace (ExecAttention *self, const ExecAttentionShape *shape, guint64 *out_bytes,
                          GError **error)
{
  const Plan *plan = plan_of (self, shape, error);

  if (plan == NULL)
    return FALSE;
  *out_bytes = exec_attention_inner_bytes (shape) + (guint64)plan->workspace;
  return TRUE;
}

/* --- runs --------------------------------------------------------------------------------- */

/* A variant pack: the ids of the tensors that a plan is given, and their addresses. */
typedef struct
{
  gint64 id[EXEC_ATTENTION_N_TENSORS];
  void *at[EXEC_ATTENTION_N_TENSORS];
  gint64 n;
} Pack;

static void
give (Pack *pack, ExecAttentionTensor id, const void *at)
{
  pack->id[pack->n] = id;
  pack->at[pack->n++] = (void *)at;
}

/* Gives q, k and v, or their gradients: the heads in rows of qkv or of dqkv. */
static void
give_rows (Pack *pack, const ExecAttentionShape *shape, ExecAttentionTensor first,
           const guint8 *rows)
{
  const guint64 head = plan_dtype_bytes (shape->dtype, (guint64)shape->head_dim);

  give (pack, first, rows);
  give (pack, first + 1, rows + (guint64)shape->heads * head);
  give (pack, first + 2, rows + (guint64)(shape->heads + shape->kv_heads) * head);
}

static void
give_all (Pack *pack, const ExecAttentionShape *shape, const ExecAttentionOperands *operands)
{
  give_rows (pack, shape, EXEC_ATTENTION_Q, operands->qkv);
  give (pack, EXEC_ATTENTION_OUT, operands->out);
  give (pack, EXEC_ATTENTION_STATS, operands->lse);
  if (!shape->is_backward)
    return;
  give_rows (pack, shape, EXEC_ATTENTION_DQ, operands->dqkv);
  give (pack, EXEC_ATTENTION_DOUT, operands->dout);
  give (pack, EXEC_ATTENTION_ROW_SUMS, operands->workspace);
  if (!shape->is_deterministic)
    give (pack, EXEC_ATTENTION_DQ_SUMS,
          (guint8 *)operands->workspace + exec_attention_row_sums_bytes (shape));
}

static gboolean
execute (const ExecAttention *self, const Plan *plan, cudnnBackendDescriptor_t variant,
         const Pack *pack, void *workspace, GError **error)
{
  CUDNN_TRY (cudnnBackendSetAttribute (variant, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                       CUDNN_TYPE_INT64, pack->n, pack->id),
             error);
  CUDNN_TRY (cudnnBackendSetAttribute (variant, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                       CUDNN_TYPE_VOID_PTR, pack->n, pack->at),
             error);
  CUDNN_TRY (cudnnBackendSetAttribute (variant, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                       CUDNN_TYPE_VOID_PTR, 1, &workspace),
             error);
  CUDNN_TRY (cudnnBackendFinalize (variant), error);
  CUDNN_TRY (cudnnBackendExecute (self->handle, plan->plan, variant), error);
  return TRUE;
}

gboolean
exec_attention_run (ExecAttention *self, const ExecAttentionShape *shape,
                    const ExecAttentionOperands *operands, void *stream, GError **error)
{
  const double scalar = operands->scalar > 0 ? operands->scalar : (double)shape->head_dim;
  const float scale = (float)(1 / sqrt (scalar)), masked = -INFINITY, one = 1;
  const float window = (float)shape->window; /* exact below 2^24 */
  const Plan *plan = plan_of (self, shape, error);
  cudnnBackendDescriptor_t variant;
  Pack pack = { .n = 0 };
  gboolean ok;

  if (plan == NULL)
    return FALSE;
  give_all (&pack, shape, operands);
  give (&pack, EXEC_ATTENTION_SCALE, &scale); /* cuDNN reads it before execute returns */
  give (&pack, EXEC_ATTENTION_MASKED, &masked);
  if (shape->is_backward)
    give (&pack, EXEC_ATTENTION_ONE, &one);
  if (shape->window > 0)
    give (&pack, EXEC_ATTENTION_WINDOW, &window);
  CUDNN_TRY (cudnnSetStream (self->handle, stream), error);
  CUDNN_TRY (cudnnBackendCreateDescriptor (CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &variant), error);
  ok = execute (self, plan, variant, &pack,
                (guint8 *)operands->workspace + exec_attention_inner_bytes (shape), error);
  cudnnBackendDestroyDescriptor (variant);
  return ok;
}
