/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/run/resume.h"

#include "exec/walk/source.h"
#include "planner/base/error.h"
#include "planner/base/units.h"

#include <stdio.h>
#include <string.h>

/* Settings that must not change without --force, why, and what --force does. */
static const struct
{
  const char *name, *why, *forced;
} fixed[] = {
  { "data", "the place in it would mean nothing", "begins it anew" },
  { "optimizer", "its state would mean something else", "takes that as it is" },
};

static char *
describe_data (const ExecJob *job)
{
  if (job->tokens)
    return exec_blend_describe (job->tokens);
  return g_strdup_printf ("synthetic, seed %" G_GUINT64_FORMAT, job->seed);
}

static void
add_real (GPtrArray *list, const char *name, double value)
{
  g_autofree char *text = plan_units_format_real (value);
  g_ptr_array_add (list, g_strdup_printf ("%s=%s", name, text));
}

static void
add_field (GPtrArray *list, const Plan *plan, PlanField field)
{
  g_autofree char *text = plan_field_print (field, plan->value[field]);
  g_ptr_array_add (list, g_strdup_printf ("%s=%s", plan_field_name (field), text));
}

static char *
describe_mask (const ExecJob *job)
{
  const char *name = plan_field_name (PLAN_EOD_MASK_LOSS);
  if (!exec_source_masks (job))
    return g_strdup_printf ("%s=off", name);
  return g_strdup_printf ("%s=on, of token %" G_GINT64_FORMAT, name, job->document_end);
}

/* Number of steps in which the learning rate decays. */
static gint64
decay_steps (const ExecRate *rate)
{
  return rate->decay_steps > 0 ? rate->decay_steps : rate->last_step - rate->warmup_steps;
}

char **
cli_resume_settings (const ExecJob *job)
{
  static const PlanField fields[]
      = { PLAN_OPTIMIZER, PLAN_GBS, PLAN_SEQ, PLAN_COMPUTE, PLAN_MAIN_PARAMS };
  const gboolean decays_at_all = job->rate.decay != EXEC_DECAY_NONE;
  GPtrArray *list = g_ptr_array_new ();
  g_autofree char *data = describe_data (job);
  g_ptr_array_add (list, g_strdup_printf ("data=%s", data));
  for (guint i = 0; i < G_N_ELEMENTS (fields); i++)
    add_field (list, &job->of->plan, fields[i]);
  g_ptr_array_add (list, describe_mask (job));
  add_real (list, "lr", job->constants.lr);
  add_real (list, "warmup", (double)job->rate.warmup_steps);
  g_ptr_array_add (list, g_strdup_printf ("decay=%s", exec_decay_names[job->rate.decay]));
  add_real (list, "min-lr", decays_at_all ? job->rate.min_share * job->constants.lr : 0);
  add_real (list, "last-step-of-decay", decays_at_all ? (double)job->rate.last_step : 0);
  add_real (list, "decay-steps", decays_at_all ? (double)decay_steps (&job->rate) : 0);
  add_real (list, "clip", job->constants.max_norm);
  add_real (list, "weight-decay", job->constants.weight_decay);
  g_ptr_array_add (
      list, g_strdup_printf ("weight-decay-of=%s", job->constants.decays_all ? "all" : "matrices"));
  if (job->of->model->router_bias)
    add_real (list, "bias-rate", job->constants.bias_rate);
  if (job->of->model->experts > 0)
    add_real (list, "aux-loss", (double)job->of->plan.value[PLAN_MOE_AUX_LOSS] / 1e6);
  add_real (list, "beta1", job->constants.beta1);
  add_real (list, "beta2", job->constants.beta2);
  add_real (list, "eps", job->constants.adam_eps);
  g_ptr_array_add (list, NULL);
  return (char **)g_ptr_array_free (list, FALSE);
}

/* The value of a setting in old checkpoints, which do not record it; NULL: it was not always the
 * same. */
static const char *
unrecorded_setting (const char *name)
{
  static const char *const settings[][2]
      = { { "weight-decay-of", "all" }, { "beta1", "0.9" },  { "beta2", "0.95" },
          { "eps", "1e-08" },           { "aux-loss", "0" }, { "eod_mask_loss", "off" } };
  for (guint i = 0; i < G_N_ELEMENTS (settings); i++)
    if (g_str_equal (name, settings[i][0]))
      return settings[i][1];
  return NULL;
}

/* Reports a setting that differs from the checkpoint's; refuses it if it must not. */
static gboolean
check_setting (CliTraining *self, const char *name, const char *now, const char *before,
               gboolean is_forced, GError **error)
{
  for (guint i = 0; !is_forced && i < G_N_ELEMENTS (fixed); i++)
    if (g_str_equal (name, fixed[i].name))
      {
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                     "--resume: %s is '%s', and was '%s': %s; --force %s", name, now, before,
                     fixed[i].why, fixed[i].forced);
        return FALSE;
      }
  if (!self->comm || self->comm->rank == 0)
    fprintf (stderr, "fsdplan: goes on with %s %s, which was %s\n", name, now, before);
  return TRUE;
}

gboolean
cli_resume_take_up (CliTraining *self, gboolean is_forced, GError **error)
{
  ExecJob *const job = &self->job;
  job->first_step = exec_checkpoint_step (self->resume);
  job->first_token = exec_checkpoint_tokens (self->resume);
  for (char **at = self->settings; *at; at++)
    {
      g_auto (GStrv) pair = g_strsplit (*at, "=", 2);
      const char *kept = exec_checkpoint_setting (self->resume, pair[0]);
      const char *before = kept ? kept : unrecorded_setting (pair[0]);
      if (!before || g_str_equal (before, pair[1]))
        continue;
      if (!check_setting (self, pair[0], pair[1], before, is_forced, error))
        return FALSE;
      if (g_str_equal (pair[0], "data"))
        job->first_token = 0;
    }
  return TRUE;
}
