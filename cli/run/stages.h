/* CliStages: what was predicted and what was measured of each stage of a pipeline; of the whole
 * model where there is none. A stage is shown by the first of its ranks. */
#pragma once
#include "cli/io/output.h"
#include "cli/run/train.h"
#include "exec/walk/stragglers.h"
#include <json-glib/json-glib.h>
G_BEGIN_DECLS

guint cli_stages_n (const CliTraining *self);

/* The rank that a stage is shown by. */
guint cli_stages_rank (const CliTraining *self, guint stage);

/* What was predicted, on rank 0: the step of one, once spans were asked for; its memory; what all
 * ranks reserve. Borrowed. */
PlanTraceView cli_stages_predicted (const CliTraining *self, guint stage);
const PlanMemory *cli_stages_memory (const CliTraining *self, guint stage);
guint64 cli_stages_reserved (const CliTraining *self);

/* Of ranks that are processes: brings the steps that others recorded to rank 0, by stage;
 * `own` is this rank's. All ranks call it. */
gboolean cli_stages_gather (const CliTraining *self, const PlanTrace *own, PlanTrace **out_traces,
                            GError **error);

/* Bytes of each stage, predicted beside measured; as an array of JSON. `times`: by rank. */
CliTable *cli_stages_table (const CliTraining *self, const ExecRankTime *times);
void cli_stages_to_json (const CliTraining *self, const ExecRankTime *times, JsonBuilder *b);

G_END_DECLS
