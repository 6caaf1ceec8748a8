/* PlanMegatronShell: the commands of a shell script, as far as they can be known without running
 * it.
 *
 * Assignments, arrays, quotes, continuations, `${NAME:-default}`, sums in $(( )), here-documents
 * and the text after `bash -c` are followed. What only a run could tell (`$(command)`, a variable
 * that the text does not set) is left out of its word, which says what it lacks. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  char *text;      /* what is known of the word */
  char *missing;   /* "$NAME": what could not be expanded; or NULL */
  char *condition; /* "$NAME": a variable used in it that is set only under a condition; or NULL */
  guint line;
} PlanMegatronWord;

typedef struct
{
  GPtrArray *commands;     /* each a GPtrArray of PlanMegatronWord, none of them empty */
  GHashTable *environment; /* exported variables at the end: name to value */
} PlanMegatronScript;

void plan_megatron_script_clear (PlanMegatronScript *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (PlanMegatronScript, plan_megatron_script_clear)

/* Reads a script. INVALID, with `origin` and the line, for quotes and brackets that never end and
 * for values that grow without bound. */
gboolean plan_megatron_script_read (const char *text, const char *origin,
                                    PlanMegatronScript *out_script, GError **error);

G_END_DECLS
