/* SPDX-License-Identifier: Apache-2.0 */
/* A row of qkv holds the query heads, then the key heads, then the value heads; a row of out or
 * dout holds the query heads. In latent attention queries, keys and values lie in operands of
 * their own, and value heads have a width of their own. `group` neighbouring query heads share a
 * key head. A batched product takes the h-th query head of each group, and these lie `group` heads
 * apart.
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
#include "exec/cuda/kernels/layers.h"
#include "exec/cuda/kernels/scores.h"
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

/* Where heads lie in an operand: in rows of `width` elements, of which the first one begins at
 * `at`; each has `dim`. */
typedef struct
{
  guint operand;
  gint64 width, at, dim;
} Heads;

/* An attention op, and how it is cut into turns. */
typedef struct
{
  const ExecArgs *args;
  gint64 batch, seq, heads, kv_heads, dim, v_dim, group;
  ExecCudaScores rule;
  PlanBatchedTurn turn;
  PlanDtype dtype; /* of both factors of a product */
  Heads q, k, v, out, dout, dq, dk, dv;
  guint lse;                                 /* index of its operand */
  float *scores, *dscores, *dkeys, *dvalues; /* in the scratch; all but scores backward only */
} Attention;

static Heads
heads_of (guint operand, gint64 heads, gint64 dim)
{
  return (Heads){ operand, heads * dim, 0, dim };
}

/* Query (0), key (1), or value heads in rows that hold all of them. */
static Heads
heads_in_qkv (const gint64 *dims, guint operand, gint64 which)
{
  const gint64 heads = dims[PLAN_DIM_ATTENTION_heads], kv_heads = dims[PLAN_DIM_ATTENTION_kv_heads],
               dim = dims[PLAN_DIM_ATTENTION_head_dim];
  return (Heads){ operand, (heads + 2 * kv_heads) * dim,
                  which > 0 ? (heads + (which - 1) * kv_heads) * dim : 0, dim };
}

/* The shape of an op of multi-head attention, and where its operands lie; those of a gradient only
 * backwards. */
static Attention
multi_head_of (const ExecArgs *args, gboolean is_bwd)
{
  const gint64 *dims = args->op->dims;
  const guint qkv = is_bwd ? BWD_QKV : QKV;
  const gint64 heads = dims[PLAN_DIM_ATTENTION_heads], dim = dims[PLAN_DIM_ATTENTION_head_dim];
  return (Attention){ .kv_heads = dims[PLAN_DIM_ATTENTION_kv_heads],
                      .dim = dim,
                      .v_dim = dim,
                      .q = heads_in_qkv (dims, qkv, 0),
                      .k = heads_in_qkv (dims, qkv, 1),
                      .v = heads_in_qkv (dims, qkv, 2),
                      .out = heads_of (is_bwd ? BWD_OUT : OUT, heads, dim),
                      .dout = heads_of (BWD_DOUT, heads, dim),
                      .dq = heads_in_qkv (dims, BWD_DQKV, 0),
                      .dk = heads_in_qkv (dims, BWD_DQKV, 1),
                      .dv = heads_in_qkv (dims, BWD_DQKV, 2),
                      .lse = is_bwd ? BWD_LSE : LSE };
}

/* The same of latent attention. */
#define FORWARD(name) PLAN_REF_LATENT_ATTENTION_##name
#define BACKWARD(name) PLAN_REF_LATENT_ATTENTION_BWD_##name
#define EITHER(name) (is_bwd ? BACKWARD (name) : FORWARD (name))

static Attention
latent_of (const ExecArgs *args, gboolean is_bwd)
{
  const gint64 *dims = args->op->dims;
  const gint64 heads = dims[PLAN_DIM_LATENT_ATTENTION_heads],
               dim = dims[PLAN_DIM_LATENT_ATTENTION_head_dim],
               v_dim = dims[PLAN_DIM_LATENT_ATTENTION_v_dim];
  return (Attention){ .kv_heads = heads,
                      .dim = dim,
                      .v_dim = v_dim,
                      .q = heads_of (EITHER (q), heads, dim),
                      .k = heads_of (EITHER (k), heads, dim),
                      .v = heads_of (EITHER (v), heads, v_dim),
                      .out = heads_of (EITHER (out), heads, v_dim),
                      .dout = heads_of (BACKWARD (dout), heads, v_dim),
                      .dq = heads_of (BACKWARD (dq), heads, dim),
                      .dk = heads_of (BACKWARD (dk), heads, dim),
                      .dv = heads_of (BACKWARD (dv), heads, v_dim),
                      .lse = EITHER (lse) };
}

static guint
work_of (PlanOpKind kind)
{
  return kind == PLAN_OP_ATTENTION          ? (guint)WORK
         : kind == PLAN_OP_ATTENTION_BWD    ? (guint)BWD_WORK
         : kind == PLAN_OP_LATENT_ATTENTION ? (guint)FORWARD (work)
                                            : (guint)BACKWARD (work);
}

/* Whether where tokens are in the whole sequence matters, and they are not those of one: keys of
 * other ranks; windows, chunks, slopes, documents and dropout where there are parts. */
static gboolean
is_of_parts (const ExecArgs *args, const ExecCudaScores *rule)
{
  const PlanOpKind kind = args->op->kind;
  if ((kind == PLAN_OP_ATTENTION && args->ptr[KV])
      || (kind == PLAN_OP_ATTENTION_BWD && args->ptr[BWD_KV]))
    return TRUE;
  return exec_manner (args, PLAN_MANNER_PARTS) > 1
         && (rule->window < rule->whole || rule->chunk < rule->whole || rule->slopes > 0
             || rule->places || rule->dropout.key);
}

/* Fills in *out. FALSE: batched products cannot do this op, because is_of_parts, or because it has
 * too little scratch, or operands in formats that do not go together. */
static gboolean
attention_of (const ExecArgs *args, Attention *out)
{
  const PlanOpKind kind = args->op->kind;
  const gboolean is_bwd = kind == PLAN_OP_ATTENTION_BWD || kind == PLAN_OP_LATENT_ATTENTION_BWD;
  const gint64 *dims = args->op->dims;
  guint8 *work = args->ptr[work_of (kind)];
  const guint64 skipped = -(guintptr)work & (ALIGNMENT - 1);
  Attention self = kind == PLAN_OP_ATTENTION || kind == PLAN_OP_ATTENTION_BWD
                       ? multi_head_of (args, is_bwd)
                       : latent_of (args, is_bwd);
  self.args = args;
  self.batch = dims[PLAN_DIM_ATTENTION_batch];
  self.seq = dims[PLAN_DIM_ATTENTION_seq];
  self.heads = dims[PLAN_DIM_ATTENTION_heads];
  self.group = self.heads / self.kv_heads;
  self.rule = exec_cuda_scores (args, (guint64)self.dim);
  self.dtype = args->dtype[self.q.operand];
  if (is_of_parts (args, &self.rule) || !work || args->scratch_bytes <= skipped
      || (self.dtype != PLAN_DTYPE_FP32 && self.dtype != PLAN_DTYPE_BF16
          && self.dtype != PLAN_DTYPE_FP16)
      || args->dtype[self.k.operand] != self.dtype || args->dtype[self.v.operand] != self.dtype
      || (is_bwd && args->dtype[self.dout.operand] != self.dtype)
      || !plan_scratch_batched_turn (kind, dims, (args->scratch_bytes - skipped) / sizeof (float),
                                     &self.turn))
    return FALSE;
  const guint64 scores = (guint64)(self.turn.heads * self.turn.queries) * self.turn.query_stride;
  self.scores = (float *)(work + skipped);
  self.dscores = self.scores + scores;
  self.dkeys = self.dscores + scores;
  self.dvalues = self.dkeys + (guint64)self.turn.heads * self.turn.key_stride;
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
  const gint64 chunk = (gint64)self->rule.chunk, window = (gint64)self->rule.window;
  return MAX (turn->first + 1 - window, turn->first / chunk * chunk) / KEYS_ALIGNED * KEYS_ALIGNED;
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
heads_at (const Attention *self, const Turn *turn, const Heads *of, gint64 first, gint64 head,
          gint64 apart)
{
  const gint64 at = (turn->sequence * self->seq + first) * of->width + of->at + head * of->dim;
  const PlanDtype dtype = self->args->dtype[of->operand];
  return (ExecCudaMatrices){ (guint8 *)self->args->ptr[of->operand]
                                 + plan_dtype_bytes (dtype, (guint64)at),
                             dtype, of->width, apart * of->dim };
}

static ExecCudaMatrices
queries_at (const Attention *self, const Turn *turn, const Heads *of)
{
  return heads_at (self, turn, of, turn->first, turn->first_head * self->group + turn->h,
                   self->group);
}

/* The matrices of the turn's key or value heads. */
static ExecCudaMatrices
keys_at (const Attention *self, const Turn *turn, const Heads *of, gint64 first)
{
  return heads_at (self, turn, of, first, turn->first_head, 1);
}

/* The turn's rows of scores: in fp32 as a product writes them, or in the format of what overwrites
 * them. */
static ExecCudaMatrices
scores_at (const Attention *self, float *scores, PlanDtype dtype)
{
  const gint64 in_row = (gint64)self->turn.query_stride * (dtype == PLAN_DTYPE_FP32 ? 1 : 2);
  return (ExecCudaMatrices){ scores, dtype, in_row, self->turn.queries * in_row };
}

/* The sums in scratch of the gradients of the turn's keys, or of its values, from from_key on.
 * Those of two heads lie `stride` elements apart. */
static ExecCudaMatrices
sums_at (const Attention *self, const Turn *turn, float *sums, gint64 dim, guint64 stride)
{
  return (ExecCudaMatrices){ sums + from_key (self, turn) * dim, PLAN_DTYPE_FP32, dim,
                             (gint64)stride };
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
score (const Attention *self, const Turn *turn, gint64 dim, float *scores, ExecCudaMatrices rows,
       ExecCudaMatrices keys, void *stream)
{
  return PRODUCT (turn->queries, keys_of (self, turn), dim, 1, FALSE,
                  scores_at (self, scores, PLAN_DTYPE_FP32), rows, keys);
}

static ExecCudaSoftmax
softmax_of (const Attention *self, const Turn *turn)
{
  const gint64 first_head = turn->first_head * self->group + turn->h,
               head = turn->sequence * self->heads + first_head;
  return (ExecCudaSoftmax){ .scores = self->scores,
                            .pitch = self->turn.query_stride,
                            .stride = (guint64)self->turn.queries * self->turn.query_stride,
                            .heads = (guint64)turn->heads,
                            .queries = (guint64)turn->queries,
                            .first = (guint64)(turn->first - from_key (self, turn)),
                            .from = (guint64)from_key (self, turn),
                            .seq = (guint64)self->seq,
                            .sequence = (guint64)turn->sequence,
                            .first_head = (guint64)first_head,
                            .apart = (guint64)self->group,
                            .rule = self->rule,
                            .lse
                            = (float *)self->args->ptr[self->lse] + head * self->seq + turn->first,
                            .lse_stride = (guint64)(self->group * self->seq),
                            .dtype = self->dtype };
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
  int code = score (self, turn, self->dim, self->scores, queries_at (self, turn, &self->q),
                    keys_at (self, turn, &self->k, from), stream);
  if (code == 0)
    code = exec_cuda_softmax (&softmax, stream);
  if (code == 0)
    code
        = PRODUCT (turn->queries, self->v_dim, keys_of (self, turn), 0, FALSE,
                   queries_at (self, turn, &self->out), scores_at (self, self->scores, self->dtype),
                   keys_at (self, turn, &self->v, from));
  return code;
}

static int
softmax_backward (const Attention *self, const Turn *turn, void *stream)
{
  const ExecCudaMatrices dout = queries_at (self, turn, &self->dout),
                         out = queries_at (self, turn, &self->out);
  const ExecCudaSoftmaxBwd backward = { .of = softmax_of (self, turn),
                                        .dscores = self->dscores,
                                        .dout = { dout.at, dout.dtype },
                                        .out = { out.at, out.dtype },
                                        .dim = (guint64)self->v_dim,
                                        .row_pitch = (guint64)out.pitch,
                                        .head_stride = (guint64)out.stride };
  return exec_cuda_softmax_bwd (&backward, stream);
}

/* Does one turn of the backward pass. It adds to the gradients of its keys and values, which
 * backward_of_heads has set to zero, because several turns see the same keys. */
static int
take_backward (const Attention *self, const Turn *turn, void *stream)
{
  const ExecCudaMatrices q = queries_at (self, turn, &self->q),
                         dout = queries_at (self, turn, &self->dout);
  const ExecCudaMatrices prob = scores_at (self, self->scores, self->dtype),
                         dscores = scores_at (self, self->dscores, self->dtype);
  const gint64 keys = keys_of (self, turn), from = from_key (self, turn);
  const ExecCudaMatrices k = keys_at (self, turn, &self->k, from),
                         v = keys_at (self, turn, &self->v, from);
  const ExecCudaMatrices dkeys
      = sums_at (self, turn, self->dkeys, self->dim, self->turn.key_stride),
      dvalues = sums_at (self, turn, self->dvalues, self->v_dim, self->turn.value_stride);
  int code = score (self, turn, self->dim, self->scores, q, k, stream);
  if (code == 0)
    code = score (self, turn, self->v_dim, self->dscores, dout, v, stream);
  if (code == 0)
    code = softmax_backward (self, turn, stream);
  if (code == 0)
    code = PRODUCT (turn->queries, self->dim, keys, 0, FALSE, queries_at (self, turn, &self->dq),
                    dscores, k);
  if (code == 0)
    code = PRODUCT (keys, self->dim, turn->queries, 2, TRUE, dkeys, dscores, q);
  if (code == 0)
    code = PRODUCT (keys, self->v_dim, turn->queries, 2, TRUE, dvalues, prob, dout);
  return code;
}

/* Rounds the gradients of some key heads, or value heads, from fp32 into their operand, once all
 * turns have added to them. */
static int
round_gradients (const Attention *self, const Turn *turn, const float *from, guint64 stride,
                 const Heads *of, void *stream)
{
  const ExecCudaMatrices to = keys_at (self, turn, of, 0);
  const ExecCudaSums sums = { .from = from,
                              .from_stride = stride,
                              .to = to.at,
                              .dtype = to.dtype,
                              .heads = (guint64)turn->heads,
                              .rows = (guint64)self->seq,
                              .dim = (guint64)of->dim,
                              .pitch = (guint64)to.pitch,
                              .stride = (guint64)to.stride };
  return exec_cuda_round_sums (&sums, stream);
}

static int
backward_of_heads (const Attention *self, Turn *turn, void *stream)
{
  const guint64 bytes = (guint64)self->turn.heads
                        * (self->turn.key_stride + self->turn.value_stride) * sizeof (float);
  int code = (int)cudaMemsetAsync (self->dkeys, 0, bytes, (cudaStream_t)stream);
  if (code == 0)
    code = take_turns (self, turn, take_backward, stream);
  if (code == 0)
    code = round_gradients (self, turn, self->dkeys, self->turn.key_stride, &self->dk, stream);
  if (code == 0)
    code = round_gradients (self, turn, self->dvalues, self->turn.value_stride, &self->dv, stream);
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

int
exec_cuda_batched_latent (const ExecArgs *args, void *stream)
{
  return attend (args, forward_of_heads, exec_cuda_latent_attention, stream);
}

int
exec_cuda_batched_latent_bwd (const ExecArgs *args, void *stream)
{
  return attend (args, backward_of_heads, exec_cuda_latent_attention_bwd, stream);
}
