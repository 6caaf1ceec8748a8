/* PlanEventFile: numbers of a training run, by step, as TensorBoard reads them.
 *
 * A folder has a file per run. It is a sequence of records, each with its length and checksums
 * before and behind it (TFRecord); a record is an Event in the encoding of protocol buffers. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const char *tag; /* "loss" */
  double value;    /* kept in fp32 */
} PlanEventScalar;

typedef struct _PlanEventFile PlanEventFile;

/* A new file in the folder, which is made where there is none. */
PlanEventFile *plan_event_file_new (const char *folder, GError **error);
void plan_event_file_free (PlanEventFile *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanEventFile, plan_event_file_free)

const char *plan_event_file_path (const PlanEventFile *self);

/* One event of a step, whole in the file when this returns; `seconds` since 1970. */
gboolean plan_event_file_add (PlanEventFile *self, double seconds, gint64 step,
                              const PlanEventScalar *scalars, guint n_scalars, GError **error);

G_END_DECLS
