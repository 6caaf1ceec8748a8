/* PlanCsv: the records of RFC 4180 text that comes in pieces, each with the line it begins on.
 *
 * A record that breaks the format is an error of its own; reading goes on with the next line. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct _PlanCsv PlanCsv;

/* Called for each record with its cells, char * that may be stolen; NULL is a cell without text or
 * quotes. Where the format is broken `cells` is NULL and `broken` says how. Blank lines are left
 * out. */
typedef void (*PlanCsvFunc) (guint64 line, GPtrArray *cells, const char *broken,
                             gpointer user_data);

PlanCsv *plan_csv_new (PlanCsvFunc func, gpointer user_data);
void plan_csv_free (PlanCsv *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanCsv, plan_csv_free)

void plan_csv_feed (PlanCsv *self, const char *text, gsize length);

/* There is no more text: what is open ends here. */
void plan_csv_end (PlanCsv *self);

G_END_DECLS
