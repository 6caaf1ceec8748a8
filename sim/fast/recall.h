/* SimRecall: what loops did when they were last entered, for when they are entered so again.
 *
 * Nothing in a loop begins before its streams are free, so what happened before that makes no
 * difference: two entries are alike when all that is later lies as far from there. */
#pragma once
#include "sim/engine.h"
#include "sim/fast/program.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  guint n_clocks;
  GArray *visits; /* SimVisit, some per loop */
  GArray *clocks; /* gint64: of each visit, those at its beginning and those at its end */
} SimRecall;

/* Zeroed memory becomes one that knows nothing; so does one that was used. */
void sim_recall_begin (SimRecall *self, const SimProgram *program, guint n_clocks);
void sim_recall_clear (SimRecall *self);

/* Does to the engine what a loop did that was entered like this: TRUE; adds its ops to `n_ops`, and
 * says by how much at least they begin later than they are issued. FALSE: the loop is to be walked,
 * and to be left by sim_recall_leave. In both cases nothing of it begins before `out_base_ns`. */
gboolean sim_recall_enter (SimRecall *self, SimEngine *engine, const SimProgram *program,
                           guint loop, guint64 *n_ops, gint64 *out_base_ns, gint64 *out_slack_ns);
void sim_recall_leave (SimRecall *self, const SimEngine *engine, const SimProgram *program,
                       guint loop, guint64 n_ops, gint64 slack_ns);

G_END_DECLS
