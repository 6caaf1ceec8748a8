/* SPDX-License-Identifier: Apache-2.0 */
/* A residual is the logarithm of predicted over measured time. The fit is a robust least-squares
 * fit by Gauss-Newton steps: derivatives of the residuals by the effects are taken by simulating
 * again with one effect changed a little. The scope of a factor only decides which runs it
 * holds for. */
#include "config.h"

#include "sim/fit/calibrate.h"

#include "planner/base/error.h"
#include "sim/fast/measure.h"
#include "sim/fit/spreads.h"

#include <math.h>
#include <nlopt.h>
#include <stdlib.h>
#include <string.h>

#define SPREAD 0.05            /* residuals of this order are trusted; larger ones count linearly */
#define STEP 0.01              /* change of an effect's logarithm for a derivative */
#define MOST_STEPS 20          /* Gauss-Newton steps at most */
#define ENOUGH 1e-4            /* share of the objective that a step must gain for another one */
#define REACH 0.3              /* first size of the trust region, in logarithms */
#define LEAST_REACH 1e-3       /* least size of the trust region */
#define FAR 10                 /* size of a trust region that contains all allowed factors */
#define MOST_OF_SURROGATE 2000 /* evaluations, none of which simulates */
#define MOST_LEAPS 4
/* A site's factor whose error exceeds this share of its prior's width is left out of the set: its
 * runs say nothing about it. */
#define LEAST_UNKNOWN 0.99

typedef enum
{
  LEVEL_ALL,
  LEVEL_GPU,
  LEVEL_STACK,
  LEVEL_SITE,
  LEVEL_BOTH, /* for a GPU and a stack together, added to given adjustments */
  N_LEVELS
} Level;

/* Prior widths: how far an effect may reasonably be off, in its logarithm; 0: the effect has no
 * factor at this level.
 *
 * Devices differ in how long they keep their clocks and in their networks; frameworks in their
 * kernels for attention and for ops bound by memory, and in the host's work to issue one; sites in
 * their hosts. The rates of links and of memory copies were measured, and do not depend on clocks.
 * On top of a base no factor belongs to a site, because later users may not name it. */
static const double widths[SIM_N_EFFECTS][N_LEVELS] = {
  [SIM_EFFECT_PRODUCT_BF16] = { 0, 0.15, 0.05, 0, 0.10 },
  [SIM_EFFECT_PRODUCT_FP8] = { 0, 0.15, 0.05, 0, 0.10 },
  [SIM_EFFECT_SUSTAINED] = { 0, 0.15, 0, 0, 0.05 },
  [SIM_EFFECT_ATTENTION] = { 0, 0.15, 0.20, 0, 0.10 },
  [SIM_EFFECT_TRAFFIC] = { 0, 0.05, 0.20, 0, 0.10 },
  [SIM_EFFECT_LAUNCH] = { 0.20, 0, 0.60, 0.15, 0.30 },
  [SIM_EFFECT_LINKS] = { 0, 0.03, 0, 0, 0.10 },
  [SIM_EFFECT_NETWORK] = { 0, 0.25, 0, 0, 0.20 },
  [SIM_EFFECT_RETAKE] = { 0.50, 0, 0, 0, 0.30 },
  [SIM_EFFECT_SHARED] = { 0.30, 0, 0, 0, 0.20 },
};

/* A factor to be found. */
typedef struct
{
  SimEffect effect;
  const char *gpu, *stack, *site; /* NULL: any */
  double width;
} Unknown;

typedef struct
{
  const SimCalibration *request;
  SimObservation *rows;
  guint n;
  GArray *unknowns;       /* Unknown */
  guint *moves;           /* per row: effects that change its costs, a bit each */
  gboolean *in_scope;     /* per row and unknown: see holds_for */
  double *log_ns;         /* per row: logarithm of the time last predicted */
  double *slope;          /* per row and effect: derivative of log_ns */
  const double *theta;    /* logarithm of each unknown's factor, while evaluating */
  gboolean by_source;     /* whether sources are left out, or parts */
  guint left_out;         /* the source or part that is left out; G_MAXUINT: none */
  gboolean with_slopes;   /* whether derivatives are wanted, while evaluating */
  const Unknown *only;    /* evaluate only the rows that this factor holds for; NULL: all */
  gboolean only_left_out; /* evaluate only the rows that are left out */
  gint next;              /* next row to evaluate */
  guint evaluations;
  gboolean failed;
} Fit;

static gboolean
holds_for (const Unknown *unknown, const SimObservation *row)
{
  const SimScope scope
      = { (char *)unknown->gpu, (char *)unknown->stack, (char *)unknown->site, NULL };
  return sim_scope_holds (&scope, row->gpu, row->stack, row->site);
}

static SimParams
params_of (const Fit *self, const SimObservation *row)
{
  SimParams params = *sim_params_default (row->input.cluster);
  if (self->request->base)
    sim_adjustments_apply (self->request->base, row->gpu, row->stack, row->site, &params);
  return params;
}

static guint
n_schedules (const SimObservation *row)
{
  return MAX (row->stages.n, 1);
}

/* The costs of a row with the factors being tried, and with effect `bumped` changed by `extra`. */
static SimCost *
cost_of (const Fit *self, guint i, guint stage, SimEffect bumped, double extra)
{
  const SimObservation *row = &self->rows[i];
  SimParams params = params_of (self, row);
  double total[SIM_N_EFFECTS] = { 0 };
  for (guint u = 0; self->theta && u < self->unknowns->len; u++)
    {
      const Unknown *unknown = &g_array_index (self->unknowns, Unknown, u);
      if (holds_for (unknown, row))
        total[unknown->effect] += self->theta[u];
    }
  total[bumped] += extra;
  for (SimEffect e = 0; e < SIM_N_EFFECTS; e++)
    if (total[e] != 0)
      sim_effect_apply (e, exp (total[e]), &params);
  SimCostInput input = row->input;
  input.params = &params;
  if (row->stages.n > 0)
    input.schedule = row->stages.schedules[stage];
  return sim_cost_new (&input, NULL);
}

/* Whether stages run nothing else while they exchange activations (see stages.h). With
 * virtual stages they compute meanwhile. */
static gboolean
drains (const SimObservation *row)
{
  return row->input.plan->value[PLAN_VPP] == 1;
}

static double
log_ns (const Fit *self, guint i, SimEffect bumped, double extra, SimWorkspace *workspace)
{
  const SimObservation *row = &self->rows[i];
  SimCost *costs[SIM_MAX_STAGES];
  gboolean has_all = TRUE;
  gint64 step_ns = -1;
  guint n_steps;
  for (guint s = 0; s < n_schedules (row); s++)
    has_all = (costs[s] = cost_of (self, i, s, bumped, extra)) != NULL && has_all;
  if (has_all && row->stages.n > 0)
    step_ns = sim_measure_stages_step (&row->stages, (const SimCost *const *)costs, drains (row),
                                       &n_steps);
  else if (has_all)
    step_ns = sim_measure_step (row->input.schedule, costs[0], workspace);
  for (guint s = 0; s < n_schedules (row); s++)
    sim_cost_free (costs[s]);
  return step_ns > 0 ? log ((double)step_ns) : NAN;
}

static gboolean
is_left_out (const Fit *self, guint i)
{
  return (self->by_source ? self->rows[i].source : self->rows[i].part) == self->left_out;
}

static gboolean
counts (const Fit *self, guint i)
{
  return !is_left_out (self, i);
}

/* The change of an effect's logarithm for a derivative. An effect that cannot exceed its default is
 * lowered. */
static double
step_of (SimEffect effect)
{
  return sim_effect_most (effect) <= 1 ? -STEP : STEP;
}

static void
evaluate_row (Fit *self, guint i, SimWorkspace *workspace)
{
  self->log_ns[i] = log_ns (self, i, 0, 0, workspace);
  for (SimEffect e = 0; e < SIM_N_EFFECTS; e++)
    if (self->with_slopes && counts (self, i))
      self->slope[i * SIM_N_EFFECTS + e]
          = self->moves[i] & 1u << e
                ? (log_ns (self, i, e, step_of (e), workspace) - self->log_ns[i]) / step_of (e)
                : 0;
}

static gpointer
evaluate_some (gpointer data)
{
  Fit *self = data;
  SimWorkspace *workspace = sim_workspace_new ();
  guint i;
  while ((i = (guint)g_atomic_int_add (&self->next, 1)) < self->n)
    if ((!self->only || holds_for (self->only, &self->rows[i]))
        && (!self->only_left_out || is_left_out (self, i)))
      evaluate_row (self, i, workspace);
  sim_workspace_free (workspace);
  return NULL;
}

/* Predicts all rows. They are independent of one another, so threads may share them in any way. */
static void
evaluate (Fit *self, const double *theta, gboolean with_slopes)
{
  const guint n_threads = CLAMP (self->request->n_threads, 1, 64);
  GThread *threads[64];
  self->theta = theta;
  self->with_slopes = with_slopes;
  self->next = 0;
  for (guint t = 1; t < n_threads; t++)
    threads[t] = g_thread_new ("calibrate", evaluate_some, self);
  evaluate_some (self);
  for (guint t = 1; t < n_threads; t++)
    g_thread_join (threads[t]);
  self->evaluations++;
  if (self->request->progress)
    self->request->progress (self->evaluations, self->request->user);
}

/* The robust loss: quadratic near 0, linear far away. */
static double
loss (double z)
{
  return sqrt (1 + z * z) - 1;
}

static double
loss_slope (double z)
{
  return z / sqrt (1 + z * z);
}

static double
residual (const Fit *self, guint i)
{
  return self->log_ns[i] - log (self->rows[i].step_ns);
}

/* The prior's part of the objective: squared logarithms of the factors, in units of their
 * widths. */
static double
objective_of_prior (const Fit *self, const double *theta, double *gradient)
{
  double sum = 0;
  for (guint u = 0; u < self->unknowns->len; u++)
    {
      const double width = g_array_index (self->unknowns, Unknown, u).width;
      sum += 0.5 * theta[u] * theta[u] / (width * width);
      if (gradient)
        gradient[u] = theta[u] / (width * width);
    }
  return sum;
}

/* The objective at the point that was evaluated last. */
static double
objective_of_last (const Fit *self, const double *theta)
{
  double sum = objective_of_prior (self, theta, NULL);
  for (guint i = 0; i < self->n; i++)
    if (counts (self, i))
      sum += self->rows[i].weight * loss (residual (self, i) / SPREAD);
  return sum;
}

static double
objective (Fit *self, const double *theta, gboolean with_slopes)
{
  evaluate (self, theta, with_slopes);
  return objective_of_last (self, theta);
}

static gboolean
is_in_scope (const Fit *self, guint i, guint unknown)
{
  return self->in_scope[(gsize)i * self->unknowns->len + unknown];
}

/* A surrogate of the objective: residuals are taken as linear around the point `from`, where their
 * derivatives are known. */
typedef struct
{
  const Fit *fit;
  const double *from;
} Surrogate;

static double
surrogate_residual (const Surrogate *self, guint i, const double *theta)
{
  const Fit *fit = self->fit;
  double z = residual (fit, i);
  for (guint u = 0; u < fit->unknowns->len; u++)
    {
      const Unknown *unknown = &g_array_index (fit->unknowns, Unknown, u);
      if (is_in_scope (fit, i, u))
        z += fit->slope[i * SIM_N_EFFECTS + unknown->effect] * (theta[u] - self->from[u]);
    }
  return z;
}

static double
surrogate_objective (unsigned n, const double *theta, double *gradient, void *data)
{
  const Surrogate *self = data;
  const Fit *fit = self->fit;
  double sum = objective_of_prior (fit, theta, gradient);
  for (guint i = 0; i < fit->n; i++)
    {
      const double z = counts (fit, i) ? surrogate_residual (self, i, theta) / SPREAD : 0;
      const double weight = counts (fit, i) ? fit->rows[i].weight : 0;
      sum += weight * loss (z);
      for (guint u = 0; gradient && weight > 0 && u < n; u++)
        {
          const Unknown *unknown = &g_array_index (fit->unknowns, Unknown, u);
          if (is_in_scope (fit, i, u))
            gradient[u] += weight * loss_slope (z) / SPREAD
                           * fit->slope[i * SIM_N_EFFECTS + unknown->effect];
        }
    }
  return sum;
}

/* Minimises the surrogate within `reach` of `from`, which needs no simulation. */
static void
minimise_surrogate (const Fit *self, const double *from, double reach, double *out)
{
  const guint n = self->unknowns->len;
  Surrogate surrogate = { .fit = self, .from = from };
  nlopt_opt opt = nlopt_create (NLOPT_LD_LBFGS, n);
  g_autofree double *low = g_new (double, n), *high = g_new (double, n);
  double least;
  for (guint u = 0; u < n; u++)
    {
      const Unknown *unknown = &g_array_index (self->unknowns, Unknown, u);
      low[u] = MAX (log (sim_effect_least (unknown->effect)), -4 * unknown->width);
      high[u] = MIN (log (sim_effect_most (unknown->effect)), 4 * unknown->width);
      out[u] = CLAMP (from[u], low[u], high[u]);
      low[u] = MAX (low[u], out[u] - reach);
      high[u] = MIN (high[u], out[u] + reach);
    }
  nlopt_set_min_objective (opt, surrogate_objective, &surrogate);
  nlopt_set_lower_bounds (opt, low);
  nlopt_set_upper_bounds (opt, high);
  nlopt_set_ftol_rel (opt, 1e-8);
  nlopt_set_maxeval (opt, MOST_OF_SURROGATE);
  nlopt_optimize (opt, out, &least); /* `out` is the best point seen, wherever it stopped */
  nlopt_destroy (opt);
}

/* Gauss-Newton steps from `theta`, where derivatives are known. A set of derivatives costs as many
 * simulations per run as it has effects, so each set is used as far as it predicts well. */
static void
minimise (Fit *self, double *theta)
{
  const guint n = self->unknowns->len;
  g_autofree double *next = g_new (double, n);
  double reach = REACH, least = objective_of_last (self, theta);
  for (guint step = 0; step < MOST_STEPS && reach >= LEAST_REACH; step++)
    {
      g_autofree double *log_ns = g_memdup2 (self->log_ns, self->n * sizeof *log_ns);
      minimise_surrogate (self, theta, reach, next);
      const double sum = objective (self, next, FALSE);
      if (sum < least)
        {
          const gboolean is_enough = least - sum < ENOUGH * least;
          memcpy (theta, next, n * sizeof *theta);
          if (is_enough)
            return;
          least = objective (self, theta, TRUE);
          continue;
        }
      memcpy (self->log_ns, log_ns,
              self->n * sizeof *log_ns); /* the values that the derivatives belong to */
      reach /= 4;
    }
}

/* Tries distant values of the launch effect. Where the host does not limit a run, small changes of
 * its cost change nothing, so a descent cannot find it. A site's hosts are left out, since they are
 * never far from others. FALSE: no value was better. */
static gboolean
leap (Fit *self, double *theta)
{
  static const double widths_away[] = { -2, -1, 0, 1, 2, 3 };
  const guint n = self->unknowns->len;
  const double before = objective (self, theta, FALSE);
  double least = before;
  for (guint u = 0; u < n; u++)
    {
      const Unknown *unknown = &g_array_index (self->unknowns, Unknown, u);
      double best = theta[u];
      const gboolean may_be_far = unknown->effect == SIM_EFFECT_LAUNCH && !unknown->site;
      self->only = unknown;
      for (guint i = 0; may_be_far && i < G_N_ELEMENTS (widths_away); i++)
        {
          theta[u]
              = CLAMP (widths_away[i] * unknown->width, log (sim_effect_least (unknown->effect)),
                       log (sim_effect_most (unknown->effect)));
          const double sum = objective (self, theta, FALSE);
          best = sum < least ? theta[u] : best;
          least = MIN (least, sum);
        }
      theta[u] = best;
      if (may_be_far)
        evaluate (self, theta, FALSE);
    }
  self->only = NULL;
  return least < before;
}

/* Finds the effects that change any cost of a stage's ops. FALSE where the costs are not known. */
static gboolean
find_moves_of (Fit *self, guint i, guint stage)
{
  const SimObservation *row = &self->rows[i];
  const PlanSchedule *schedule
      = row->stages.n > 0 ? row->stages.schedules[stage] : row->input.schedule;
  const guint n_nodes = plan_schedule_n_nodes (schedule);
  g_autoptr (SimCost) base = cost_of (self, i, stage, 0, 0);
  for (SimEffect e = 0; base && e < SIM_N_EFFECTS; e++)
    {
      g_autoptr (SimCost) other = cost_of (self, i, stage, e, -10 * STEP);
      for (guint node = 0; node < n_nodes; node++)
        {
          const SimLoad a = sim_cost_load (base, node), b = sim_cost_load (other, node);
          if (sim_cost_ns (base, node) != sim_cost_ns (other, node)
              || sim_cost_launch_ns (base, node) != sim_cost_launch_ns (other, node)
              || memcmp (&a, &b, sizeof a) != 0)
            self->moves[i] |= 1u << e;
        }
    }
  return base != NULL;
}

static void
find_moves (Fit *self)
{
  for (guint i = 0; i < self->n; i++)
    for (guint s = 0; s < n_schedules (&self->rows[i]); s++)
      self->failed = !find_moves_of (self, i, s) || self->failed;
}

static void
add_unknown (Fit *self, Unknown unknown)
{
  gboolean moves_any = FALSE;
  for (guint u = 0; u < self->unknowns->len; u++)
    {
      const Unknown *other = &g_array_index (self->unknowns, Unknown, u);
      if (other->effect == unknown.effect && g_strcmp0 (other->gpu, unknown.gpu) == 0
          && g_strcmp0 (other->stack, unknown.stack) == 0
          && g_strcmp0 (other->site, unknown.site) == 0)
        return;
    }
  for (guint i = 0; i < self->n; i++)
    moves_any = moves_any
                || (holds_for (&unknown, &self->rows[i]) && self->moves[i] & 1u << unknown.effect);
  if (moves_any)
    g_array_append_val (self->unknowns, unknown);
}

static void
list_unknowns (Fit *self)
{
  for (Level level = LEVEL_ALL; level < N_LEVELS; level++)
    for (SimEffect e = 0; e < SIM_N_EFFECTS; e++)
      if (widths[e][level] > 0 && (level == LEVEL_BOTH) == (self->request->base != NULL))
        for (guint i = 0; i < self->n; i++)
          if (level != LEVEL_SITE || self->rows[i].site)
            add_unknown (self, (Unknown){ .effect = e,
                                          .gpu = level == LEVEL_GPU || level == LEVEL_BOTH
                                                     ? self->rows[i].gpu
                                                     : NULL,
                                          .stack = level == LEVEL_STACK || level == LEVEL_BOTH
                                                       ? self->rows[i].stack
                                                       : NULL,
                                          .site = level == LEVEL_SITE ? self->rows[i].site : NULL,
                                          .width = widths[e][level] });
}

/* Standard errors of the factors' logarithms: roots of the diagonal of the inverse of the
 * objective's curvature at the fit. */
static void
find_errors (const Fit *self, double *errors)
{
  const guint n = self->unknowns->len;
  g_autofree double *h = g_new0 (double, (gsize)n *n);
  for (guint u = 0; u < n; u++)
    {
      const Unknown *a = &g_array_index (self->unknowns, Unknown, u);
      h[u * n + u] = 1 / (a->width * a->width);
      for (guint v = 0; v <= u; v++)
        {
          const Unknown *b = &g_array_index (self->unknowns, Unknown, v);
          for (guint i = 0; i < self->n; i++)
            {
              const double z = residual (self, i) / SPREAD;
              const double *slope = &self->slope[i * SIM_N_EFFECTS];
              if (is_in_scope (self, i, u) && is_in_scope (self, i, v))
                h[u * n + v] += self->rows[i].weight * slope[a->effect] * slope[b->effect]
                                / (SPREAD * SPREAD * pow (1 + z * z, 1.5));
            }
        }
    }
  for (guint u = 0; u < n; u++) /* Cholesky, in place */
    for (guint v = 0; v <= u; v++)
      {
        double sum = h[u * n + v];
        for (guint k = 0; k < v; k++)
          sum -= h[u * n + k] * h[v * n + k];
        h[u * n + v] = u == v ? sqrt (sum) : sum / h[v * n + v];
      }
  for (guint u = 0; u < n; u++) /* norm of each column of the inverse of the Cholesky factor */
    {
      g_autofree double *column = g_new0 (double, n);
      errors[u] = 0;
      for (guint v = u; v < n; v++)
        {
          double sum = v == u;
          for (guint k = u; k < v; k++)
            sum -= h[v * n + k] * column[k];
          column[v] = sum / h[v * n + v];
          errors[u] += column[v] * column[v];
        }
      errors[u] = sqrt (errors[u]);
    }
}

/* Predicts the rows of each part or source by a fit to the others. That fit is one Gauss-Newton
 * step from the fit to all rows, where derivatives are known. When a source is left out, a factor
 * that only its runs determine returns to its prior, so that step may be of any length. */
static void
cross_validate (Fit *self, const double *theta, gboolean by_source, guint n)
{
  g_autofree double *own = g_new (double, self->unknowns->len);
  g_autofree double *log_ns = g_memdup2 (self->log_ns, self->n * sizeof *log_ns);
  self->by_source = by_source;
  self->only_left_out = TRUE;
  for (self->left_out = 0; self->left_out < n; self->left_out++)
    {
      minimise_surrogate (self, theta, by_source ? FAR : REACH, own);
      evaluate (self, own, FALSE);
      for (guint i = 0; i < self->n; i++)
        if (is_left_out (self, i))
          {
            *(by_source ? &self->rows[i].without_source_ns : &self->rows[i].without_part_ns)
                = exp (self->log_ns[i]);
            self->log_ns[i] = log_ns[i];
          }
    }
  self->only_left_out = FALSE;
  self->left_out = G_MAXUINT;
}

static SimAdjustments *
set_of (const Fit *self, const double *theta)
{
  SimAdjustments *set = sim_adjustments_new (self->request->id);
  const SimAdjustments *base = self->request->base;
  g_autofree double *errors = g_new0 (double, self->unknowns->len);
  find_errors (self, errors);
  for (guint i = 0; base && i < base->factors->len; i++)
    sim_adjustments_add_factor (set, g_array_index (base->factors, SimFactor, i));
  for (guint u = 0; u < self->unknowns->len; u++)
    {
      const Unknown *unknown = &g_array_index (self->unknowns, Unknown, u);
      if (unknown->site && errors[u] > LEAST_UNKNOWN * unknown->width)
        continue;
      sim_adjustments_add_factor (set, (SimFactor){ .scope = { .gpu = (char *)unknown->gpu,
                                                               .stack = (char *)unknown->stack,
                                                               .site = (char *)unknown->site },
                                                    .effect = unknown->effect,
                                                    .factor = sim_spreads_rounded (exp (theta[u])),
                                                    .error = sim_spreads_rounded (errors[u]) });
    }
  return set;
}

static void
find_scopes (Fit *self)
{
  const guint n = self->unknowns->len;
  self->in_scope = g_new (gboolean, (gsize)self->n * n + 1);
  for (guint i = 0; i < self->n; i++)
    for (guint u = 0; u < n; u++)
      self->in_scope[(gsize)i * n + u]
          = holds_for (&g_array_index (self->unknowns, Unknown, u), &self->rows[i]);
}

static SimAdjustments *
fit (Fit *self, GError **error)
{
  find_moves (self);
  list_unknowns (self);
  if (self->failed || self->unknowns->len == 0)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s",
                   self->failed ? "a run has ops whose costs are not known" : "no run to fit to");
      return NULL;
    }
  g_autofree double *theta = g_new0 (double, self->unknowns->len);
  find_scopes (self);
  evaluate (self, theta, TRUE);
  for (guint i = 0; i < self->n; i++)
    self->rows[i].before_ns = exp (self->log_ns[i]);
  minimise (self, theta);
  for (guint i = 0; i < MOST_LEAPS && leap (self, theta); i++)
    {
      evaluate (self, theta, TRUE);
      minimise (self, theta);
    }
  evaluate (self, theta, TRUE);
  for (guint i = 0; i < self->n; i++)
    self->rows[i].after_ns = self->rows[i].without_part_ns = self->rows[i].without_source_ns
        = exp (self->log_ns[i]);
  g_autoptr (SimAdjustments) set = set_of (self, theta);
  if (self->request->n_parts > 1)
    cross_validate (self, theta, FALSE, self->request->n_parts);
  if (self->request->n_sources > 1)
    cross_validate (self, theta, TRUE, self->request->n_sources);
  sim_spreads_add (set, self->request, self->rows, self->n);
  return g_steal_pointer (&set);
}

SimAdjustments *
sim_calibrate (const SimCalibration *request, SimObservation *rows, guint n, GError **error)
{
  Fit self = { .request = request,
               .rows = rows,
               .n = n,
               .unknowns = g_array_new (FALSE, FALSE, sizeof (Unknown)),
               .moves = g_new0 (guint, n + 1),
               .log_ns = g_new0 (double, n + 1),
               .slope = g_new0 (double, (gsize)(n + 1) * SIM_N_EFFECTS),
               .left_out = G_MAXUINT };
  SimAdjustments *set = fit (&self, error);
  g_array_unref (self.unknowns);
  g_free (self.moves);
  g_free (self.in_scope);
  g_free (self.log_ns);
  g_free (self.slope);
  return set;
}
