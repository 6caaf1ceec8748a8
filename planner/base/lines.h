/* PlanLines: the lines of a log that comes in pieces, however long it is.
 *
 * Colours of a terminal are removed; a carriage return ends a line as well, for progress bars. A
 * line loses what is behind PLAN_LINES_MAX bytes, and one that the end of the log cuts off loses
 * its last word, of which half may be missing. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_LINES_MAX 65536

typedef struct _PlanLines PlanLines;

/* `text` may be changed in place. Lines are counted from 1, by their ends. */
typedef void (*PlanLineFunc) (guint64 line, char *text, gpointer user_data);

PlanLines *plan_lines_new (PlanLineFunc func, gpointer user_data);
void plan_lines_free (PlanLines *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanLines, plan_lines_free)

void plan_lines_feed (PlanLines *self, const char *text, gsize length);
void plan_lines_end (PlanLines *self);

/* Takes the escape sequences of a terminal out, in place. */
void plan_lines_strip_colours (char *line);

G_END_DECLS
