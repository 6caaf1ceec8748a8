/* ExecExact: a sum of floats that does not depend on the order of its terms.
 *
 * A fixed-point number wide enough for every product of two floats, in limbs of 32 bits that are
 * stored as signed 64-bit integers. Adding two sums adds their limbs. After at most 2^30 additions
 * limbs must be carried, which exec_exact_merge does. */
#pragma once
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

#define EXEC_EXACT_LIMBS PLAN_EXACT_LIMBS

typedef struct
{
  gint64 limb[EXEC_EXACT_LIMBS];
} ExecExact;

void exec_exact_add_float (ExecExact *self, float value);
void exec_exact_add_square (ExecExact *self, float value);

/* Adds the squares of `count` values, at most 256, faster than one by one. */
void exec_exact_add_squares (ExecExact *self, const float *values, guint count);
void exec_exact_merge (ExecExact *self, const ExecExact *other);

/* The value, rounded to the nearest double; NaN if a NaN or infinity was added. */
double exec_exact_value (const ExecExact *self);

G_END_DECLS
