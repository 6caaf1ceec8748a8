/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/cuda/attention-fused.h"

#include "exec/cuda/attention-batched.h"
#include "exec/cuda/attention-cudnn.h"
#include "exec/cuda/attention-operands.h"
#include "exec/cuda/cuda-check.h"
#include "planner/base/error.h"

#define WORKSPACE_ALIGNMENT 256

/* A shape that a schedule of this thread has, and whether cuDNN does it. */
typedef struct
{
  ExecAttentionShape shape;
  gboolean is_fused;
  guint64 workspace; /* bytes, where cuDNN does it */
} Choice;

typedef struct
{
  guint opened;
  ExecAttention *attention; /* NULL until a shape first wants cuDNN */
  GArray *choices;          /* Choice */
} Thread;

static __thread Thread thread;

/* --- shapes ------------------------------------------------------------------------------- */

/* Finds the shape of an op whose operands are in these formats. NULL, or why none of cuDNN's graphs
 * does that attention. */
static const char *
find_shape (const PlanOp *op, const PlanDtype *dtype, gboolean is_deterministic,
            const PlanManner *manner, ExecAttentionShape *out)
{
  const gboolean is_backward = op->kind == PLAN_OP_ATTENTION_BWD;
  static const guint forward[] = { QKV, OUT },
                     backward[] = { BWD_QKV, BWD_OUT, BWD_DOUT, BWD_DQKV };
  const guint *matrices = is_backward ? backward : forward;

  *out = (ExecAttentionShape){ .batch = op->dims[PLAN_DIM_ATTENTION_batch],
                               .seq = op->dims[PLAN_DIM_ATTENTION_seq],
                               .heads = op->dims[PLAN_DIM_ATTENTION_heads],
                               .kv_heads = op->dims[PLAN_DIM_ATTENTION_kv_heads],
                               .head_dim = op->dims[PLAN_DIM_ATTENTION_head_dim],
                               .dtype = dtype[matrices[0]],
                               .is_backward = is_backward,
                               .is_deterministic = is_backward && is_deterministic };
  if (op->refs[is_backward ? BWD_KV : KV].array >= 0)
    return "keys of other ranks are in no graph";
  if (op->refs[is_backward ? BWD_KEY : KEY].array >= 0)
    return "dropout with the run's own random numbers is in no graph";
  if (op->refs[is_backward ? BWD_PLACES : PLACES].array >= 0)
    return "documents are in no graph";
  if (manner && (manner->value[PLAN_MANNER_CAP] > 0 || manner->value[PLAN_MANNER_ALIBI] != 0))
    return "bounded scores and ALiBi's slopes are in no graph";
  if (manner && manner->value[PLAN_MANNER_PARTS] > 1 && manner->value[PLAN_MANNER_WINDOW] > 0)
    return "windows of sequences in parts are in no graph";
  if (manner
      && manner->value[PLAN_MANNER_CHUNK] > 0) /* chunks that divide sequences come as sequences */
    return "chunks that do not divide sequences are in no graph";
  if (manner && manner->value[PLAN_MANNER_WINDOW] < (double)out->seq)
    out->window = (gint64)manner->value[PLAN_MANNER_WINDOW];
  for (guint i = 0; i < (is_backward ? G_N_ELEMENTS (backward) : G_N_ELEMENTS (forward)); i++)
    if (dtype[matrices[i]] != out->dtype)
      return "cuDNN wants operands of one format";
  return NULL;
}

static const Choice *
choice_of (const ExecAttentionShape *shape)
{
  for (guint i = 0; i < thread.choices->len; i++)
    {
      const Choice *known = &g_array_index (thread.choices, Choice, i);

      if (exec_attention_shape_equal (&known->shape, shape))
        return known;
    }
  return NULL;
}

static void
tell_batched (const ExecAttentionShape *shape, const char *why)
{
  g_message ("attention%s of %" G_GINT64_FORMAT " x %" G_GINT64_FORMAT " tokens, %" G_GINT64_FORMAT
             " heads of %" G_GINT64_FORMAT " in %s: %s, batched products take it",
             shape->is_backward ? " backwards" : "", shape->batch, shape->seq, shape->heads,
             shape->head_dim, plan_dtype_name (shape->dtype), why);
}

/* --- opening and closing ------------------------------------------------------------------ */

/* Bytes of an op's scratch that are left once its address is rounded up to the alignment. */
static guint64
scratch_of (const PlanSchedule *schedule, const PlanRef *ref)
{
  if (ref->array < 0)
    return 0;
  const PlanBuffer *buffer = plan_schedule_buffer (schedule, (guint)ref->array);
  const guint64 bytes = plan_dtype_bytes (buffer->dtype, buffer->elements - ref->at);
  return bytes > WORKSPACE_ALIGNMENT ? bytes - WORKSPACE_ALIGNMENT : 0;
}

/* Whether cuDNN does the shape with this much scratch; FALSE, with the reason, if it has no kernel
 * or wants more. */
static gboolean
try_fused (const ExecAttentionShape *shape, guint64 scratch, guint64 *out_workspace, GError **error)
{
  if (!exec_attention_check_shape (shape, error)
      || (!thread.attention && !(thread.attention = exec_attention_new (error)))
      || !exec_attention_workspace (thread.attention, shape, out_workspace, error))
    return FALSE;
  if (*out_workspace <= scratch)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
               "cuDNN wants %" G_GUINT64_FORMAT
               " bytes of workspace, and the plan has %" G_GUINT64_FORMAT,
               *out_workspace, scratch);
  return FALSE;
}

/* Decides who does the shape: batched products where cuDNN does not support it. Any other error of
 * cuDNN's is passed on. */
static gboolean
choose (const ExecAttentionShape *shape, guint64 scratch, GError **error)
{
  Choice choice = { .shape = *shape };
  g_autoptr (GError) why = NULL;

  choice.is_fused = try_fused (shape, scratch, &choice.workspace, &why);
  if (!choice.is_fused && !g_error_matches (why, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED))
    {
      g_propagate_error (error, g_steal_pointer (&why));
      return FALSE;
    }
  if (!choice.is_fused)
    tell_batched (shape, why->message);
  g_array_append_val (thread.choices, choice);
  return TRUE;
}

static gboolean
prepare (const ExecDeviceNeeds *needs, const PlanOp *op, GError **error)
{
  const PlanSchedule *schedule = needs->schedule;
  const guint work = op->kind == PLAN_OP_ATTENTION ? WORK : BWD_WORK;
  PlanDtype dtype[PLAN_MAX_REFS] = { 0 };
  ExecAttentionShape shape;

  for (guint i = 0; i < plan_op_n_refs (op->kind); i++)
    if (op->refs[i].array >= 0)
      dtype[i] = plan_schedule_buffer (schedule, (guint)op->refs[i].array)->dtype;
  const char *why = find_shape (op, dtype, needs->is_deterministic,
                                plan_schedule_manner (schedule, op), &shape);
  if (why)
    tell_batched (&shape, why);
  return why || choice_of (&shape)
         || choose (&shape, scratch_of (schedule, &op->refs[work]), error);
}

gboolean
exec_cuda_fused_open (const ExecDeviceNeeds *needs, GError **error)
{
  ExecCudaWay way;
  if (!exec_cuda_attention_way (&way, error))
    return FALSE;
  if (thread.opened++ == 0)
    thread.choices = g_array_new (FALSE, FALSE, sizeof (Choice));
  for (guint i = 0; way == EXEC_CUDA_WAY_AUTO && i < plan_schedule_n_nodes (needs->schedule); i++)
    {
      const PlanOp *op = plan_schedule_node (needs->schedule, i);

      if ((op->kind == PLAN_OP_ATTENTION || op->kind == PLAN_OP_ATTENTION_BWD)
          && !prepare (needs, op, error))
        {
          exec_cuda_fused_close ();
          return FALSE;
        }
    }
  return TRUE;
}

void
exec_cuda_fused_close (void)
{
  g_assert (thread.opened > 0);
  if (--thread.opened > 0)
    return;
  g_clear_pointer (&thread.choices, g_array_unref);
  g_clear_pointer (&thread.attention, exec_attention_free);
}

guint
exec_cuda_fused_version (void)
{
  return exec_attention_version ();
}

/* --- launching ---------------------------------------------------------------------------- */

/* The op's scratch, aligned, if cuDNN does this op; NULL: batched products do it. */
static void *
workspace_for (const ExecArgs *args, guint operand, ExecAttentionShape *out_shape)
{
  guint8 *at = args->ptr[operand];
  const guint64 skipped = -(guintptr)at & (WORKSPACE_ALIGNMENT - 1);

  if (!at || find_shape (args->op, args->dtype, args->is_deterministic, args->manner, out_shape))
    return NULL;
  const Choice *choice = choice_of (out_shape);
  return choice && choice->is_fused && choice->workspace + skipped <= args->scratch_bytes
             ? at + skipped
             : NULL;
}

static int
run (const ExecAttentionShape *shape, const ExecAttentionOperands *operands, void *stream)
{
  GError *error = NULL;

  return exec_attention_run (thread.attention, shape, operands, stream, &error)
             ? 0
             : exec_cuda_error_code (error);
}

int
exec_cuda_fused_attention (const ExecArgs *args, void *stream)
{
  ExecAttentionShape shape;
  const ExecAttentionOperands operands = { .qkv = args->ptr[QKV],
                                           .out = args->ptr[OUT],
                                           .lse = args->ptr[LSE],
                                           .workspace = workspace_for (args, WORK, &shape),
                                           .scalar = exec_manner (args, PLAN_MANNER_SCALAR) };

  return operands.workspace ? run (&shape, &operands, stream)
                            : exec_cuda_batched_attention (args, stream);
}

int
exec_cuda_fused_attention_bwd (const ExecArgs *args, void *stream)
{
  ExecAttentionShape shape;
  const ExecAttentionOperands operands = { .qkv = args->ptr[BWD_QKV],
                                           .out = args->ptr[BWD_OUT],
                                           .lse = args->ptr[BWD_LSE],
                                           .dout = args->ptr[BWD_DOUT],
                                           .dqkv = args->ptr[BWD_DQKV],
                                           .workspace = workspace_for (args, BWD_WORK, &shape),
                                           .scalar = exec_manner (args, PLAN_MANNER_SCALAR) };

  return operands.workspace ? run (&shape, &operands, stream)
                            : exec_cuda_batched_attention_bwd (args, stream);
}
