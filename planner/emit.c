/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/emit-private.h"

#include "planner/error.h"
#include "planner/rules.h"
#include "planner/stack.h"
#include "planner/text.h"

#include <string.h>

static const char *const kinds[] = {
#define X(id, name, summary) name,
  PLAN_EMIT_LIST (X)
#undef X
      NULL
};

static const char *const runtimes[] = { "stack", "megatron", "fsdplan", NULL };

static gboolean
find_name (const char *name, const char *const *names, const char *what, guint *out_at,
           GError **error)
{
  for (guint i = 0; names[i]; i++)
    if (strcmp (names[i], name) == 0)
      {
        *out_at = i;
        return TRUE;
      }
  g_autofree char *shown = plan_text_quote (name);
  g_autofree char *hint = plan_text_suggest (name, names);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "%s: there is no %s: %s", what, shown, hint);
  return FALSE;
}

const char *const *
plan_emit_kinds (void)
{
  return kinds;
}

gboolean
plan_emit_kind_parse (const char *name, PlanEmitKind *out_kind, GError **error)
{
  guint at;
  if (!find_name (name, kinds, "--as", &at, error))
    return FALSE;
  *out_kind = (PlanEmitKind)at;
  return TRUE;
}

gboolean
plan_emit_runtime_parse (const char *name, PlanEmitRuntime *out_runtime, GError **error)
{
  guint at;
  if (!find_name (name, runtimes, "--runtime", &at, error))
    return FALSE;
  *out_runtime = (PlanEmitRuntime)at;
  return TRUE;
}

void
plan_emit_line (GPtrArray *lines, const char *format, ...)
{
  va_list args;
  va_start (args, format);
  g_ptr_array_add (lines, g_strdup_vprintf (format, args));
  va_end (args);
}

void
plan_emit_refuse (GPtrArray *reasons, gboolean is_so, const char *format, ...)
{
  va_list args;
  if (!is_so)
    return;
  va_start (args, format);
  g_ptr_array_add (reasons, g_strdup_vprintf (format, args));
  va_end (args);
}

void
plan_emit_command_clear (PlanEmitCommand *self)
{
  for (guint i = 0; i < PLAN_EMIT_N_GROUPS; i++)
    g_clear_pointer (&self->groups[i], g_ptr_array_unref);
  g_clear_pointer (&self->environment, g_ptr_array_unref);
}

void
plan_emit_head (GString *text, const PlanEmitSubject *subject, PlanEmitKind kind)
{
  const PlanCluster *const c = subject->cluster;
  g_autofree char *hash = plan_hash (subject->plan);
  g_autoptr (GPtrArray) hazards = plan_rules_hazards (subject->plan, subject->model, c);
  g_string_append_printf (text,
                          "# %s on %s (%" G_GINT64_FORMAT " x %" G_GINT64_FORMAT
                          " %s), plan %s\n# Written by fsdplan emit --as %s\n",
                          subject->model->name, c->name, c->nodes, c->devices_per_node,
                          c->device_name, hash, kinds[kind]);
  for (guint i = 0; i < hazards->len; i++)
    g_string_append_printf (text, "# Note: %s\n", (char *)hazards->pdata[i]);
}

char *
plan_emit_plan (const PlanEmitSubject *subject)
{
  g_autofree char *hash = plan_hash (subject->plan);
  g_autofree char *model = plan_model_print (subject->model);
  g_autofree char *fields = plan_print (subject->plan);
  GString *text = g_string_new (NULL);
  g_string_append_printf (text, "# plan %s\nmodel=%s\n", hash, model);
  if (subject->cluster_spec)
    g_string_append_printf (text, "cluster=%s\n", subject->cluster_spec);
  else
    g_string_append_printf (text, "# cluster %s of a stored run: give one with --cluster\n",
                            subject->cluster->name);
  g_string_append (text, fields);
  return g_string_free (text, FALSE);
}

static void
refuse_stack (const PlanEmitSubject *subject, gboolean takes_megatron, GPtrArray *reasons)
{
  const gint64 value = subject->plan->value[PLAN_STACK];
  const gint64 date = value / PLAN_STACK_BASE, id = value % PLAN_STACK_BASE;
  const gboolean is_taken
      = id == PLAN_STACK_MEGATRON_FSDP || (takes_megatron && id == PLAN_STACK_MEGATRON);
  const PlanStack *const stack = plan_stack_of (subject->plan, subject->cluster->kind, NULL);
  g_autofree char *name = plan_field_print (PLAN_STACK, value);
  plan_emit_refuse (reasons, !is_taken,
                    "stack=%s: what is written is for stack=megatron-fsdp%s; --as mpirun and "
                    "--as slurm start stack=native",
                    name, takes_megatron ? " or megatron" : "");
  plan_emit_refuse (reasons, is_taken && date != 0 && stack && date != stack->newest,
                    "stack=%s: what is written is for " PLAN_EMIT_VERSION ": use stack=%s", name,
                    plan_field_names (PLAN_STACK)[id]);
}

void
plan_emit_refuse_common (const PlanEmitSubject *subject, gboolean takes_megatron,
                         GPtrArray *reasons)
{
  const gint64 *const value = subject->plan->value;
  refuse_stack (subject, takes_megatron, reasons);
  plan_emit_refuse (reasons, value[PLAN_UNIT] != PLAN_UNIT_LAYER,
                    "unit=block: its units are layers: use layer");
  plan_emit_refuse (reasons, value[PLAN_FUSED_MASTERS] == PLAN_FUSED_MASTERS_ON,
                    "fused_masters=on: that version's optimizer keeps none: use off");
  plan_emit_refuse (reasons, subject->cluster->kind != PLAN_DEVICE_GPU,
                    "cluster %s: has no GPUs, which Megatron-LM needs", subject->cluster->name);
}

static gboolean
check_reasons (PlanEmitKind kind, const GPtrArray *reasons, GError **error)
{
  g_autoptr (GString) text = g_string_new (NULL);
  for (guint i = 0; i < reasons->len; i++)
    g_string_append_printf (text, "%s%s", i > 0 ? "; " : "", (char *)reasons->pdata[i]);
  if (reasons->len > 0)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "--as %s cannot express this plan: %s",
                 kinds[kind], text->str);
  return reasons->len == 0;
}

static char *
emit_megatron (PlanEmitKind kind, const PlanEmitSubject *subject, GError **error)
{
  g_autoptr (GPtrArray) reasons = g_ptr_array_new_with_free_func (g_free);
  g_auto (PlanEmitCommand) command = { 0 };
  plan_emit_megatron (subject, &command, reasons);
  if (!check_reasons (kind, reasons, error))
    return NULL;
  return kind == PLAN_EMIT_SLURM      ? plan_emit_script_slurm (subject, &command)
         : kind == PLAN_EMIT_TORCHRUN ? plan_emit_script_line (subject, &command)
                                      : plan_emit_script_megatron (subject, &command);
}

static char *
emit_fully_shard (const PlanEmitSubject *subject, GError **error)
{
  g_autoptr (GPtrArray) reasons = g_ptr_array_new_with_free_func (g_free);
  g_autofree char *text = plan_emit_fully_shard (subject, reasons);
  return check_reasons (PLAN_EMIT_FULLY_SHARD, reasons, error) ? g_steal_pointer (&text) : NULL;
}

char *
plan_emit (PlanEmitKind kind, PlanEmitRuntime runtime, const PlanEmitSubject *subject,
           GError **error)
{
  const gint64 stack = subject->plan->value[PLAN_STACK] % PLAN_STACK_BASE;
  const gboolean is_own = runtime == PLAN_EMIT_RUNTIME_FSDPLAN
                          || (runtime == PLAN_EMIT_RUNTIME_OF_STACK && stack == PLAN_STACK_NATIVE);
  if (runtime != PLAN_EMIT_RUNTIME_OF_STACK && kind != PLAN_EMIT_SLURM)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--runtime says what a job starts: it is for --as slurm");
      return NULL;
    }
  if (kind == PLAN_EMIT_PLAN)
    return plan_emit_plan (subject);
  if (kind == PLAN_EMIT_MPIRUN)
    return plan_emit_script_line_own (subject);
  if (kind == PLAN_EMIT_SLURM && is_own)
    return plan_emit_script_slurm_own (subject);
  if (kind == PLAN_EMIT_FULLY_SHARD)
    return emit_fully_shard (subject, error);
  return emit_megatron (kind, subject, error);
}
