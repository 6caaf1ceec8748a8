/* PlanRope: how fast rotary positions turn, and how that changes for sequences beyond those that a
 * model was first trained on. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Hugging Face's rope_type, its "default" first. */
typedef enum
{
  PLAN_ROPE_SCALING_NONE,
  PLAN_ROPE_SCALING_LINEAR,
  PLAN_ROPE_SCALING_DYNAMIC,
  PLAN_ROPE_SCALING_LLAMA3,
  PLAN_ROPE_SCALING_YARN,
  PLAN_ROPE_SCALING_LONGROPE
} PlanRopeScaling;

/* Of longrope, for every pair that turns; none where a model does not say. */
#define PLAN_ROPE_MAX_PAIRS 128
typedef struct
{
  guint n;
  double at[PLAN_ROPE_MAX_PAIRS];
} PlanRopeFactors;

/* `fsdplan show --model-keys` says what each field means. */
typedef struct
{
  double theta;
  PlanRopeScaling scaling;
  double factor;
  gint64 original;
  double slow, fast; /* low and high_freq_factor of llama3, beta_slow and beta_fast of yarn */
  double mscale, mscale_all;
  PlanRopeFactors shorter, longer; /* up to the original length, and beyond */
} PlanRope;

/* Fills in what follows from what was given. */
void plan_rope_complete (PlanRope *self, gint64 max_seq);

/* Whether the fields go together; INVALID names a model's key. */
gboolean plan_rope_check (const PlanRope *self, GError **error);

/* By how much a pair of a head of `dim` elements turns from one position to the next, in sequences
 * of `seq`. */
double plan_rope_frequency (const PlanRope *self, guint64 pair, guint64 dim, guint64 seq);

/* What cosines and sines are multiplied by. */
double plan_rope_magnitude (const PlanRope *self);

G_END_DECLS
