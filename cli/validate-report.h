/* How near predictions were: in all, by what runs have in common, and what could not be predicted.
 */
#pragma once
#include "advise/validate.h"
#include "cli/io/output.h"
#include "planner/runs/accuracy.h"
#include <glib.h>
G_BEGIN_DECLS

/* Will it run out of memory? */
typedef struct
{
  guint n, n_oom, n_correct;
  guint false_fits, false_ooms; /* predicted to fit and ran out; the reverse */
} CliVerdicts;

/* Rows with a verdict whose probability of fitting is from `least` to the next bin's. */
#define CLI_N_CHANCES 7
typedef struct
{
  double least;
  guint n, n_fit;
  double expected; /* of them, by the sum of what was said */
} CliChance;

/* Selected rows that have something in common. */
typedef struct
{
  const char *by; /* "stack"; "all" */
  char *value;
  guint n_rows, n_predicted;
  PlanAccuracy of[PLAN_N_RUN_QUANTITIES], naive[PLAN_N_RUN_QUANTITIES];
  PlanAccuracy tiny[PLAN_N_RUN_QUANTITIES]; /* of models too small for the others */
  PlanAccuracy peak, naive_peak; /* max allocated, or reserved where that alone was measured */
  CliVerdicts verdicts, near;    /* near: predicted between 70 and 100 GB */
  guint n_uncertain, n_within;   /* times with an uncertainty; of them within it */
  double groups_uncertain, groups_within; /* the same with each group of rows weighing 1 */
  CliChance chances[CLI_N_CHANCES];       /* of all verdicts */
  PlanRegret regret;
} CliSection;

/* All first, then by source, gpu_type, stack, strategy, recompute and size. Elements are
 * CliSection, owned by the array. */
GArray *cli_sections_new (const AdviseValidation *validation);

/* A row per section and quantity that was measured in it; `leaves_out`: none for sections that hold
 * all of the predicted rows. */
CliTable *cli_sections_table (const GArray *sections, gboolean leaves_out);

/* Of plans said to fit with a probability in some range, how many did: a row per range. */
CliTable *cli_chances_table (const CliSection *section);

/* A row per run. */
CliTable *cli_validation_table (const AdviseValidation *validation);

/* Reasons why rows could not be predicted, most frequent first. */
CliTable *cli_skipped_table (const AdviseValidation *validation);

/* Everything, as the contract of the command line says. */
JsonNode *cli_validation_to_json (const AdviseValidation *validation, const GArray *sections);

G_END_DECLS
