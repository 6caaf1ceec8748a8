/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and runs graphs. Every tensor is read into fp32 in the order of its dimensions, whatever
 * its strides are; results are rounded to the tensor's format, those of virtual tensors too. */
#include "config.h"

#include "exec/number/number.h"
#include "planner/base/units.h"
#include "tests/fake/cudnn-fake-private.h"
#include "tests/fake/order.h"
#include "tests/fake/watch.h"

#include <math.h>
#include <string.h>

/* The attributes of an operation that are operands: it reads the first three and writes the last.
 * One that equals the one before it is absent. */
static const struct
{
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t kind; /* the attribute with the descriptor of the operation's mode; of
                                       a reshape, any attribute */
  cudnnBackendAttributeName_t operands[4];
} operations[] = {
  { CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_MATMUL_DESC,
    { CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
      CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC } },
  { CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
    { CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
      CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC } },
  { CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_REDUCTION_DESC,
    { CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
      CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC } },
  { CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
    { CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
      CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC } },
};

/* A tensor's attributes, and what it holds. */
typedef struct
{
  gint64 id;
  cudnnDataType_t type;
  gint64 size[4], stride[4];
  gboolean is_virtual, is_by_value;
  float *values; /* in the order of dimensions; NULL: not read or computed so far */
} Tensor;

typedef struct
{
  cudnnBackendDescriptorType_t type;
  const FakeCudnnDescriptor *kind;
  Tensor *operands[3], *out; /* absent ones are NULL */
} Operation;

/* --- reading descriptors ------------------------------------------------------------------ */

static gint64
count_of (const Tensor *self)
{
  return self->size[0] * self->size[1] * self->size[2] * self->size[3];
}

static gboolean
is_set (const FakeCudnnDescriptor *descriptor, cudnnBackendAttributeName_t name)
{
  const bool *value = fake_cudnn_get (descriptor, name, NULL);

  return value != NULL && *value;
}

static void
tensor_free (gpointer data)
{
  Tensor *self = data;

  g_free (self->values);
  g_free (self);
}

/* The tensor with the descriptor's id, of which a graph has one; made when it is first asked for.
 * NULL without a descriptor. */
static Tensor *
tensor_of (GHashTable *tensors, const FakeCudnnDescriptor *descriptor)
{
  Tensor *self;
  const gint64 *id;

  if (descriptor == NULL)
    return NULL;
  id = fake_cudnn_get (descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, NULL);
  self = g_hash_table_lookup (tensors, id);
  if (self != NULL)
    return self;
  self = g_new0 (Tensor, 1);
  self->id = *id;
  self->type
      = *(const cudnnDataType_t *)fake_cudnn_get (descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, NULL);
  memcpy (self->size, fake_cudnn_get (descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, NULL),
          sizeof self->size);
  memcpy (self->stride, fake_cudnn_get (descriptor, CUDNN_ATTR_TENSOR_STRIDES, NULL),
          sizeof self->stride);
  self->is_virtual = is_set (descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  self->is_by_value = is_set (descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  g_hash_table_insert (tensors, &self->id, self);
  return self;
}

static GHashTable *
tensors_new (void)
{
  return g_hash_table_new_full (g_int64_hash, g_int64_equal, NULL, tensor_free);
}

static gboolean
read_operation (GHashTable *tensors, const FakeCudnnDescriptor *descriptor, Operation *out)
{
  for (guint i = 0; i < G_N_ELEMENTS (operations); i++)
    {
      if (operations[i].type != descriptor->type)
        continue;
      *out = (Operation){ .type = descriptor->type,
                          .kind = fake_cudnn_descriptor (descriptor, operations[i].kind) };
      for (guint o = 0; o < 3; o++)
        if (o == 0 || operations[i].operands[o] != operations[i].operands[o - 1])
          out->operands[o]
              = tensor_of (tensors, fake_cudnn_descriptor (descriptor, operations[i].operands[o]));
      out->out = tensor_of (tensors, fake_cudnn_descriptor (descriptor, operations[i].operands[3]));
      return TRUE;
    }
  return FALSE;
}

/* All operations of a graph; NULL where this fake does not have one of them. */
static GArray *
read_graph (GHashTable *tensors, const FakeCudnnDescriptor *graph)
{
  GArray *all = g_array_new (FALSE, FALSE, sizeof (Operation));
  gint64 n;
  FakeCudnnDescriptor *const *ops = fake_cudnn_get (graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, &n);

  for (gint64 i = 0; i < n; i++)
    {
      Operation operation;

      if (!read_operation (tensors, ops[i], &operation))
        {
          g_array_unref (all);
          return NULL;
        }
      g_array_append_val (all, operation);
    }
  return all;
}

/* --- checks ------------------------------------------------------------------------------- */

static gboolean
sizes_equal (const Tensor *a, const Tensor *b)
{
  return memcmp (a->size, b->size, sizeof a->size) == 0;
}

/* Whether `part` can be broadcast to `whole`: each of its dimensions is as large, or one. */
static gboolean
spreads (const Tensor *part, const Tensor *whole)
{
  for (guint i = 0; i < 4; i++)
    if (part->size[i] != whole->size[i] && part->size[i] != 1)
      return FALSE;
  return TRUE;
}

/* Whether each of the first `dimensions` of `part` divides that of `whole`: neighbours of `whole`,
 * such as the query heads of a group, then share an element of `part`. */
static gboolean
divides (const Tensor *part, const Tensor *whole, guint dimensions)
{
  for (guint i = 0; i < dimensions; i++)
    if (whole->size[i] % part->size[i] != 0)
      return FALSE;
  return TRUE;
}

/* Whether the sizes of an operation's tensors fit each other. */
static gboolean
fits (const Operation *self)
{
  const Tensor *x = self->operands[0], *b = self->operands[1], *out = self->out;

  switch ((int)self->type)
    {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return x->size[3] == b->size[2] && x->size[2] == out->size[2] && b->size[3] == out->size[3]
             && divides (x, out, 2) && divides (b, out, 2);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return divides (out, x, 4);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return count_of (x) == count_of (out);
    default:
      return sizes_equal (x, out) && (b == NULL || spreads (b, out))
             && (self->operands[2] == NULL || sizes_equal (self->operands[2], out));
    }
}

static cudnnStatus_t
check_operation (const Operation *self, guint number, GHashTable *made)
{
  for (guint o = 0; o < 3; o++)
    if (self->operands[o] != NULL && self->operands[o]->is_virtual
        && !g_hash_table_contains (made, self->operands[o]))
      return fake_cudnn_refuse (CUDNN_STATUS_BAD_PARAM,
                                "operation %u reads virtual tensor %" G_GINT64_FORMAT
                                " before it is made",
                                number, self->operands[o]->id);
  if (!fits (self))
    return fake_cudnn_refuse (CUDNN_STATUS_BAD_PARAM,
                              "the tensors of operation %u do not fit each other", number);
  if (!g_hash_table_add (made, self->out))
    return fake_cudnn_refuse (CUDNN_STATUS_BAD_PARAM,
                              "tensor %" G_GINT64_FORMAT " is made twice, by operation %u too",
                              self->out->id, number);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
fake_cudnn_check_graph (const FakeCudnnDescriptor *graph)
{
  g_autoptr (GHashTable) tensors = tensors_new (), made = g_hash_table_new (NULL, NULL);
  g_autoptr (GArray) all = read_graph (tensors, graph);

  if (all == NULL || all->len == 0)
    return fake_cudnn_refuse (CUDNN_STATUS_NOT_SUPPORTED, "an operation that is not in this fake");
  for (guint i = 0; i < all->len; i++)
    {
      const cudnnStatus_t status
          = check_operation (&g_array_index (all, Operation, i), i + 1, made);

      if (status != CUDNN_STATUS_SUCCESS)
        return status;
    }
  return CUDNN_STATUS_SUCCESS;
}

static gboolean
is_hopper (void)
{
  int device, major;

  return cudaGetDevice (&device) == cudaSuccess
         && cudaDeviceGetAttribute (&major, cudaDevAttrComputeCapabilityMajor, device)
                == cudaSuccess
         && major == 9;
}

/* Whether an operation is a product whose result goes to the caller's memory. */
static gboolean
is_output_product (const Operation *self)
{
  return self->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && !self->out->is_virtual;
}

gboolean
fake_cudnn_has_engine (const FakeCudnnDescriptor *graph)
{
  g_autoptr (GHashTable) tensors = tensors_new ();
  g_autoptr (GArray) all = read_graph (tensors, graph);
  gboolean is_backward = FALSE, is_wide = FALSE;

  for (guint i = 0; i < all->len; i++)
    {
      const Operation *self = &g_array_index (all, Operation, i);

      /* only the graph of the gradient reshapes */
      is_backward |= self->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
      is_wide |= is_output_product (self) && self->out->size[3] > 128;
    }
  return !is_backward || !is_wide || is_hopper ();
}

gint64
fake_cudnn_workspace (const FakeCudnnDescriptor *graph)
{
  g_autoptr (GHashTable) tensors = tensors_new ();
  g_autoptr (GArray) all = read_graph (tensors, graph);
  gint64 bytes = is_hopper () ? 256 : 0;

  for (guint i = 0; i < all->len; i++)
    {
      const Operation *self = &g_array_index (all, Operation, i);

      if (self->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR
          && self->operands[0]->size[1] != self->out->size[1])
        bytes += count_of (self->operands[0]) * 2;
      if (is_output_product (self) && self->out->type == CUDNN_DATA_FLOAT && !is_hopper ())
        bytes += count_of (self->out) / self->out->size[2]
                 * (gint64)plan_units_round_up ((guint64)self->out->size[2], 64) * 4;
    }
  return bytes;
}

/* --- memory ------------------------------------------------------------------------------- */

static gsize
bytes_of (cudnnDataType_t type)
{
  return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 2 : 4;
}

static PlanDtype
dtype_of (cudnnDataType_t type)
{
  return type == CUDNN_DATA_HALF       ? PLAN_DTYPE_FP16
         : type == CUDNN_DATA_BFLOAT16 ? PLAN_DTYPE_BF16
                                       : PLAN_DTYPE_FP32;
}

static void
round_to (cudnnDataType_t type, float *values, gint64 n)
{
  if (type != CUDNN_DATA_HALF && type != CUDNN_DATA_BFLOAT16)
    return;
  for (gint64 i = 0; i < n; i++)
    {
      guint16 bits;

      exec_number_narrow (&bits, dtype_of (type), &values[i], 1);
      exec_number_widen (&values[i], &bits, dtype_of (type), 1);
    }
}

/* The offset of element `i`, counted in the order of dimensions, in elements. */
static gint64
offset_of (const Tensor *self, gint64 i)
{
  gint64 offset = 0;

  for (guint d = 4; d-- > 0; i /= self->size[d])
    offset += i % self->size[d] * self->stride[d];
  return offset;
}

/* The index of a tensor in the variant pack; -1: it is not there. */
static gint64
index_of (const FakeCudnnRun *run, gint64 id)
{
  for (gint64 i = 0; i < run->n; i++)
    if (run->ids[i] == id)
      return i;
  return -1;
}

/* Declares the memory that a tensor uses, by rows of elements that lie side by side. */
static gboolean
declare (const FakeCudnnRun *run, const Tensor *self, cudaStream_t stream, gboolean is_write)
{
  const gsize size = bytes_of (self->type);
  guint8 *at = run->pointers[index_of (run, self->id)];
  const guint inner = self->stride[3] == 1 ? 3 : 2; /* where rows lie, if there are any */
  const gint64 row = self->stride[inner] == 1 ? self->size[inner] : 1;
  gboolean ok = TRUE;

  for (gint64 i = 0; i < count_of (self); i++)
    {
      const gint64 along = inner == 3 ? i % self->size[3] : i / self->size[3] % self->size[2];

      if (along % row != 0)
        continue;
      guint8 *first = at + (gsize)offset_of (self, i) * size;
      ok &= is_write ? fake_order_write (stream, first, (gsize)row * size)
                     : fake_order_read (stream, first, (gsize)row * size);
    }
  return ok;
}

/* Gets a tensor's values, unless they are there already: from the host or from device memory. */
static gboolean
load (const FakeCudnnRun *run, Tensor *self, cudaStream_t stream)
{
  const guint8 *at;

  if (self->values != NULL)
    return TRUE;
  self->values = g_new (float, count_of (self));
  if (self->is_by_value)
    {
      *self->values = run->values[index_of (run, self->id)];
      return TRUE;
    }
  if (!declare (run, self, stream, FALSE))
    return FALSE;
  at = run->pointers[index_of (run, self->id)];
  for (gint64 i = 0; i < count_of (self); i++)
    exec_number_widen (&self->values[i], at + (gsize)offset_of (self, i) * bytes_of (self->type),
                       dtype_of (self->type), 1);
  return TRUE;
}

static gboolean
store (const FakeCudnnRun *run, Tensor *self, cudaStream_t stream)
{
  guint8 *at;

  round_to (self->type, self->values, count_of (self));
  if (self->is_virtual)
    return TRUE;
  if (!declare (run, self, stream, TRUE))
    return FALSE;
  at = run->pointers[index_of (run, self->id)];
  for (gint64 i = 0; i < count_of (self); i++)
    exec_number_narrow (at + (gsize)offset_of (self, i) * bytes_of (self->type),
                        dtype_of (self->type), &self->values[i], 1);
  return TRUE;
}

/* --- operations --------------------------------------------------------------------------- */

/* The element of `part` that element `i` of `whole` uses: where a dimension of `part` is smaller,
 * neighbours share an element. */
static gint64
shared (const Tensor *part, const Tensor *whole, gint64 i)
{
  gint64 index = 0, times = 1;

  for (guint d = 4; d-- > 0; i /= whole->size[d])
    {
      index += i % whole->size[d] / (whole->size[d] / part->size[d]) * times;
      times *= part->size[d];
    }
  return index;
}

static void
multiply (const Tensor *a, const Tensor *b, Tensor *out)
{
  const gint64 m = out->size[2], n = out->size[3], k = a->size[3];

  for (gint64 matrix = 0; matrix < out->size[0] * out->size[1]; matrix++)
    {
      const gint64 batch = matrix / out->size[1], head = matrix % out->size[1];
      const float *x = a->values
                       + (batch / (out->size[0] / a->size[0]) * a->size[1]
                          + head / (out->size[1] / a->size[1]))
                             * m * k;
      const float *y = b->values
                       + (batch / (out->size[0] / b->size[0]) * b->size[1]
                          + head / (out->size[1] / b->size[1]))
                             * k * n;

      for (gint64 i = 0; i < m * n; i++)
        {
          float sum = 0;

          for (gint64 j = 0; j < k; j++)
            sum += x[i / n * k + j] * y[j * n + i % n];
          out->values[matrix * m * n + i] = sum;
        }
    }
}

static gint64
coordinate (const Tensor *self, gint64 i, gint64 axis)
{
  for (gint64 d = 3; d > axis; d--)
    i /= self->size[d];
  return i % self->size[axis];
}

static float
apply (cudnnPointwiseMode_t mode, float x, float b, float t)
{
  switch (mode)
    {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_EXP:
      return expf (x);
    case CUDNN_POINTWISE_LOG:
      return logf (x);
    case CUDNN_POINTWISE_CMP_GT:
      return x > b;
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return t != 0 ? x : b;
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_GEN_INDEX:
      break;
    }
  return x;
}

static void
run_pointwise (const Operation *self)
{
  const cudnnPointwiseMode_t mode
      = *(const cudnnPointwiseMode_t *)fake_cudnn_get (self->kind, CUDNN_ATTR_POINTWISE_MODE, NULL);
  const gint64 *axis = fake_cudnn_get (self->kind, CUDNN_ATTR_POINTWISE_AXIS, NULL);
  const Tensor *x = self->operands[0], *b = self->operands[1], *t = self->operands[2];
  Tensor *out = self->out;

  for (gint64 i = 0; i < count_of (out); i++)
    out->values[i] = mode == CUDNN_POINTWISE_GEN_INDEX
                         ? (float)coordinate (out, i, *axis)
                         : apply (mode, x->values[i], b != NULL ? b->values[shared (b, out, i)] : 0,
                                  t != NULL ? t->values[i] : 0);
}

static void
reduce (const Operation *self)
{
  const cudnnReduceTensorOp_t mode = *(const cudnnReduceTensorOp_t *)fake_cudnn_get (
      self->kind, CUDNN_ATTR_REDUCTION_OPERATOR, NULL);
  const Tensor *x = self->operands[0];
  Tensor *out = self->out;

  for (gint64 i = 0; i < count_of (out); i++)
    out->values[i] = mode == CUDNN_REDUCE_TENSOR_MAX ? -INFINITY : 0;
  for (gint64 i = 0; i < count_of (x); i++)
    {
      float *to = &out->values[shared (out, x, i)];

      *to = mode == CUDNN_REDUCE_TENSOR_MAX ? fmaxf (*to, x->values[i]) : *to + x->values[i];
    }
}

/* Reads the memory of `x` with the sizes and strides of `out`. */
static void
reshape (const Tensor *x, Tensor *out)
{
  gint64 last = 0;
  g_autofree float *memory = NULL;

  for (guint d = 0; d < 4; d++)
    last += (MAX (x->size[d], out->size[d]) - 1) * MAX (x->stride[d], out->stride[d]);
  memory = g_new0 (float, last + 1);
  for (gint64 i = 0; i < count_of (x); i++)
    memory[offset_of (x, i)] = x->values[i];
  for (gint64 i = 0; i < count_of (out); i++)
    out->values[i] = memory[offset_of (out, i)];
}

static gboolean
run_operation (const FakeCudnnRun *run, const Operation *self, cudaStream_t stream)
{
  for (guint o = 0; o < 3; o++)
    if (self->operands[o] != NULL && !load (run, self->operands[o], stream))
      return FALSE;
  self->out->values = g_new (float, count_of (self->out));
  switch ((int)self->type)
    {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      multiply (self->operands[0], self->operands[1], self->out);
      break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      reduce (self);
      break;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      reshape (self->operands[0], self->out);
      break;
    default:
      run_pointwise (self);
    }
  return store (run, self->out, stream);
}

/* Takes values from host memory, and checks that the variant pack has every tensor of the graph
 * that is not virtual. */
static cudnnStatus_t
take_tensors (FakeCudnnRun *run, GHashTable *tensors)
{
  GHashTableIter iter;
  gpointer value;

  g_hash_table_iter_init (&iter, tensors);
  while (g_hash_table_iter_next (&iter, NULL, &value))
    {
      const Tensor *tensor = value;
      const gint64 index = index_of (run, tensor->id);

      if (tensor->is_virtual)
        continue;
      if (index < 0)
        return fake_cudnn_refuse (CUDNN_STATUS_BAD_PARAM,
                                  "tensor %" G_GINT64_FORMAT " is not in the variant pack",
                                  tensor->id);
      if (tensor->is_by_value)
        run->values[index] = *(const float *)run->pointers[index];
      else if ((guintptr)run->pointers[index] % 16 != 0)
        return fake_cudnn_refuse (CUDNN_STATUS_BAD_PARAM,
                                  "tensor %" G_GINT64_FORMAT " is not aligned to 16 bytes",
                                  tensor->id);
    }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
fake_cudnn_take_values (FakeCudnnRun *run)
{
  g_autoptr (GHashTable) tensors = tensors_new ();
  g_autoptr (GArray) all = read_graph (tensors, run->graph);

  return take_tensors (run, tensors);
}

/* --- planted mistakes --------------------------------------------------------------------- */

/* The mistake that fake_cudnn_stretch (`from` is 0) or fake_cudnn_resize asked for. */
static struct
{
  gint number; /* the runs, of all ranks together, until the one with the mistake */
  gint64 id, elements;
  guint dimension;
  gint64 from, to;
} planted;

void
fake_cudnn_stretch (guint number, gint64 id, guint dimension, gint64 elements)
{
  planted.number = (gint)number;
  planted.id = id;
  planted.dimension = dimension;
  planted.elements = elements;
  planted.from = 0;
}

void
fake_cudnn_resize (guint number, gint64 from, gint64 to)
{
  planted.number = (gint)number;
  planted.from = from;
  planted.to = to;
}

/* Makes the planted mistake in one of the graph's tensors. */
static void
change (gpointer id, gpointer tensor, gpointer user_data)
{
  Tensor *self = tensor;

  if (planted.from == 0 && self->id == planted.id)
    self->stride[planted.dimension] += planted.elements;
  for (guint d = 0; d < 4; d++)
    if (planted.from > 0 && self->size[d] == planted.from)
      self->size[d] = planted.to;
}

static void
change_if_asked (GHashTable *tensors)
{
  if (g_atomic_int_get (&planted.number) > 0 && g_atomic_int_dec_and_test (&planted.number))
    g_hash_table_foreach (tensors, change, NULL);
}

cudnnStatus_t
fake_cudnn_run (FakeCudnnRun *run, cudaStream_t stream)
{
  g_autoptr (GHashTable) tensors = tensors_new ();
  g_autoptr (GArray) all = read_graph (tensors, run->graph);
  const gsize bytes = (gsize)fake_cudnn_workspace (run->graph);

  change_if_asked (tensors);
  if (bytes > 0)
    {
      if (!fake_order_write (stream, run->workspace, bytes))
        return CUDNN_STATUS_EXECUTION_FAILED;
      memset (run->workspace, 0xff, bytes);
    }
  for (guint i = 0; i < all->len; i++)
    if (!run_operation (run, &g_array_index (all, Operation, i), stream))
      return CUDNN_STATUS_EXECUTION_FAILED;
  return CUDNN_STATUS_SUCCESS;
}
