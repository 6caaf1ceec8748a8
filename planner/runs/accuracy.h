/* PlanAccuracy: how far predictions were from what was measured.
 *
 * Rows that repeat one configuration weigh as one, and configurations of one group, close variants
 * of one another, as one again: else the longest scan would outweigh everything. An error is
 * predicted less measured, in per cent of measured. Of a configuration it is the median of its
 * rows, of a group that of its configurations; over groups are the figures below. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Numbers name groups and configurations; those of a configuration mean something within its group
 * only. */
typedef struct
{
  guint group, configuration;
  double predicted, measured; /* above 0 */
} PlanSample;

/* Without samples all are 0. */
typedef struct
{
  guint n, n_configurations, n_rows; /* n: groups */
  double mean_abs_pct, median_abs_pct, p90_abs_pct, max_abs_pct;
  double bias_pct;   /* mean over groups of the errors with their signs */
  guint n_repeated;  /* configurations that were measured more than once */
  double noise_pct;  /* mean over them of the mean distance from their median: the least error */
  double mean_abs;   /* as mean_abs_pct, in the unit of what was measured */
  double within_pct; /* share of groups that are nearer than plan_accuracy_tolerance */
} PlanAccuracy;

void plan_accuracy_measure (const PlanSample *samples, guint n_samples, PlanAccuracy *out_accuracy);

/* For models so small that fixed workspaces weigh: 5 % of what was measured, or 200 (MiB). */
double plan_accuracy_tolerance (double measured);

/* The factor of `predicted` that makes the mean error, as a share of measured and without its sign,
 * least; groups weigh alike. 0 without samples. */
double plan_accuracy_best_scale (const PlanSample *samples, guint n_samples);

/* Errors, divided by their scale, are taken to follow Student's t with four degrees of freedom: of
 * the laws that were tried its tails came nearest to those of memory predictions. The share of
 * errors below `z`, and the `z` that a share of 0 to 1, both excluded, lies below. */
double plan_accuracy_share_below (double z);
double plan_accuracy_below_share (double share);

/* What can be chosen among for one question. */
typedef struct
{
  guint question, configuration;
  gboolean is_open;           /* predicted to fit */
  double predicted, measured; /* step time */
} PlanCandidate;

/* Over the questions with at least two configurations: how much slower than the best measured is
 * the one that predictions choose; and one chosen blindly, in the mean. */
typedef struct
{
  guint n;
  double mean_pct, max_pct, blind_pct;
  guint n_best; /* questions where it is the best measured */
} PlanRegret;

void plan_accuracy_regret (const PlanCandidate *choices, guint n_choices, PlanRegret *out_regret);

G_END_DECLS
