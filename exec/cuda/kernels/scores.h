/* What attention does with scores and weights, and which keys a query sees, for all of its
 * launchers on GPUs: what exec/cpu/attend.c reads from an op's arguments. */
#pragma once
#include "exec/kernels.h"
#include "exec/number/random.h"
#include <math.h>
G_BEGIN_DECLS

typedef struct
{
  guint64 window;     /* keys that a query sees at most */
  guint64 whole;      /* tokens of a whole sequence */
  guint32 chunk;      /* tokens that see no earlier ones; 32 bits, as a remainder of 64 bits would
                         take a GPU too many registers */
  float scale, cap;   /* of scores; cap 0: they are not bounded */
  guint32 slopes;     /* ALiBi: the largest power of two among the numbers of heads; 0: no slopes */
  guint32 first_head; /* the number of the first head here */
  ExecDropout dropout;  /* of weights in the first head here; without a key there is none */
  const gint64 *start;  /* on the device: the number of the first token in the run */
  const gint32 *places; /* of all tokens in their documents; NULL: each sequence is one document */
} ExecCudaScores;

/* Whether scores or weights are more than masked, scaled products and their softmax. */
static inline gboolean
exec_cuda_scores_bend (const ExecCudaScores *self)
{
  return self->cap > 0 || self->slopes > 0 || self->places || self->dropout.key;
}

static inline guint32
exec_cuda_slopes (const ExecArgs *args)
{
  const double whole = exec_manner (args, PLAN_MANNER_WHOLE);
  const guint32 heads
      = (guint32)(whole > 0 ? whole : (double)args->op->dims[PLAN_DIM_ATTENTION_heads]);
  guint32 power = 1;
  while (2 * power <= heads)
    power *= 2;
  return exec_manner (args, PLAN_MANNER_ALIBI) != 0 ? power : 0;
}

/* The operand `name` of an op of attention of either kind, in either direction. */
#define EXEC_CUDA_OF_ATTENTION(kind, name) \
  ((kind) == PLAN_OP_ATTENTION          ? (int)PLAN_REF_ATTENTION_##name \
   : (kind) == PLAN_OP_ATTENTION_BWD    ? (int)PLAN_REF_ATTENTION_BWD_##name \
   : (kind) == PLAN_OP_LATENT_ATTENTION ? (int)PLAN_REF_LATENT_ATTENTION_##name \
                                        : (int)PLAN_REF_LATENT_ATTENTION_BWD_##name)

/* `dim`: the size of a head of queries. */
static inline ExecCudaScores
exec_cuda_scores (const ExecArgs *args, guint64 dim)
{
  const PlanOpKind kind = args->op->kind;
  const double parts = exec_manner (args, PLAN_MANNER_PARTS),
               window = exec_manner (args, PLAN_MANNER_WINDOW),
               chunk = exec_manner (args, PLAN_MANNER_CHUNK),
               scalar = exec_manner (args, PLAN_MANNER_SCALAR);
  const guint64 whole
      = (guint64)args->op->dims[PLAN_DIM_ATTENTION_seq] * (parts > 0 ? (guint64)parts : 1);
  ExecCudaScores self;
  self.window = window > 0 ? (guint64)window : whole;
  self.whole = whole;
  self.chunk = (guint32)(chunk > 0 ? chunk : (double)whole);
  self.scale = (float)(1 / sqrt (scalar > 0 ? scalar : (double)dim));
  self.cap = (float)exec_manner (args, PLAN_MANNER_CAP);
  self.slopes = exec_cuda_slopes (args);
  self.first_head = (guint32)exec_manner (args, PLAN_MANNER_FIRST);
  self.dropout
      = exec_dropout (args->ptr[EXEC_CUDA_OF_ATTENTION (kind, key)],
                      EXEC_FIRST_HEAD_SITE + self.first_head, exec_manner (args, PLAN_MANNER_RATE));
  self.start = (const gint64 *)args->ptr[EXEC_CUDA_OF_ATTENTION (kind, start)];
  self.places = (const gint32 *)args->ptr[EXEC_CUDA_OF_ATTENTION (kind, places)];
  return self;
}

G_END_DECLS
