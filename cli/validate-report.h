/* Reports how accurate predictions are: in total, by properties of runs, and which runs could not
 * be predicted. */
#pragma once
#include "advise/validate.h"
#include "cli/io/output.h"
#include "planner/runs/accuracy.h"
#include <glib.h>
G_BEGIN_DECLS

/* Predictions whether runs fit, against what happened. */
typedef struct
{
  guint n, n_oom, n_correct;
  guint false_fits, false_ooms; /* predicted to fit, but ran out of memory; the reverse */
} CliVerdicts;

/* Runs with a verdict, predicted to fit with a probability from `least` to the next bin's. */
#define CLI_N_CHANCES 7
typedef struct
{
  double least;
  guint n, n_fit;
  double expected; /* how many of them should fit: the sum of their probabilities */
} CliChance;

/* Accuracy for selected runs that have a property in common. */
typedef struct
{
  const char *by; /* the property, as "stack"; "all": none */
  char *value;
  guint n_rows, n_predicted;
  PlanAccuracy of[PLAN_N_RUN_QUANTITIES], naive[PLAN_N_RUN_QUANTITIES];
  PlanAccuracy tiny[PLAN_N_RUN_QUANTITIES]; /* of models that are too small for the others */
  PlanAccuracy peak, naive_peak; /* max allocated, or reserved where only that was measured */
  CliVerdicts verdicts, near;    /* `near`: of those predicted at 70 to 100 GB */
  guint n_uncertain, n_within;   /* times with an uncertainty; how many are within it */
  double groups_uncertain, groups_within; /* the same, with every group of runs weighing 1 */
  double groups_unseen, unseen_within;    /* those of sources without runs (SimErrorRange) */
  CliChance chances[CLI_N_CHANCES];       /* bins of all verdicts */
  PlanRegret regret;
} CliSection;

/* Makes the sections: all runs first, then runs by source, gpu_type, stack, strategy, recompute and
 * size. Elements are CliSection, owned by the array. */
GArray *cli_sections_new (const AdviseValidation *validation);

/* A table with a row for each section and measured quantity. `leaves_out`: without sections that
 * hold all predicted runs. */
CliTable *cli_sections_table (const GArray *sections, gboolean leaves_out);

/* A table of bins: of plans predicted to fit with a probability in the bin, how many did. */
CliTable *cli_chances_table (const CliSection *section);

/* A table with a row for each run. */
CliTable *cli_validation_table (const AdviseValidation *validation);

/* A table of reasons why runs could not be predicted, most frequent first. */
CliTable *cli_skipped_table (const AdviseValidation *validation);

/* Everything as JSON, as docs/schema describes it. */
JsonNode *cli_validation_to_json (const AdviseValidation *validation, const GArray *sections);

G_END_DECLS
