/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's backend API on the CPU: descriptors that remember their attributes, and graphs that are
 * run operation by operation, in fp32, rounded to the format of each tensor. What a plan reads and
 * writes is declared to tests/fake/order.h; descriptors and handles must be gone in the end. */
#include "config.h"

#include "tests/fake/cudnn-fake-private.h"

#include "tests/fake/cudnn-fake.h"
#include "tests/fake/order.h"

#include <stdio.h>
#include <string.h>

typedef struct
{
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  gint64 count;
  void *values;
} Attribute;

struct cudnnContext
{
  cudaStream_t stream;
};

static _Thread_local char last_error[256];
static guint version = 91900;
static guint64 more_workspace;   /* that plans want beyond what their engines said */
static guint64 wanted_workspace; /* that engines and plans want beside the graph's own */

void
fake_cudnn_want (guint64 bytes)
{
  wanted_workspace = bytes;
}

void
fake_cudnn_set (guint new_version, guint64 more_bytes)
{
  version = new_version;
  more_workspace = more_bytes;
}

size_t
cudnnGetVersion (void)
{
  return version;
}

const char *
cudnnGetErrorString (cudnnStatus_t status)
{
  switch (status)
    {
#define X(name, value) \
  case name: \
    return #name;
      FAKE_CUDNN_STATUSES (X)
#undef X
    }
  return "unknown";
}

void
cudnnGetLastErrorString (char *text, size_t bytes)
{
  g_strlcpy (text, last_error, bytes);
}

cudnnStatus_t
fake_cudnn_refuse (cudnnStatus_t status, const char *format, ...)
{
  va_list args;

  va_start (args, format);
  vsnprintf (last_error, sizeof last_error, format, args);
  va_end (args);
  return status;
}

/* Fails when a test has asked that this call fail, like the calls of the CUDA runtime. */
static cudnnStatus_t
fail_if_asked (void)
{
  const cudaError_t error = fake_order_fails ();

  return error == cudaSuccess
             ? CUDNN_STATUS_SUCCESS
             : fake_cudnn_refuse (CUDNN_STATUS_EXECUTION_FAILED, "%s", cudaGetErrorName (error));
}

cudnnStatus_t
cudnnCreate (cudnnHandle_t *out)
{
  const cudnnStatus_t status = fail_if_asked ();

  if (status != CUDNN_STATUS_SUCCESS)
    return status;
  *out = g_new0 (struct cudnnContext, 1);
  fake_order_made (*out, "cuDNN handle");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnDestroy (cudnnHandle_t handle)
{
  if (!fake_order_gone (handle, "cuDNN handle"))
    return CUDNN_STATUS_BAD_PARAM;
  g_free (handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnSetStream (cudnnHandle_t handle, cudaStream_t stream)
{
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

/* --- descriptors -------------------------------------------------------------------------- */

static void
attribute_clear (gpointer data)
{
  g_free (((Attribute *)data)->values);
}

static gsize
size_of (cudnnBackendAttributeType_t type)
{
  switch (type)
    {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof (bool);
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
      return sizeof (cudnnDataType_t);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      break;
    }
  return sizeof (gint64);
}

cudnnStatus_t
cudnnBackendCreateDescriptor (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
  FakeCudnnDescriptor *made = g_new0 (FakeCudnnDescriptor, 1);

  made->type = type;
  made->attributes = g_array_new (FALSE, FALSE, sizeof (Attribute));
  g_array_set_clear_func (made->attributes, attribute_clear);
  fake_order_made (made, "cuDNN descriptor");
  *out = made;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnBackendDestroyDescriptor (cudnnBackendDescriptor_t descriptor)
{
  FakeCudnnDescriptor *self = descriptor;

  if (!fake_order_gone (self, "cuDNN descriptor"))
    return CUDNN_STATUS_BAD_PARAM;
  g_array_unref (self->attributes);
  g_free (self);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t
cudnnBackendSetAttribute (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
  FakeCudnnDescriptor *self = descriptor;
  const gsize bytes = (gsize)count * size_of (type);

  if (self->is_final)
    return fake_cudnn_refuse (CUDNN_STATUS_BAD_PARAM, "attribute %d of a finalized descriptor",
                              (int)name);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (gint64 i = 0; i < count; i++)
      if (!((FakeCudnnDescriptor *const *)values)[i]->is_final)
        return fake_cudnn_refuse (CUDNN_STATUS_BAD_PARAM,
                                  "attribute %d is a descriptor that is not finalized", (int)name);
  const Attribute made = { name, type, count, g_memdup2 (values, bytes) };
  g_array_append_val (self->attributes, made);
  return CUDNN_STATUS_SUCCESS;
}

const void *
fake_cudnn_get (const FakeCudnnDescriptor *self, cudnnBackendAttributeName_t name, gint64 *count)
{
  for (guint i = 0; i < self->attributes->len; i++)
    {
      const Attribute *attribute = &g_array_index (self->attributes, Attribute, i);

      if (attribute->name != name)
        continue;
      if (count != NULL)
        *count = attribute->count;
      return attribute->values;
    }
  if (count != NULL)
    *count = 0;
  return NULL;
}

const FakeCudnnDescriptor *
fake_cudnn_descriptor (const FakeCudnnDescriptor *self, cudnnBackendAttributeName_t name)
{
  FakeCudnnDescriptor *const *found = fake_cudnn_get (self, name, NULL);

  return found != NULL ? *found : NULL;
}

/* --- finalizing --------------------------------------------------------------------------- */

/* What a descriptor of a type must have been given. */
static const struct
{
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t name;
  gint64 count;
} required[] = {
  { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1 },
  { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, 1 },
  { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, 4 },
  { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, 4 },
  { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1 },
  { CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, 1 },
  { CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, 1 },
  { CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, 1 },
  { CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR, 1 },
  { CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, 1 },
  { CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, 1 },
  { CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1 },
  { CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1 },
  { CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1 },
  { CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 1 },
  { CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 1 },
  { CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 1 },
  { CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1 },
  { CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1 },
  { CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1 },
  { CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 1 },
  { CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 1 },
  { CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 1 },
  { CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, 1 },
  { CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 1 },
  { CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 1 },
};

cudnnStatus_t
cudnnBackendFinalize (cudnnBackendDescriptor_t descriptor)
{
  FakeCudnnDescriptor *self = descriptor;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

  for (guint i = 0; i < G_N_ELEMENTS (required); i++)
    {
      gint64 count = 0;

      if (required[i].type != self->type)
        continue;
      fake_cudnn_get (self, required[i].name, &count);
      if (count != required[i].count)
        return fake_cudnn_refuse (CUDNN_STATUS_BAD_PARAM,
                                  "a descriptor of type %d has %" G_GINT64_FORMAT
                                  " values of attribute %d instead of %" G_GINT64_FORMAT,
                                  (int)self->type, count, (int)required[i].name, required[i].count);
    }
  if (self->type == CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
    return fake_cudnn_refuse (CUDNN_STATUS_NOT_SUPPORTED, "a device that is not there");
  if (self->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    status = fake_cudnn_check_graph (self);
  if (self->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
    {
      const FakeCudnnDescriptor *engine
          = fake_cudnn_descriptor (self, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);

      status = fail_if_asked ();
      if (status == CUDNN_STATUS_SUCCESS && engine->is_unfit)
        return fake_cudnn_refuse (CUDNN_STATUS_NOT_SUPPORTED, "an engine that is not for this GPU");
      fake_order_log ("cuDNN plan");
    }
  self->is_final = status == CUDNN_STATUS_SUCCESS;
  return status;
}

/* Gives the engine of a graph, if it has one; the engine's configuration remembers the graph. If
 * several engines are requested, one that cannot be built comes first, as real heuristics may
 * propose such. */
static cudnnStatus_t
get_engines (const FakeCudnnDescriptor *heuristics, gint64 requested, gint64 *count,
             FakeCudnnDescriptor **engine)
{
  const FakeCudnnDescriptor *graph
      = fake_cudnn_descriptor (heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);

  *count = fake_cudnn_has_engine (graph) ? MIN (requested, 2) : 0;
  for (gint64 i = 0; i < *count; i++)
    {
      cudnnBackendSetAttribute (engine[i], CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
      engine[i]->is_unfit = i + 1 < *count;
      engine[i]->is_final = TRUE;
    }
  return CUDNN_STATUS_SUCCESS;
}

static gint64
workspace_of (const FakeCudnnDescriptor *self)
{
  const gboolean is_plan = self->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
  const FakeCudnnDescriptor *engine
      = is_plan ? fake_cudnn_descriptor (self, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) : self;

  return fake_cudnn_workspace (
             fake_cudnn_descriptor (engine, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH))
         + (gint64)wanted_workspace + (is_plan ? (gint64)more_workspace : 0);
}

cudnnStatus_t
cudnnBackendGetAttribute (cudnnBackendDescriptor_t const descriptor,
                          cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t requested, int64_t *count, void *values)
{
  const FakeCudnnDescriptor *self = descriptor;

  if (!self->is_final || requested < 1)
    return CUDNN_STATUS_BAD_PARAM;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
    return get_engines (self, requested, count, values);
  if (type != CUDNN_TYPE_INT64
      || name
             != (self->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
                     ? CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE
                     : CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE))
    return fake_cudnn_refuse (CUDNN_STATUS_BAD_PARAM, "attribute %d cannot be asked for",
                              (int)name);
  *count = 1;
  *(gint64 *)values = workspace_of (self);
  return CUDNN_STATUS_SUCCESS;
}

/* --- running ------------------------------------------------------------------------------ */

static cudaError_t
work (cudaStream_t stream, void *closure)
{
  return fake_cudnn_run (closure, stream) == CUDNN_STATUS_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}

cudnnStatus_t
cudnnBackendExecute (cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                     cudnnBackendDescriptor_t variant)
{
  const FakeCudnnDescriptor *engine
      = fake_cudnn_descriptor (plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  gint64 n_ids, n_pointers;
  const gint64 *ids = fake_cudnn_get (variant, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &n_ids);
  void *const *pointers
      = fake_cudnn_get (variant, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &n_pointers);
  void *const *workspace = fake_cudnn_get (variant, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, NULL);
  FakeCudnnRun run
      = { .graph = fake_cudnn_descriptor (engine, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) };

  const cudnnStatus_t failed = fail_if_asked ();

  if (failed != CUDNN_STATUS_SUCCESS)
    return failed;
  if (n_ids != n_pointers || n_ids > FAKE_CUDNN_MAX_TENSORS || workspace == NULL)
    return fake_cudnn_refuse (CUDNN_STATUS_BAD_PARAM, "a variant pack of %d ids and %d pointers",
                              (int)n_ids, (int)n_pointers);
  if ((guintptr)*workspace % FAKE_CUDNN_ALIGNMENT != 0)
    return fake_cudnn_refuse (CUDNN_STATUS_BAD_PARAM, "the workspace is not aligned to %d bytes",
                              FAKE_CUDNN_ALIGNMENT);
  run.n = n_ids;
  run.workspace = *workspace;
  memcpy (run.ids, ids, (gsize)n_ids * sizeof *ids);
  memcpy (run.pointers, pointers, (gsize)n_ids * sizeof *pointers);
  if (fake_cudnn_take_values (&run) != CUDNN_STATUS_SUCCESS)
    return CUDNN_STATUS_BAD_PARAM;
  return fake_order_run (handle->stream, "cuDNN graph", work, &run, sizeof run) == cudaSuccess
             ? CUDNN_STATUS_SUCCESS
             : CUDNN_STATUS_EXECUTION_FAILED;
}
