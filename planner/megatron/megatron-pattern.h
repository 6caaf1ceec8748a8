/* PlanMegatronPattern: which layers are of a kind, as Megatron-LM has it: a Python list such as
 * "([0]*3+[1]*58)" with a mark of 0 or 1 per layer. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Most layers for which a pattern is read. */
#define PLAN_MEGATRON_PATTERN_MAX 65536

/* A byte per layer. INVALID names `what` where the text is not a list of `layers` marks. */
guint8 *plan_megatron_pattern_parse (const char *text, const char *what, guint layers,
                                     GError **error);

/* The index of the first mark and the distance to the second (of a single mark, to the end). FALSE
 * where there is none. */
gboolean plan_megatron_pattern_rhythm (const guint8 *marks, guint layers, guint *out_first,
                                       guint *out_every);

G_END_DECLS
