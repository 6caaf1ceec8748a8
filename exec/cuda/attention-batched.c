/* SPDX-License-Identifier: Apache-2.0 */
/* A row of qkv holds the query heads, then the key heads, then the value heads; a row of out or
 * dout holds the query heads. `group` neighbouring query heads share a key head. A batched product
 * takes the h-th query head of each group, and these lie `group` heads apart.
 *
 * Scores are in fp32. The softmax overwrites them with probabilities in qkv's format, and the
 * gradients of probabilities with the gradients of scores likewise, because both factors of a
 * product must have one format. In a format of 16 bits they fill the first half of each row. */
#include "config.h"

#include "exec/cuda/attention-batched.h"

#include "exec/cuda/attention-operands.h"
#include "exec/cuda/cuda-check.h"
#include "exec/cuda/gemm-batched.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/window.h"
#include "exec/cuda/lt.h"
#include "planner/base/error.h"
#include "planner/schedule/scratch.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

#define ALIGNMENT (PLAN_SCRATCH_ALIGNMENT * sizeof (float))
#define KEYS_ALIGNED 8

static __thread ExecCudaWay way;

gboolean
exec_cuda_attention_way (ExecCudaWay *out, GError **error)
{
  static const char *const names[] = { [EXEC_CUDA_WAY_AUTO] = "auto",
                                       [EXEC_CUDA_WAY_BATCHED] = "batched",
                                       [EXEC_CUDA_WAY_PLAIN] = "plain" };
  const char *asked = g_getenv ("FSDPLAN_ATTENTION");
  *out = EXEC_CUDA_WAY_AUTO;
  for (guint i = 0; asked && i < G_N_ELEMENTS (names); i++)
    if (strcmp (asked, names[i]) == 0)
      {
        *out = (ExecCudaWay)i;
        return TRUE;
      }
  if (!asked)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "FSDPLAN_ATTENTION: '%s' is not one of auto, batched, plain", asked);
  return FALSE;
}

gboolean
exec_cuda_batched_attention_open (GError **error)
{
  return exec_cuda_attention_way (&way, error) && exec_cuda_batched_open (error);
}

void
exec_cuda_batched_attention_close (void)
{
  exec_cuda_batched_close ();
}

/* --- shapes ------------------------------------------------------------------------------- */

/* An attention op, and how it is cut into turns. */
typedef struct
{
  const ExecArgs *args;
  gint64 batch, seq, heads, kv_heads, dim, group, window;
  PlanBatchedTurn turn;
  PlanDtype dtype; /* of both factors of a product */
  guint qkv, lse;  /* indices of operands */
  float scale;
  float *scores, *dscores, *dkeys, *dvalues; /* in the scratch; all but scores backward only */
} Attention;

/* Whether queries and keys are not simply the tokens of one sequence up to a window. */
static gboolean
is_of_parts (const ExecArgs *args)
{
  return args->ptr[args->op->kind == PLAN_OP_ATTENTION_BWD ? BWD_KV : KV]
         || (exec_manner (args, PLAN_MANNER_PARTS) > 1
             && exec_manner (args, PLAN_MANNER_WINDOW) > 0);
}

/* Fills in *out. FALSE: batched products cannot do this op, because it has keys of other ranks, too
 * little scratch, or operands of formats that do not go together. */
static gboolean
attention_of (const ExecArgs *args, Attention *out)
{
  const gboolean is_bwd = args->op->kind == PLAN_OP_ATTENTION_BWD;
  const gint64 *dims = args->op->dims;
  guint8 *work = args->ptr[is_bwd ? BWD_WORK : WORK];
  const guint64 skipped = -(guintptr)work & (ALIGNMENT - 1);
  const double scalar = exec_manner (args, PLAN_MANNER_SCALAR);
  Attention self
      = { .args = args,
          .batch = dims[PLAN_DIM_ATTENTION_batch],
          .seq = dims[PLAN_DIM_ATTENTION_seq],
          .heads = dims[PLAN_DIM_ATTENTION_heads],
          .kv_heads = dims[PLAN_DIM_ATTENTION_kv_heads],
          .dim = dims[PLAN_DIM_ATTENTION_head_dim],
          .group = dims[PLAN_DIM_ATTENTION_heads] / dims[PLAN_DIM_ATTENTION_kv_heads],
          .window = exec_cuda_window (args),
          .qkv = is_bwd ? BWD_QKV : QKV,
          .lse = is_bwd ? BWD_LSE : LSE,
          .scale
          = (float)(1 / sqrt (scalar > 0 ? scalar : (double)dims[PLAN_DIM_ATTENTION_head_dim])) };
  self.dtype = args->dtype[self.qkv];
  if (is_of_parts (args) || !work || args->scratch_bytes <= skipped
      || (self.dtype != PLAN_DTYPE_FP32 && self.dtype != PLAN_DTYPE_BF16
          && self.dtype != PLAN_DTYPE_FP16)
      || (is_bwd && args->dtype[BWD_DOUT] != self.dtype)
      || !plan_scratch_batched_turn (args->op->kind, dims,
                                     (args->scratch_bytes - skipped) / sizeof (float), &self.turn))
    return FALSE;
  const guint64 scores = (guint64)(self.turn.heads * self.turn.queries) * self.turn.pitch;
  self.scores = (float *)(work + skipped);
  self.dscores = self.scores + scores;
  self.dkeys = self.dscores + scores;
  self.dvalues = self.dkeys + (guint64)self.turn.heads * self.turn.image;
  *out = self;
  return TRUE;
}

/* The h-th query head of each of some key heads, and some of the queries. */
typedef struct
{
  gint64 sequence, first_head, heads; /* the last two count key heads */
  gint64 first, queries, h;
} Turn;

/* The first key that a query of the turn sees, rounded down so that its row is aligned as row 0
 * is. */
static gint64
from_key (const Attention *self, const Turn *turn)
{
  return MAX (turn->first + 1 - self->window, 0) / KEYS_ALIGNED * KEYS_ALIGNED;
}

/* Keys from from_key on, up to the last query's own. */
static gint64
keys_of (const Attention *self, const Turn *turn)
{
  return turn->first + turn->queries - from_key (self, turn);
}

/* The matrices of the turn's heads in an operand: rows from token `first` on, of head `head` and of
 * every `apart`-th head behind it. */
static ExecCudaMatrices
heads_at (const Attention *self, const Turn *turn, guint operand, gint64 first, gint64 head,
          gint64 apart)
{
  const gboolean is_qkv = operand == self->qkv
                          || (self->args->op->kind == PLAN_OP_ATTENTION_BWD && operand == BWD_DQKV);
  const gint64 width = (self->heads + (is_qkv ? 2 * self->kv_heads : 0)) * self->dim;
  const gint64 at = (turn->sequence * self->seq + first) * width + head * self->dim;
  const PlanDtype dtype = self->args->dtype[operand];
  return (ExecCudaMatrices){ (guint8 *)self->args->ptr[operand]
                                 + plan_dtype_bytes (dtype, (guint64)at),
                             dtype, width, apart * self->dim };
}

static ExecCudaMatrices
queries_at (const Attention *self, const Turn *turn, guint operand)
{
  return heads_at (self, turn, operand, turn->first, turn->first_head * self->group + turn->h,
                   self->group);
}

static ExecCudaMatrices
keys_at (const Attention *self, const Turn *turn, guint operand, gint64 first)
{
  return heads_at (self, turn, operand, first, self->heads + turn->first_head, 1);
}

static ExecCudaMatrices
values_at (const Attention *self, const Turn *turn, guint operand, gint64 first)
{
  return heads_at (self, turn, operand, first, self->heads + self->kv_heads + turn->first_head, 1);
}

/* The turn's rows of scores: in fp32 as a product writes them, or in the format of what overwrites
 * them. */
static ExecCudaMatrices
scores_at (const Attention *self, float *scores, PlanDtype dtype)
{
  const gint64 in_row = (gint64)self->turn.pitch * (dtype == PLAN_DTYPE_FP32 ? 1 : 2);
  return (ExecCudaMatrices){ scores, dtype, in_row, self->turn.queries * in_row };
}

static ExecCudaMatrices
image_at (const Attention *self, const Turn *turn, float *image)
{
  return (ExecCudaMatrices){ image + from_key (self, turn) * self->dim, PLAN_DTYPE_FP32, self->dim,
                             (gint64)self->turn.image };
}

static int
multiply (const Attention *self, const Turn *turn, const gint64 size[3], guint layout,
          const ExecCudaMatrices matrices[3], gboolean accumulates, void *stream)
{
  const ExecCudaBatch batch = { .m = size[0],
                                .n = size[1],
                                .k = size[2],
                                .count = (guint)turn->heads,
                                .layout = layout,
                                .accumulates = accumulates,
                                .taken_sms = self->args->taken_sms,
                                .out = matrices[0],
                                .a = matrices[1],
                                .b = matrices[2] };
  return exec_cuda_batched (&batch, stream);
}

#define PRODUCT(m, n, k, layout, accumulates, ...) \
  multiply (self, turn, (gint64[]){ m, n, k }, layout, (ExecCudaMatrices[]){ __VA_ARGS__ }, \
            accumulates, stream)

/* Multiplies rows of q by rows of k, which gives scores; or rows of dout by rows of v, which gives
 * the gradients of probabilities. */
static int
score (const Attention *self, const Turn *turn, float *scores, ExecCudaMatrices rows,
       ExecCudaMatrices keys, void *stream)
{
  return PRODUCT (turn->queries, keys_of (self, turn), self->dim, 1, FALSE,
                  scores_at (self, scores, PLAN_DTYPE_FP32), rows, keys);
}

static ExecCudaSoftmax
softmax_of (const Attention *self, const Turn *turn)
{
  const gint64 head = turn->sequence * self->heads + turn->first_head * self->group + turn->h;
  return (ExecCudaSoftmax){ .scores = self->scores,
                            .pitch = self->turn.pitch,
                            .stride = (guint64)self->turn.queries * self->turn.pitch,
                            .heads = (guint64)turn->heads,
                            .queries = (guint64)turn->queries,
                            .first = (guint64)(turn->first - from_key (self, turn)),
                            .window = (guint64)self->window,
                            .lse
                            = (float *)self->args->ptr[self->lse] + head * self->seq + turn->first,
                            .lse_stride = (guint64)(self->group * self->seq),
                            .dtype = self->dtype,
                            .scale = self->scale };
}

/* --- turns -------------------------------------------------------------------------------- */

typedef int (*TurnFunc) (const Attention *self, const Turn *turn, void *stream);

/* Does all turns of some key heads of a sequence: all queries of one query head of each group, then
 * those of the next. */
static int
take_turns (const Attention *self, Turn *turn, TurnFunc take, void *stream)
{
  int code = 0;
  for (turn->h = 0; turn->h < self->group && code == 0; turn->h++)
    for (turn->first = 0; turn->first < self->seq && code == 0; turn->first += turn->queries)
      {
        turn->queries = MIN (self->turn.queries, self->seq - turn->first);
        code = take (self, turn, stream);
      }
  return code;
}

static int
take_forward (const Attention *self, const Turn *turn, void *stream)
{
  const ExecCudaSoftmax softmax = softmax_of (self, turn);
  const gint64 from = from_key (self, turn);
  int code = score (self, turn, self->scores, queries_at (self, turn, QKV),
                    keys_at (self, turn, QKV, from), stream);
  if (code == 0)
    code = exec_cuda_softmax (&softmax, stream);
  if (code == 0)
    code = PRODUCT (turn->queries, self->dim, keys_of (self, turn), 0, FALSE,
                    queries_at (self, turn, OUT), scores_at (self, self->scores, self->dtype),
                    values_at (self, turn, QKV, from));
  return code;
}

static int
softmax_backward (const Attention *self, const Turn *turn, void *stream)
{
  const ExecCudaMatrices dout = queries_at (self, turn, BWD_DOUT),
                         out = queries_at (self, turn, BWD_OUT);
  const ExecCudaSoftmaxBwd backward = { .of = softmax_of (self, turn),
                                        .dscores = self->dscores,
                                        .dout = { dout.at, dout.dtype },
                                        .out = { out.at, out.dtype },
                                        .dim = (guint64)self->dim,
                                        .row_pitch = (guint64)out.pitch,
                                        .head_stride = (guint64)out.stride };
  return exec_cuda_softmax_bwd (&backward, stream);
}

/* Does one turn of the backward pass. It adds to the gradients of its keys and values, which
 * backward_of_heads has set to zero, because several turns see the same keys. */
static int
take_backward (const Attention *self, const Turn *turn, void *stream)
{
  const ExecCudaMatrices q = queries_at (self, turn, BWD_QKV),
                         dout = queries_at (self, turn, BWD_DOUT);
  const ExecCudaMatrices prob = scores_at (self, self->scores, self->dtype),
                         dscores = scores_at (self, self->dscores, self->dtype);
  const gint64 keys = keys_of (self, turn), from = from_key (self, turn);
  const ExecCudaMatrices k = keys_at (self, turn, BWD_QKV, from),
                         v = values_at (self, turn, BWD_QKV, from);
  int code = score (self, turn, self->scores, q, k, stream);
  if (code == 0)
    code = score (self, turn, self->dscores, dout, v, stream);
  if (code == 0)
    code = softmax_backward (self, turn, stream);
  if (code == 0)
    code = PRODUCT (turn->queries, self->dim, keys, 0, FALSE, queries_at (self, turn, BWD_DQKV),
                    dscores, k);
  if (code == 0)
    code = PRODUCT (keys, self->dim, turn->queries, 2, TRUE, image_at (self, turn, self->dkeys),
                    dscores, q);
  if (code == 0)
    code = PRODUCT (keys, self->dim, turn->queries, 2, TRUE, image_at (self, turn, self->dvalues),
                    prob, dout);
  return code;
}

/* Rounds the gradients of some key and value heads from fp32 into dqkv, once all turns have added
 * to them. */
static int
keep_keys (const Attention *self, const Turn *turn, void *stream)
{
  const ExecCudaMatrices keys = keys_at (self, turn, BWD_DQKV, 0),
                         values = values_at (self, turn, BWD_DQKV, 0);
  const ExecCudaSums sums = { .from = { self->dkeys, self->dvalues },
                              .from_stride = self->turn.image,
                              .to = { keys.at, values.at },
                              .dtype = keys.dtype,
                              .heads = (guint64)turn->heads,
                              .rows = (guint64)self->seq,
                              .dim = (guint64)self->dim,
                              .pitch = (guint64)keys.pitch,
                              .stride = (guint64)keys.stride };
  return exec_cuda_keep_sums (&sums, stream);
}

static int
backward_of_heads (const Attention *self, Turn *turn, void *stream)
{
  const guint64 bytes = 2 * (guint64)self->turn.heads * self->turn.image * sizeof (float);
  int code = (int)cudaMemsetAsync (self->dkeys, 0, bytes, (cudaStream_t)stream);
  if (code == 0)
    code = take_turns (self, turn, take_backward, stream);
  if (code == 0)
    code = keep_keys (self, turn, stream);
  return code;
}

static int
forward_of_heads (const Attention *self, Turn *turn, void *stream)
{
  return take_turns (self, turn, take_forward, stream);
}

/* Does attention by batched products, or by the plain kernel where they cannot. If cuBLASLt refuses
 * one of the products, the plain kernel does the whole op and overwrites what has been written. */
static int
attend (const ExecArgs *args, int (*heads) (const Attention *, Turn *, void *), ExecLauncher plain,
        void *stream)
{
  Attention self;
  int code = 0;
  if (way == EXEC_CUDA_WAY_PLAIN || !attention_of (args, &self))
    return plain (args, stream);
  for (gint64 b = 0; b < self.batch && code == 0; b++)
    for (gint64 head = 0; head < self.kv_heads && code == 0; head += self.turn.heads)
      {
        Turn turn = { .sequence = b,
                      .first_head = head,
                      .heads = MIN (self.turn.heads, self.kv_heads - head) };
        code = heads (&self, &turn, stream);
      }
  return exec_cuda_lt_is_refusal (code) ? plain (args, stream) : code;
}

int
exec_cuda_batched_attention (const ExecArgs *args, void *stream)
{
  return attend (args, forward_of_heads, exec_cuda_attention, stream);
}

int
exec_cuda_batched_attention_bwd (const ExecArgs *args, void *stream)
{
  return attend (args, backward_of_heads, exec_cuda_attention_bwd, stream);
}
