/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/runs/step-log.h"

#include "planner/base/error.h"
#include "planner/base/json.h"
#include "planner/base/text.h"

#include <math.h>
#include <string.h>

/* The largest whole number on which all readers of JSON agree (RFC 8259, section 6). */
#define MOST (G_GINT64_CONSTANT (1) << 53)

/* Members that a line about a step may have; lr and tokens_per_s are accepted but not kept. */
static const char *const known_of_step[]
    = { "step", "step_ns", "loss", "grad_norm", "eval_loss", "lr", "tokens_per_s", NULL };

typedef struct
{
  const char *origin;
  guint64 line;
  GPtrArray *runs;
} Reader;

static void
run_free (gpointer data)
{
  PlanLoggedRun *run = data;
  g_ptr_array_unref (run->cells);
  g_array_unref (run->steps);
  g_free (run->state);
  g_free (run->message);
  g_free (run);
}

const char *
plan_logged_run_cell (const PlanLoggedRun *self, const char *name)
{
  for (guint i = 0; i < self->cells->len; i += 2)
    if (g_str_equal (self->cells->pdata[i], name))
      return self->cells->pdata[i + 1];
  return NULL;
}

gboolean
plan_step_log_is (const char *start)
{
  return g_str_has_prefix (start, "{\"run\":{");
}

static gboolean G_GNUC_PRINTF (3, 4)
    refuse (const Reader *self, GError **error, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_autofree char *why = g_strdup_vprintf (format, args);
  va_end (args);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s:%" G_GUINT64_FORMAT ": %s", self->origin,
               self->line, why);
  return FALSE;
}

static gboolean
is_integer (JsonNode *node)
{
  return JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == G_TYPE_INT64;
}

static gboolean
is_text (JsonNode *node)
{
  return JSON_NODE_HOLDS_VALUE (node) && json_node_get_value_type (node) == G_TYPE_STRING;
}

static gboolean
begin_run (const Reader *self, JsonObject *object, GError **error)
{
  JsonObjectIter iter;
  const char *name;
  JsonNode *node;
  PlanLoggedRun *run = g_new0 (PlanLoggedRun, 1);
  run->line = self->line;
  run->cells = g_ptr_array_new_with_free_func (g_free);
  run->steps = g_array_new (FALSE, FALSE, sizeof (PlanLoggedStep));
  g_ptr_array_add (self->runs, run);
  json_object_iter_init (&iter, object);
  while (json_object_iter_next (&iter, &name, &node))
    {
      if (JSON_NODE_HOLDS_NULL (node))
        continue;
      if (!is_text (node) && !is_integer (node))
        return refuse (self, error, "run.%s: is neither a text nor a whole number", name);
      g_ptr_array_add (run->cells, g_strdup (name));
      g_ptr_array_add (run->cells, is_text (node) ? g_strdup (json_node_get_string (node))
                                                  : g_strdup_printf ("%" G_GINT64_FORMAT,
                                                                     json_node_get_int (node)));
    }
  return TRUE;
}

static gboolean
take_integer (const Reader *self, JsonObject *object, const char *name, gint64 least, gint64 *out,
              GError **error)
{
  JsonNode *node = json_object_get_member (object, name);
  if (!node || !is_integer (node) || json_node_get_int (node) < least
      || json_node_get_int (node) > MOST)
    return refuse (self, error,
                   "%s: must be a whole number from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT,
                   name, least, MOST);
  *out = json_node_get_int (node);
  return TRUE;
}

/* Reads a number. NAN where the member is null or absent. */
static gboolean
take_real (const Reader *self, JsonObject *object, const char *name, double *out, GError **error)
{
  JsonNode *node = json_object_get_member (object, name);
  const GType type
      = node && JSON_NODE_HOLDS_VALUE (node) ? json_node_get_value_type (node) : G_TYPE_NONE;
  *out = NAN;
  if (!node || JSON_NODE_HOLDS_NULL (node))
    return TRUE;
  if (type != G_TYPE_INT64 && type != G_TYPE_DOUBLE)
    return refuse (self, error, "%s: must be a number, or null", name);
  *out = json_node_get_double (node);
  return TRUE;
}

static gboolean
check_members (const Reader *self, JsonObject *object, GError **error)
{
  JsonObjectIter iter;
  const char *name;
  json_object_iter_init (&iter, object);
  while (json_object_iter_next (&iter, &name, NULL))
    if (!g_strv_contains (known_of_step, name))
      {
        g_autofree char *shown = plan_text_quote (name);
        g_autofree char *known = g_strjoinv (", ", (char **)known_of_step);
        return refuse (self, error, "%s is nothing that a step has: these are %s", shown, known);
      }
  return TRUE;
}

static gboolean
add_step (const Reader *self, PlanLoggedRun *run, JsonObject *object, GError **error)
{
  PlanLoggedStep step = { 0 };
  const gint64 before
      = run->steps->len ? g_array_index (run->steps, PlanLoggedStep, run->steps->len - 1).step : 0;
  if (!check_members (self, object, error)
      || !take_integer (self, object, "step", before + 1, &step.step, error)
      || !take_integer (self, object, "step_ns", 0, &step.step_ns, error)
      || !take_real (self, object, "loss", &step.loss, error)
      || !take_real (self, object, "grad_norm", &step.grad_norm, error)
      || !take_real (self, object, "eval_loss", &step.eval_loss, error))
    return FALSE;
  g_array_append_val (run->steps, step);
  return TRUE;
}

static gboolean
end_run (const Reader *self, PlanLoggedRun *run, JsonObject *object, GError **error)
{
  JsonNode *state = json_object_get_member (object, "state");
  JsonNode *message = json_object_get_member (object, "message");
  if (!state || !is_text (state)
      || (!g_str_equal (json_node_get_string (state), "done")
          && !g_str_equal (json_node_get_string (state), "failed")))
    return refuse (self, error, "end.state: must be done or failed");
  if (message && !JSON_NODE_HOLDS_NULL (message) && !is_text (message))
    return refuse (self, error, "end.message: must be a text, or null");
  run->state = g_strdup (json_node_get_string (state));
  run->message = message && is_text (message) ? g_strdup (json_node_get_string (message)) : NULL;
  return take_integer (self, object, "measured_step_ns", 0, &run->measured_ns, error);
}

static JsonObject *
object_of (JsonObject *line, const char *name)
{
  JsonNode *node = json_object_get_member (line, name);
  return node && JSON_NODE_HOLDS_OBJECT (node) ? json_node_get_object (node) : NULL;
}

static gboolean
take_line (const Reader *self, JsonObject *line, GError **error)
{
  JsonObject *const run = object_of (line, "run"), *const end = object_of (line, "end");
  PlanLoggedRun *last = self->runs->len ? self->runs->pdata[self->runs->len - 1] : NULL;
  if (run)
    return begin_run (self, run, error);
  if (!last || last->state)
    return refuse (self, error, "no run has begun here: {\"run\": {...}} is missing");
  return end ? end_run (self, last, end, error) : add_step (self, last, line, error);
}

static gboolean
read_line (const Reader *self, const char *text, gboolean is_cut, GError **error)
{
  g_autoptr (JsonParser) parser = json_parser_new ();
  JsonObject *object = plan_json_load (parser, text, self->origin, NULL);
  if (object)
    return take_line (self, object, error);
  return is_cut || refuse (self, error, "this is no object of JSON");
}

GPtrArray *
plan_step_log_read (const char *text, const char *origin, GError **error)
{
  g_autoptr (GPtrArray) runs = g_ptr_array_new_with_free_func (run_free);
  Reader self = { .origin = origin, .line = 1, .runs = runs };
  for (const char *at = text; *at; self.line++)
    {
      const gsize length = strcspn (at, "\n");
      g_autofree char *line = g_strndup (at, length);
      const gboolean is_cut = at[length] == '\0';
      if (length > 0 && !read_line (&self, line, is_cut, error))
        return NULL;
      at += length + !is_cut;
    }
  return g_steal_pointer (&runs);
}
