/* The data of a run: --data, --shuffle, --epochs, --eval-data. */
#pragma once
#include "cli/run/train.h"
#include <glib.h>
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

/* The options as typed; each text may be NULL. */
typedef struct
{
  const char *data, *eval_data, *epochs, *steps, *end;
  gboolean is_shuffled, shuffles_documents;
} CliDataOptions;

/* Opens the data of a job whose plan and seed are set, and whose checkpoint is open if it is
 * resumed. --epochs sets the job's steps, counting those before the checkpoint. */
gboolean cli_data_open (CliTraining *self, const CliDataOptions *options, GError **error);

/* Reports on standard error which sources the run reads more than once. */
void cli_data_say (const CliTraining *self);

/* Adds every source, its size, and how often the run reads it, as members of the open object. */
void cli_data_to_json (const CliTraining *self, JsonBuilder *builder);

G_END_DECLS
