/* Rotary positions by the formulas of transformers' modeling_rope_utils.py, pair by pair. */
#pragma once
#include "planner/model/rope.h"
#include <glib.h>
G_BEGIN_DECLS

/* Sine and cosine, grown as they are there, of a pair of a head at a position. */
void reference_rope_turn (const PlanRope *rope, gint64 pair, gint64 dim, gint64 seq,
                          gint64 position, double *out_cosine, double *out_sine);

G_END_DECLS
