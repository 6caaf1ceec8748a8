/* The part of each sequence that a rank of a context-parallel group holds. A sequence is cut into
 * 2 * parts equal pieces; part i holds piece i and, behind it, the piece that is as far from the
 * end, so that causal attention costs every part the same (as Megatron-LM cuts them,
 * get_batch_on_this_cp_rank in megatron/core/utils.py). */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint64 piece;     /* tokens of one of the two pieces */
  guint64 places[2]; /* in the whole sequence, of the first token of each piece */
} PlanSequencePart;

/* Part `part` of `parts` of a sequence, of `length` tokens. 0 or 1 parts: the whole sequence. */
PlanSequencePart plan_sequence_part (guint64 part, guint64 parts, guint64 length);

/* The place in the whole sequence of token `at` of a part. */
guint64 plan_sequence_place (const PlanSequencePart *self, guint64 at);

/* How many tokens of a part come before a place in the whole sequence. */
guint64 plan_sequence_before (const PlanSequencePart *self, guint64 place);

G_END_DECLS
