/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/model/layer-kinds.h"

#include <string.h>

/* Whether layers with a window differ from others. Where their positions turn differently, they do
 * however wide the window is. */
static gboolean
has_windows (const PlanModel *self, gint64 seq)
{
  return self->window > 0 && (self->window < seq || self->rope_local > 0);
}

static gboolean
is_windowed (const PlanModel *self, gint64 place)
{
  if (self->full_every > 0)
    return (place + 1) % self->full_every != 0;
  return place >= self->window_from && (place - self->window_from) % self->window_every == 0;
}

static gboolean
has_no_rope (const PlanModel *self, gint64 place)
{
  return self->nope_every > 0 && (place + 1) % self->nope_every == 0;
}

guint
plan_model_layer_kind (const PlanModel *self, gint64 layer, gint64 seq)
{
  switch ((PlanLetter)plan_model_letter (self, layer))
    {
    case PLAN_LETTER_SSM:
      return PLAN_LAYER_PART | PLAN_LAYER_RECURRENT;
    case PLAN_LETTER_ATTENTION:
      return PLAN_LAYER_PART;
    case PLAN_LETTER_MLP:
      return PLAN_LAYER_MLP;
    case PLAN_LETTER_EXPERTS:
      return PLAN_LAYER_PART | PLAN_LAYER_EXPERTS;
    }
  const gint64 place = plan_model_cut_place (&self->cut, layer);
  return (has_windows (self, seq) && is_windowed (self, place) ? PLAN_LAYER_WINDOWED : 0)
         | (plan_model_is_moe_layer (self, layer) ? PLAN_LAYER_EXPERTS : 0)
         | (has_no_rope (self, place) ? PLAN_LAYER_NOPE : 0)
         | (plan_model_is_delta_layer (self, layer) ? PLAN_LAYER_RECURRENT : 0);
}

gint64
plan_model_pairs_in_chunks (const PlanModel *self, gint64 attended)
{
  const gint64 chunk = MIN (self->window, attended), rest = attended % chunk;
  return attended / chunk * chunk * chunk + rest * rest;
}

PlanModel
plan_model_within (const PlanModel *self, gint64 seq)
{
  PlanModel seen = *self;
  if (seen.window_chunks && seen.window >= seq)
    {
      seen.window = seen.full_every = 0;
      seen.window_chunks = FALSE;
    }
  return seen;
}

void
plan_model_count_kinds (const PlanModel *self, gint64 seq, gint64 *out_layers)
{
  memset (out_layers, 0, PLAN_N_LAYER_KINDS * sizeof *out_layers);
  for (gint64 layer = 0; layer < self->layers; layer++)
    out_layers[plan_model_layer_kind (self, layer, seq)]++;
}

/* How many layers are left to tell apart if those that recur after `period` layers, as soon as they
 * do, are told once. */
static gint64
told_apart (const PlanModel *self, gint64 period)
{
  gint64 told = 0;
  for (gint64 layer = 0; layer < self->layers; told++)
    {
      gint64 same = 0;
      while (layer + period + same < self->layers
             && plan_model_letter (self, layer + same)
                    == plan_model_letter (self, layer + period + same))
        same++;
      const gint64 turns = same / period + 1;
      told += turns > 1 ? period - 1 : 0;
      layer += turns > 1 ? turns * period : 1;
    }
  return told;
}

/* The period by which layers of a pattern recur so that the fewest are told apart. */
static gint64
period_of_pattern (const PlanModel *self)
{
  gint64 period = 1;
  for (gint64 other = 2; 2 * other <= self->layers; other++)
    if (told_apart (self, other) < told_apart (self, period))
      period = other;
  return period;
}

gint64
plan_model_kinds_period (const PlanModel *self, gint64 seq)
{
  const gint64 most = MAX (self->layers, 1);
  if (*self->pattern.of)
    return period_of_pattern (self);
  const gint64 every = MAX (self->full_every, self->window_every);
  const gint64 windows = has_windows (self, seq) ? MIN (every, most) : 1;
  const gint64 experts = self->experts > 0 ? MIN (self->moe_every, most) : 1;
  const gint64 nope = CLAMP (self->nope_every, 1, most);
  const gint64 delta = CLAMP (self->delta.attn_every, 1, most);
  gint64 period = MAX (MAX (windows, experts), MAX (nope, delta));
  while (period < most
         && (period % windows != 0 || period % experts != 0 || period % nope != 0
             || period % delta != 0))
    period++;
  return period;
}
