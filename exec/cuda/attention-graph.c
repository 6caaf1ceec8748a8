/* SPDX-License-Identifier: Apache-2.0 */
/* The graphs of attention and of its gradient, written one operation a line. cuDNN's engines
 * recognise these very sequences of operations; others that compute the same are not supported. */
#include "config.h"

#include "exec/cuda/attention-graph.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#define ALIGNMENT 256 /* of each array in the workspace, in bytes */

typedef cudnnBackendDescriptor_t Tensor;

/* Sizes and strides of a tensor, in elements. */
typedef struct
{
  gint64 size[4], stride[4];
} Layout;

/* --- descriptors -------------------------------------------------------------------------- */

/* Keeps the status of the first call that failed; after it nothing more is called. */
static void
note (ExecAttentionGraph *self, cudnnStatus_t status, const char *what)
{
  if (status == CUDNN_STATUS_SUCCESS || self->failed != NULL)
    return;
  self->status = status;
  self->failed = what;
}

cudnnBackendDescriptor_t
exec_attention_graph_add (ExecAttentionGraph *self, cudnnBackendDescriptorType_t type)
{
  cudnnBackendDescriptor_t made = NULL;

  if (self->failed != NULL)
    return NULL;
  note (self, cudnnBackendCreateDescriptor (type, &made), "a descriptor");
  if (made != NULL)
    g_ptr_array_add (self->descriptors, made);
  return made;
}

void
exec_attention_graph_set (ExecAttentionGraph *self, cudnnBackendDescriptor_t descriptor,
                          cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          gint64 count, const void *values)
{
  if (self->failed == NULL)
    note (self, cudnnBackendSetAttribute (descriptor, name, type, count, values), "an attribute");
}

void
exec_attention_graph_finalize (ExecAttentionGraph *self, cudnnBackendDescriptor_t descriptor,
                               const char *what)
{
  if (self->failed == NULL)
    note (self, cudnnBackendFinalize (descriptor), what);
}

gboolean
exec_attention_graph_check (const ExecAttentionGraph *self, GError **error)
{
  char text[512] = "";

  if (self->failed == NULL)
    return TRUE;
  cudnnGetLastErrorString (text, sizeof text);
  g_set_error (error, PLAN_ERROR,
               self->status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 ? PLAN_ERROR_UNSUPPORTED
                                                                        : PLAN_ERROR_BACKEND,
               "cuDNN refuses %s of attention: %s%s%s", self->failed,
               cudnnGetErrorString (self->status), *text != '\0' ? ": " : "", text);
  return FALSE;
}

#define SET(descriptor, name, type, value) \
  exec_attention_graph_set (self, descriptor, CUDNN_ATTR_##name, CUDNN_TYPE_##type, 1, value)

static void
set_descriptor (ExecAttentionGraph *self, cudnnBackendDescriptor_t in,
                cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
  exec_attention_graph_set (self, in, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

/* --- tensors ------------------------------------------------------------------------------ */

static Tensor
add_tensor (ExecAttentionGraph *self, gint64 id, cudnnDataType_t type, const Layout *layout,
            bool is_virtual, bool is_by_value)
{
  Tensor made = exec_attention_graph_add (self, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const gint64 alignment = 16;

  SET (made, TENSOR_UNIQUE_ID, INT64, &id);
  SET (made, TENSOR_DATA_TYPE, DATA_TYPE, &type);
  exec_attention_graph_set (self, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4,
                            layout->size);
  exec_attention_graph_set (self, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4,
                            layout->stride);
  SET (made, TENSOR_BYTE_ALIGNMENT, INT64, &alignment);
  SET (made, TENSOR_IS_VIRTUAL, BOOLEAN, &is_virtual);
  SET (made, TENSOR_IS_BY_VALUE, BOOLEAN, &is_by_value);
  exec_attention_graph_finalize (self, made, "a tensor");
  return made;
}

/* Adds a virtual tensor, which only operations of the graph read and write. */
static Tensor
add_inner (ExecAttentionGraph *self, cudnnDataType_t type, const Layout *layout)
{
  return add_tensor (self, self->next_id++, type, layout, true, false);
}

/* Adds a tensor in the caller's device memory. */
static Tensor
add_outer (ExecAttentionGraph *self, ExecAttentionTensor id, cudnnDataType_t type,
           const Layout *layout)
{
  return add_tensor (self, id, type, layout, false, false);
}

/* Adds a number that the caller gives in host memory. */
static Tensor
add_scalar (ExecAttentionGraph *self, ExecAttentionTensor id)
{
  return add_tensor (self, id, CUDNN_DATA_FLOAT, &(Layout){ { 1, 1, 1, 1 }, { 1, 1, 1, 1 } }, false,
                     true);
}

static Layout
packed (gint64 a, gint64 b, gint64 c, gint64 d)
{
  return (Layout){ { a, b, c, d }, { b * c * d, c * d, d, 1 } };
}

/* The same elements, with the last two dimensions exchanged. */
static Layout
transposed (Layout layout)
{
  return (Layout){ { layout.size[0], layout.size[1], layout.size[3], layout.size[2] },
                   { layout.stride[0], layout.stride[1], layout.stride[3], layout.stride[2] } };
}

/* --- operations --------------------------------------------------------------------------- */

static void
end_operation (ExecAttentionGraph *self, cudnnBackendDescriptor_t operation, const char *what)
{
  exec_attention_graph_finalize (self, operation, what);
  g_array_append_val (self->operations, operation);
}

static Tensor
matmul (ExecAttentionGraph *self, Tensor a, Tensor b, Tensor out)
{
  cudnnBackendDescriptor_t kind = exec_attention_graph_add (self, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;

  SET (kind, MATMUL_COMP_TYPE, DATA_TYPE, &type);
  exec_attention_graph_finalize (self, kind, "a product");
  cudnnBackendDescriptor_t operation
      = exec_attention_graph_add (self, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set_descriptor (self, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  set_descriptor (self, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  set_descriptor (self, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, out);
  set_descriptor (self, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
  end_operation (self, operation, "a product");
  return out;
}

/* Adds a pointwise operation. Operands that it lacks are NULL; `axis` is for GEN_INDEX alone. */
static Tensor
pointwise_at (ExecAttentionGraph *self, cudnnPointwiseMode_t mode, cudnnDataType_t math, Tensor x,
              Tensor b, Tensor t, gint64 axis, Tensor out)
{
  cudnnBackendDescriptor_t kind
      = exec_attention_graph_add (self, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);

  SET (kind, POINTWISE_MODE, POINTWISE_MODE, &mode);
  SET (kind, POINTWISE_MATH_PREC, DATA_TYPE, &math);
  if (mode == CUDNN_POINTWISE_GEN_INDEX)
    SET (kind, POINTWISE_AXIS, INT64, &axis);
  exec_attention_graph_finalize (self, kind, "a pointwise operation");
  cudnnBackendDescriptor_t operation
      = exec_attention_graph_add (self, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set_descriptor (self, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  set_descriptor (self, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != NULL)
    set_descriptor (self, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  if (t != NULL)
    set_descriptor (self, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
  set_descriptor (self, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
  end_operation (self, operation, "a pointwise operation");
  return out;
}

static Tensor
pointwise (ExecAttentionGraph *self, cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor out)
{
  return pointwise_at (self, mode, CUDNN_DATA_FLOAT, x, b, NULL, 0, out);
}

static Tensor
reduce (ExecAttentionGraph *self, cudnnReduceTensorOp_t mode, Tensor x, Tensor out)
{
  cudnnBackendDescriptor_t kind
      = exec_attention_graph_add (self, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;

  SET (kind, REDUCTION_COMP_TYPE, DATA_TYPE, &type);
  SET (kind, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, &mode);
  exec_attention_graph_finalize (self, kind, "a reduction");
  cudnnBackendDescriptor_t operation
      = exec_attention_graph_add (self, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set_descriptor (self, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
  set_descriptor (self, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  set_descriptor (self, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out);
  end_operation (self, operation, "a reduction");
  return out;
}

static Tensor
reshape (ExecAttentionGraph *self, Tensor x, Tensor out)
{
  cudnnBackendDescriptor_t operation
      = exec_attention_graph_add (self, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

  set_descriptor (self, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  set_descriptor (self, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out);
  end_operation (self, operation, "a reshape");
  return out;
}

/* --- attention ---------------------------------------------------------------------------- */

/* What the forward and the backward graph have in common. */
typedef struct
{
  cudnnDataType_t type;
  Layout q, kv, out;    /* q, and k or v, as they lie in rows of qkv; the output */
  Layout scores, stats; /* [batch, heads, seq, seq]; one number per row of those */
  gboolean is_grouped;
} Parts;

static Parts
parts_of (const ExecAttentionShape *s)
{
  const gint64 width = (s->heads + 2 * s->kv_heads) * s->head_dim, all = s->heads * s->head_dim;
  const gint64 n = s->seq, d = s->head_dim;

  return (Parts){
    .type = s->dtype == PLAN_DTYPE_FP16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
    .q = { { s->batch, s->heads, n, d }, { n * width, d, width, 1 } },
    .kv = { { s->batch, s->kv_heads, n, d }, { n * width, d, width, 1 } },
    .out = { { s->batch, s->heads, n, d }, { n * all, d, all, 1 } },
    .scores = packed (s->batch, s->heads, n, n),
    .stats = packed (s->batch, s->heads, n, 1),
    .is_grouped = s->heads != s->kv_heads,
  };
}

/* The position of each score's query (axis 2) or key (axis 3). */
static Tensor
position (ExecAttentionGraph *self, const Parts *parts, Tensor x, gint64 axis)
{
  return pointwise_at (self, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, x, NULL, NULL, axis,
                       add_inner (self, CUDNN_DATA_INT32, &parts->scores));
}

/* x where `a` compares to `b` as `mode` says, else `masked`. */
static Tensor
keep_where (ExecAttentionGraph *self, const Parts *parts, Tensor x, Tensor masked,
            cudnnPointwiseMode_t mode, Tensor a, Tensor b)
{
  Tensor sees = pointwise_at (self, mode, CUDNN_DATA_BOOLEAN, a, b, NULL, 0,
                              add_inner (self, CUDNN_DATA_BOOLEAN, &parts->scores));

  return pointwise_at (self, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, x, masked, sees, 0,
                       add_inner (self, CUDNN_DATA_FLOAT, &parts->scores));
}

/* x where the query sees the key, else minus infinity. A query sees no key after its own; the graph
 * of a window has a second mask behind the first, which compares the key's position plus the window
 * with the query's, as numbers in fp32. */
static Tensor
mask (ExecAttentionGraph *self, const ExecAttentionShape *shape, const Parts *parts, Tensor x)
{
  Tensor masked = add_scalar (self, EXEC_ATTENTION_MASKED);
  Tensor row = position (self, parts, x, 2), column = position (self, parts, x, 3);

  x = keep_where (self, parts, x, masked, CUDNN_POINTWISE_CMP_GE, row, column);
  if (shape->window == 0)
    return x;
  row = position (self, parts, x, 2);
  column = pointwise (self, CUDNN_POINTWISE_ADD, position (self, parts, x, 3),
                      add_scalar (self, EXEC_ATTENTION_WINDOW),
                      add_inner (self, CUDNN_DATA_FLOAT, &parts->scores));
  return keep_where (self, parts, x, masked, CUDNN_POINTWISE_CMP_GT, column, row);
}

static void
add_forward (ExecAttentionGraph *self, const ExecAttentionShape *shape)
{
  const Parts p = parts_of (shape);
  const Layout k_transposed = transposed (p.kv);
  const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
  Tensor q = add_outer (self, EXEC_ATTENTION_Q, p.type, &p.q);
  Tensor k = add_outer (self, EXEC_ATTENTION_K, p.type, &k_transposed);
  Tensor v = add_outer (self, EXEC_ATTENTION_V, p.type, &p.kv);
  Tensor out = add_outer (self, EXEC_ATTENTION_OUT, p.type, &p.out);
  Tensor stats = add_outer (self, EXEC_ATTENTION_STATS, fp32, &p.stats);
  Tensor scale = add_scalar (self, EXEC_ATTENTION_SCALE);

  Tensor s = matmul (self, q, k, add_inner (self, fp32, &p.scores));
  s = pointwise (self, CUDNN_POINTWISE_MUL, s, scale, add_inner (self, fp32, &p.scores));
  s = mask (self, shape, &p, s);
  Tensor max = reduce (self, CUDNN_REDUCE_TENSOR_MAX, s, add_inner (self, fp32, &p.stats));
  s = pointwise (self, CUDNN_POINTWISE_SUB, s, max, add_inner (self, fp32, &p.scores));
  s = pointwise (self, CUDNN_POINTWISE_EXP, s, NULL, add_inner (self, fp32, &p.scores));
  Tensor sum = reduce (self, CUDNN_REDUCE_TENSOR_ADD, s, add_inner (self, fp32, &p.stats));
  Tensor log = pointwise (self, CUDNN_POINTWISE_LOG, sum, NULL, add_inner (self, fp32, &p.stats));
  pointwise (self, CUDNN_POINTWISE_ADD, max, log, stats);
  s = pointwise (self, CUDNN_POINTWISE_DIV, s, sum, add_inner (self, p.type, &p.scores));
  matmul (self, s, v, out);
}

/* Adds a gradient of keys or values: a product for every query head, summed over the query heads
 * that share a key head. */
static void
add_kv_gradient (ExecAttentionGraph *self, const ExecAttentionShape *s, const Parts *p,
                 ExecAttentionTensor id, Tensor scores_transposed, Tensor x)
{
  const Layout all = packed (s->batch, s->heads, s->seq, s->head_dim);
  Tensor out = add_outer (self, id, p->type, &p->kv);

  if (p->is_grouped)
    reduce (self, CUDNN_REDUCE_TENSOR_ADD,
            matmul (self, scores_transposed, x, add_inner (self, p->type, &all)), out);
  else
    matmul (self, scores_transposed, x, out);
}

/* Computes the probabilities again, from scores and the statistics of the forward pass. */
static Tensor
add_probabilities (ExecAttentionGraph *self, const ExecAttentionShape *shape, const Parts *p,
                   Tensor q, Tensor k, Tensor scale)
{
  const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
  Tensor stats = add_outer (self, EXEC_ATTENTION_STATS, fp32, &p->stats);

  Tensor s = matmul (self, q, k, add_inner (self, fp32, &p->scores));
  s = pointwise (self, CUDNN_POINTWISE_MUL, s, scale, add_inner (self, fp32, &p->scores));
  s = pointwise (self, CUDNN_POINTWISE_SUB, s, stats, add_inner (self, fp32, &p->scores));
  s = mask (self, shape, p, s);
  return pointwise (self, CUDNN_POINTWISE_EXP, s, NULL, add_inner (self, fp32, &p->scores));
}

/* Adds the sum of out * dout over the row of each query. */
static Tensor
add_row_sums (ExecAttentionGraph *self, const ExecAttentionShape *s, const Parts *p, Tensor dout)
{
  const Layout all = packed (s->batch, s->heads, s->seq, s->head_dim);
  const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
  Tensor out = add_outer (self, EXEC_ATTENTION_OUT, p->type, &p->out);

  Tensor x = pointwise (self, CUDNN_POINTWISE_MUL, dout, out, add_inner (self, fp32, &all));
  x = reduce (self, CUDNN_REDUCE_TENSOR_ADD, x, add_inner (self, fp32, &p->stats));
  return pointwise (self, CUDNN_POINTWISE_MUL, x, add_scalar (self, EXEC_ATTENTION_ONE),
                    add_outer (self, EXEC_ATTENTION_ROW_SUMS, fp32, &p->stats));
}

static void
add_backward (ExecAttentionGraph *self, const ExecAttentionShape *shape)
{
  const Parts p = parts_of (shape);
  const Layout kv_transposed = transposed (p.kv), scores_transposed = transposed (p.scores);
  const Layout all = packed (shape->batch, shape->heads, shape->seq, shape->head_dim);
  const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
  Tensor q = add_outer (self, EXEC_ATTENTION_Q, p.type, &p.q);
  Tensor k = add_outer (self, EXEC_ATTENTION_K, p.type, &kv_transposed);
  Tensor v = add_outer (self, EXEC_ATTENTION_V, p.type, &kv_transposed);
  Tensor dout = add_outer (self, EXEC_ATTENTION_DOUT, p.type, &p.out);
  Tensor dq = add_outer (self, EXEC_ATTENTION_DQ, p.type, &p.q);
  Tensor scale = add_scalar (self, EXEC_ATTENTION_SCALE);

  Tensor row_sums = add_row_sums (self, shape, &p, dout);
  Tensor e = add_probabilities (self, shape, &p, q, k, scale);
  add_kv_gradient (self, shape, &p, EXEC_ATTENTION_DV,
                   reshape (self, e, add_inner (self, p.type, &scores_transposed)), dout);
  Tensor ds = matmul (self, dout, v, add_inner (self, fp32, &p.scores));
  ds = pointwise (self, CUDNN_POINTWISE_SUB, ds, row_sums, add_inner (self, fp32, &p.scores));
  ds = pointwise (self, CUDNN_POINTWISE_MUL, ds, e, add_inner (self, fp32, &p.scores));
  ds = pointwise (self, CUDNN_POINTWISE_MUL, ds, scale, add_inner (self, fp32, &p.scores));
  add_kv_gradient (self, shape, &p, EXEC_ATTENTION_DK,
                   reshape (self, ds, add_inner (self, p.type, &scores_transposed)), q);
  Tensor keys = reshape (self, k, add_inner (self, fp32, &p.kv));
  if (shape->is_deterministic)
    matmul (self, ds, keys, dq);
  else
    pointwise (self, CUDNN_POINTWISE_IDENTITY,
               matmul (self, ds, keys, add_outer (self, EXEC_ATTENTION_DQ_SUMS, fp32, &all)), NULL,
               dq);
}

gboolean
exec_attention_graph_init (ExecAttentionGraph *self, const ExecAttentionShape *shape,
                           cudnnHandle_t handle, GError **error)
{
  *self = (ExecAttentionGraph){ .descriptors = g_ptr_array_new (),
                                .operations = g_array_new (FALSE, FALSE, sizeof (Tensor)),
                                .next_id = EXEC_ATTENTION_N_TENSORS };
  if (shape->is_backward)
    add_backward (self, shape);
  else
    add_forward (self, shape);
  self->graph = exec_attention_graph_add (self, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  exec_attention_graph_set (self, self->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, self->operations->len,
                            self->operations->data);
  if (handle != NULL)
    SET (self->graph, OPERATIONGRAPH_HANDLE, HANDLE, &handle);
  exec_attention_graph_finalize (self, self->graph, "the graph");
  return exec_attention_graph_check (self, error);
}

void
exec_attention_graph_clear (ExecAttentionGraph *self)
{
  for (guint i = self->descriptors != NULL ? self->descriptors->len : 0; i-- > 0;)
    cudnnBackendDestroyDescriptor (self->descriptors->pdata[i]);
  g_clear_pointer (&self->descriptors, g_ptr_array_unref);
  g_clear_pointer (&self->operations, g_array_unref);
}

/* --- what cuDNN makes of it --------------------------------------------------------------- */

static void
note_workspace (ExecAttentionGraph *self, cudnnBackendDescriptor_t of,
                cudnnBackendAttributeName_t name, gint64 *out_bytes)
{
  gint64 n = 0;

  if (self->failed == NULL)
    note (self, cudnnBackendGetAttribute (of, name, CUDNN_TYPE_INT64, 1, &n, out_bytes),
          "workspace");
}

void
exec_attention_graph_engines (ExecAttentionGraph *self, cudnnBackendDescriptor_t device,
                              ExecAttentionEngines *out)
{
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  gint64 n_found = 0;

  *out = (ExecAttentionEngines){ .n = 0 };
  cudnnBackendDescriptor_t heuristics
      = exec_attention_graph_add (self, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set_descriptor (self, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, self->graph);
  SET (heuristics, ENGINEHEUR_MODE, HEUR_MODE, &mode);
  if (device != NULL)
    set_descriptor (self, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  exec_attention_graph_finalize (self, heuristics, "an engine");
  for (guint i = 0; i < EXEC_ATTENTION_ENGINES; i++)
    out->engine[i] = exec_attention_graph_add (self, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (self->failed != NULL)
    return;
  note (self,
        cudnnBackendGetAttribute (heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, EXEC_ATTENTION_ENGINES, &n_found,
                                  out->engine),
        "an engine");
  if (self->failed == NULL)
    out->n = (guint)MIN (n_found, EXEC_ATTENTION_ENGINES);
  for (guint i = 0; i < out->n; i++)
    note_workspace (self, out->engine[i], CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, &out->workspace[i]);
}

cudnnBackendDescriptor_t
exec_attention_graph_plan (ExecAttentionGraph *self, cudnnHandle_t handle,
                           cudnnBackendDescriptor_t engine, gint64 *out_workspace, GError **error)
{
  cudnnBackendDescriptor_t plan
      = exec_attention_graph_add (self, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);

  SET (plan, EXECUTION_PLAN_HANDLE, HANDLE, &handle);
  set_descriptor (self, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
  exec_attention_graph_finalize (self, plan, "a plan");
  note_workspace (self, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, out_workspace);
  if (exec_attention_graph_check (self, error))
    return plan;
  self->failed = NULL;
  return NULL;
}

guint64
exec_attention_row_sums_bytes (const ExecAttentionShape *shape)
{
  return plan_units_round_up ((guint64)(shape->batch * shape->heads * shape->seq) * sizeof (float),
                              ALIGNMENT);
}

guint64
exec_attention_inner_bytes (const ExecAttentionShape *shape)
{
  const guint64 rows = (guint64)(shape->batch * shape->heads * shape->seq);

  if (!shape->is_backward)
    return 0;
  return exec_attention_row_sums_bytes (shape)
         + (shape->is_deterministic
                ? 0
                : plan_units_round_up (rows * (guint64)shape->head_dim * sizeof (float),
                                       ALIGNMENT));
}
