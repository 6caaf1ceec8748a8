/* PlanRope: the frequencies of rotary positions, and how they are scaled for sequences longer than
 * those that a model was first trained on. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  PLAN_NORM_RMSNORM,
  PLAN_NORM_LAYERNORM
} PlanNorm;

/* Norms of queries and keys with weights: none, one of each head, one of all heads together. */
typedef enum
{
  PLAN_QK_NORM_OFF,
  PLAN_QK_NORM_ON,
  PLAN_QK_NORM_FULL
} PlanQkNorm;

/* Which layers norm queries and keys without weights: none, those with rotary positions, all. */
typedef enum
{
  PLAN_QK_L2_OFF,
  PLAN_QK_L2_ROPE,
  PLAN_QK_L2_ALL
} PlanQkL2;

/* Scalings, as Hugging Face's rope_type; its "default" is first. */
typedef enum
{
  PLAN_ROPE_SCALING_NONE,
  PLAN_ROPE_SCALING_LINEAR,
  PLAN_ROPE_SCALING_DYNAMIC,
  PLAN_ROPE_SCALING_LLAMA3,
  PLAN_ROPE_SCALING_YARN,
  PLAN_ROPE_SCALING_LONGROPE
} PlanRopeScaling;

/* longrope's factors, one for every pair that is turned; n is 0 where a model has none. */
#define PLAN_ROPE_MAX_PAIRS 128
typedef struct
{
  guint n;
  double at[PLAN_ROPE_MAX_PAIRS];
} PlanRopeFactors;

/* `fsdplan show --model-keys` explains each field. */
typedef struct
{
  double theta;
  PlanRopeScaling scaling;
  double factor;
  gint64 original;
  double slow,
      fast; /* low_freq_factor and high_freq_factor of llama3, beta_slow and beta_fast of yarn */
  double mscale, mscale_all;
  PlanRopeFactors shorter,
      longer;             /* for sequences up to the original length, and for longer ones */
  gboolean is_fractional; /* yarn's bounds are not rounded to whole pairs */
} PlanRope;

/* Fills in what follows from the given fields. */
void plan_rope_complete (PlanRope *self, gint64 max_seq);

/* Whether the fields fit together; INVALID names a key of the model. */
gboolean plan_rope_check (const PlanRope *self, GError **error);

/* The angle by which a pair of elements is rotated from one position to the next, in heads of `dim`
 * elements and sequences of `seq` tokens. */
double plan_rope_frequency (const PlanRope *self, guint64 pair, guint64 dim, guint64 seq);

/* By how much queries and keys of latent attention grow each, as yarn stretches positions. */
double plan_rope_growth (const PlanRope *self);

/* The factor on cosines and sines. */
double plan_rope_magnitude (const PlanRope *self);

G_END_DECLS
