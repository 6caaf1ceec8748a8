/* Rotary positions by the formulas of transformers' modeling_rope_utils.py, pair by pair. */
#pragma once
#include "planner/model/rope.h"
#include <glib.h>
G_BEGIN_DECLS

/* Cosine and sine of a pair's angle at a position, times the attention factor of that code. */
void reference_rope_turn (const PlanRope *rope, gint64 pair, gint64 dim, gint64 seq,
                          gint64 position, double *out_cosine, double *out_sine);

G_END_DECLS
