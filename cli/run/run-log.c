/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/run/run-log.h"

#include "planner/base/error.h"
#include "planner/runs/event-file.h"

#include <errno.h>
#include <json-glib/json-glib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct _CliRunLog
{
  char *path;
  FILE *file;            /* NULL: not asked for, or writing failed */
  PlanEventFile *events; /* likewise */
};

CliRunLog *
cli_run_log_new (const char *path, const char *tensorboard, GError **error)
{
  g_autoptr (CliRunLog) self = g_new0 (CliRunLog, 1);
  self->path = g_strdup (path);
  if (path && !(self->file = fopen (path, "a")))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", path, g_strerror (errno));
      return NULL;
    }
  if (tensorboard && !(self->events = plan_event_file_new (tensorboard, error)))
    return NULL;
  return g_steal_pointer (&self);
}

void
cli_run_log_free (CliRunLog *self)
{
  if (!self)
    return;
  if (self->file)
    fclose (self->file);
  g_clear_pointer (&self->events, plan_event_file_free);
  g_free (self->path);
  g_free (self);
}

static gboolean
write_line (CliRunLog *self, JsonBuilder *b, GError **error)
{
  g_autoptr (JsonNode) root = json_builder_get_root (b);
  g_autofree char *line = json_to_string (root, FALSE);
  if (fprintf (self->file, "%s\n", line) >= 0 && fflush (self->file) == 0)
    return TRUE;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_IO, "%s: %s", self->path, g_strerror (errno));
  return FALSE;
}

static void
add_text (JsonBuilder *b, const char *name, const char *text)
{
  json_builder_set_member_name (b, name);
  if (text)
    json_builder_add_string_value (b, text);
  else
    json_builder_add_null_value (b);
}

static void
add_int (JsonBuilder *b, const char *name, gint64 value)
{
  json_builder_set_member_name (b, name);
  json_builder_add_int_value (b, value);
}

/* Adds a number; null if it is not finite, since JSON has no word for that. */
static void
add_real (JsonBuilder *b, const char *name, double value)
{
  json_builder_set_member_name (b, name);
  if (isfinite (value))
    json_builder_add_double_value (b, value);
  else
    json_builder_add_null_value (b);
}

gboolean
cli_run_log_begin (CliRunLog *self, const DbRun *run, GError **error)
{
  if (!self->file)
    return TRUE;
  const struct
  {
    const char *name, *text;
  } texts[] = { { "uid", run->uid },
                { "created", run->created },
                { "program_version", run->program_version },
                { "backend", run->backend },
                { "comm", run->comm },
                { "device", run->device },
                { "host", run->host },
                { "plan_hash", run->plan_hash },
                { "model_text", run->model_text },
                { "cluster_text", run->cluster_text },
                { "plan_text", run->plan_text },
                { "schedule_hash", run->schedule_hash },
                { "data", run->data },
                { "settings", run->settings },
                { "params_id", run->params_id } };
  g_autoptr (JsonBuilder) b = json_builder_new ();
  json_builder_begin_object (b);
  json_builder_set_member_name (b, "run");
  json_builder_begin_object (b);
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    add_text (b, texts[i].name, texts[i].text);
  add_int (b, "pid", run->pid);
  add_int (b, "ranks", run->ranks);
  add_int (b, "steps", run->steps);
  add_int (b, "seed", run->seed);
  add_int (b, "predicted_step_ns", run->predicted_step_ns);
  json_builder_end_object (b);
  json_builder_end_object (b);
  return write_line (self, b, error);
}

/* Reports that one of the logs ends here. */
static void
give_up (const GError *why)
{
  fprintf (stderr, "fsdplan: no more of this run will be logged: %s\n", why->message);
}

static void
add_events (CliRunLog *self, const ExecStep *step, double tokens_per_s)
{
  const PlanEventScalar scalars[]
      = { { "loss", step->loss },           { "grad_norm", step->grad_norm },
          { "learning_rate", step->lr },    { "step_ms", 1e-6 * (double)step->step_ns },
          { "tokens_per_s", tokens_per_s }, { "eval_loss", step->eval_loss } };
  const guint n = G_N_ELEMENTS (scalars) - !isfinite (step->eval_loss);
  g_autoptr (GError) why = NULL;
  if (plan_event_file_add (self->events, 1e-6 * (double)g_get_real_time (), step->step + 1, scalars,
                           n, &why))
    return;
  give_up (why);
  g_clear_pointer (&self->events, plan_event_file_free);
}

static void
end_line (CliRunLog *self, JsonBuilder *b)
{
  g_autoptr (GError) why = NULL;
  if (write_line (self, b, &why))
    return;
  give_up (why);
  fclose (self->file);
  self->file = NULL;
}

void
cli_run_log_step (CliRunLog *self, const ExecStep *step, gint64 tokens)
{
  const double tokens_per_s = 1e9 * (double)tokens / (double)MAX (step->step_ns, 1);
  if (self->events)
    add_events (self, step, tokens_per_s);
  if (!self->file)
    return;
  g_autoptr (JsonBuilder) b = json_builder_new ();
  json_builder_begin_object (b);
  add_int (b, "step", step->step + 1);
  add_real (b, "loss", step->loss);
  add_real (b, "grad_norm", step->grad_norm);
  add_real (b, "lr", step->lr);
  add_int (b, "step_ns", step->step_ns);
  add_real (b, "tokens_per_s", tokens_per_s);
  if (isfinite (step->eval_loss))
    add_real (b, "eval_loss", step->eval_loss);
  json_builder_end_object (b);
  end_line (self, b);
}

void
cli_run_log_end (CliRunLog *self, const char *state, const char *message, gint64 measured_step_ns)
{
  if (!self->file)
    return;
  g_autoptr (JsonBuilder) b = json_builder_new ();
  json_builder_begin_object (b);
  json_builder_set_member_name (b, "end");
  json_builder_begin_object (b);
  add_text (b, "state", state);
  add_text (b, "message", message);
  add_int (b, "measured_step_ns", measured_step_ns);
  json_builder_end_object (b);
  json_builder_end_object (b);
  end_line (self, b);
}
