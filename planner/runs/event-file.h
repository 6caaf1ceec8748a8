/* PlanEventFile: writes scalars of a training run, by step, in the format that TensorBoard reads.
 *
 * There is one file per run in a folder. It is a sequence of TFRecords (a record with its length
 * and checksums around it); each record is an Event encoded as a protocol buffer. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const char *tag; /* "loss" */
  double value;    /* stored as fp32 */
} PlanEventScalar;

typedef struct _PlanEventFile PlanEventFile;

/* Makes a new file in the folder, which is made where it does not exist. */
PlanEventFile *plan_event_file_new (const char *folder, GError **error);
void plan_event_file_free (PlanEventFile *self);
G_DEFINE_AUTOPTR_CLEANUP_FUNC (PlanEventFile, plan_event_file_free)

const char *plan_event_file_path (const PlanEventFile *self);

/* Adds the event of one step. It is in the file when this returns. `seconds` are since 1970. */
gboolean plan_event_file_add (PlanEventFile *self, double seconds, gint64 step,
                              const PlanEventScalar *scalars, guint n_scalars, GError **error);

G_END_DECLS
