/* SPDX-License-Identifier: Apache-2.0 */
/* Runs steps that the device keeps, as a CUDA graph. The first step is issued op by op, because
 * libraries choose algorithms and allocate memory at their first calls. The second step is kept
 * while it is issued, and later steps launch it. The recorded step is issued op by op again, so
 * that each op has times. Evaluations set up anew each time and are always issued op by op.
 *
 * Tags are checked while the step is kept. A launch advances each tag by what that step advanced
 * it: by one version, or not at all. Where the host would wait inside a step, for nan_check, it
 * looks at the same results after the launch instead; an error then ends the run one step later.
 *
 * Where a step ends with a wait for an event of the compute stream, which says that the loss is
 * known, it is kept in two parts: the host waits for the first, and launches the next step while
 * the second, which updates weights, runs. */
#include "config.h"

#include "exec/walk/walk-private.h"

#include "exec/kernels.h"
#include "planner/base/error.h"

#include <string.h>

#define STEPS_BEFORE 1 /* steps issued op by op before one is kept */

static gboolean
refuse (const char *why, GError **error)
{
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "cuda_graph=on %s: it must be off", why);
  return FALSE;
}

gboolean
exec_walk_check_graph (ExecWalk *self, GError **error)
{
  const PlanOp *op;
  PlanCursor cursor;
  if (!self->kept.is_wanted)
    return TRUE;
  if (!self->job->kernels->device->keep)
    return refuse ("is for devices that run ops by themselves, which the CPU does not", error);
  if (!self->comm->ops->has_graphs)
    {
      g_autofree char *why = g_strdup_printf (
          "among ranks joined by %s is modelled and not executed yet", self->comm->ops->name);
      return refuse (why, error);
    }
  self->kept.known = EXEC_NO_EVENT;
  plan_cursor_start (&cursor, self->schedule, PLAN_SECTION_STEP);
  while ((op = plan_cursor_next (&cursor)))
    {
      if (op->stream == PLAN_STREAM_HOST && op->kind != PLAN_OP_SYNC)
        return refuse ("cannot keep a step in which the host computes", error);
      for (guint i = 0; i < op->n_waits && op->kind == PLAN_OP_SYNC; i++)
        self->kept.known = plan_cursor_event (&cursor, &op->waits[i]);
    }
  return TRUE;
}

void
exec_walk_clear_graph (ExecWalk *self)
{
  g_clear_pointer (&self->kept.loads, g_array_unref);
  g_clear_pointer (&self->kept.looks, g_array_unref);
  g_clear_pointer (&self->kept.before, g_free);
}

gboolean
exec_walk_begin_step (ExecWalk *self, GError **error)
{
  const guint n = plan_schedule_n_buffer_ids (self->schedule);
  ExecDevice *device = self->device;
  ExecStepGraph *kept = &self->kept;
  if (!kept->is_wanted)
    return TRUE;
  if (!self->trace && kept->steps++ >= STEPS_BEFORE)
    {
      kept->is_keeping = TRUE;
      kept->loads = g_array_new (FALSE, FALSE, sizeof (ExecLoad));
      kept->looks = g_array_new (FALSE, FALSE, sizeof (ExecLook));
      kept->before = g_new (gint64, n + 1);
      for (guint i = 0; i < n; i++)
        kept->before[i] = self->tags[i].version;
      if (!device->ops->keep (device, error))
        return FALSE;
    }
  return device->ops->vary (device, &self->constants, error);
}

gboolean
exec_walk_split_step (ExecWalk *self, const ExecIssued *issued, GError **error)
{
  if (!self->kept.is_keeping || issued->event == EXEC_NO_EVENT || issued->event != self->kept.known
      || issued->stream != PLAN_STREAM_COMPUTE)
    return TRUE;
  return self->device->ops->keep (self->device, error);
}

gboolean
exec_walk_end_step (ExecWalk *self, GError **error)
{
  ExecStepGraph *kept = &self->kept;
  if (!kept->is_keeping)
    return TRUE;
  g_array_append_vals (kept->looks, self->looks->data, self->looks->len);
  for (guint i = 0; i < plan_schedule_n_buffer_ids (self->schedule); i++)
    kept->before[i] = self->tags[i].version - kept->before[i];
  kept->is_keeping = FALSE;
  kept->is_kept = TRUE;
  return self->device->ops->launch (self->device, &self->constants, error);
}

gboolean
exec_walk_run_graph (ExecWalk *self, GError **error)
{
  const ExecStepGraph *kept = &self->kept;
  ExecDevice *device = self->device;
  for (guint i = 0; i < kept->loads->len; i++)
    if (!exec_walk_fill_batch (self, &g_array_index (kept->loads, ExecLoad, i), error))
      return FALSE;
  g_array_append_vals (self->looks, kept->looks->data, kept->looks->len);
  for (guint i = 0; i < plan_schedule_n_buffer_ids (self->schedule); i++)
    self->tags[i].version += kept->before[i];
  return device->ops->launch (device, &self->constants, error)
         && device->ops->settle (device, error) && exec_walk_take_looks (self, error);
}
