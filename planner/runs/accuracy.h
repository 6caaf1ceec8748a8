/* PlanAccuracy: how far predictions were from measurements.
 *
 * Rows that repeat one configuration weigh as one, and configurations of one group (close variants
 * of one another) weigh as one again, since otherwise the longest scan would outweigh everything.
 * An error is predicted minus measured, in per cent of measured. A configuration's error is the
 * median of its rows' errors, a group's the median of its configurations' errors; the figures below
 * are over groups. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Numbers identify groups and configurations; configurations are numbered within their group. */
typedef struct
{
  guint group, configuration;
  double predicted, measured; /* above 0 */
} PlanSample;

/* All members are 0 without samples. */
typedef struct
{
  guint n, n_configurations, n_rows; /* n: number of groups */
  double mean_abs_pct, median_abs_pct, p90_abs_pct, max_abs_pct;
  double bias_pct;   /* mean over groups of the signed errors */
  guint n_repeated;  /* configurations that were measured more than once */
  double noise_pct;  /* mean over those of the mean distance from their median: the least possible
                        error */
  double mean_abs;   /* as mean_abs_pct, in the unit of the measurement */
  double within_pct; /* share of groups whose error is within plan_accuracy_tolerance */
} PlanAccuracy;

void plan_accuracy_measure (const PlanSample *samples, guint n_samples, PlanAccuracy *out_accuracy);

/* The tolerated error: 5 % of what was measured, or 200 (MiB) for models so small that fixed
 * workspaces dominate. */
double plan_accuracy_tolerance (double measured);

/* The factor on `predicted` for which the mean relative error, without sign, is least; groups weigh
 * alike. 0 without samples. */
double plan_accuracy_best_scale (const PlanSample *samples, guint n_samples);

/* Memory errors divided by their scale are taken to follow Student's t distribution with four
 * degrees of freedom: of the distributions tried, its tails were closest to theirs. Gives the share
 * of errors below `z`, and the `z` below which a share lies (between 0 and 1, both excluded). */
double plan_accuracy_share_below (double z);
double plan_accuracy_below_share (double share);

/* One of the plans that a question lets one choose from. */
typedef struct
{
  guint question, configuration;
  gboolean fits;              /* it is predicted to fit */
  double predicted, measured; /* step time */
} PlanCandidate;

/* Regret, over questions with at least two configurations: by how much the configuration that
 * predictions choose is slower than the best measured one, and by how much a random choice is on
 * average. */
typedef struct
{
  guint n;
  double mean_pct, max_pct, blind_pct;
  guint n_best; /* questions for which the best measured one is chosen */
} PlanRegret;

void plan_accuracy_regret (const PlanCandidate *choices, guint n_choices, PlanRegret *out_regret);

G_END_DECLS
