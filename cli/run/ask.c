/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/run/ask.h"

#include "advise/workspaces.h"
#include "cli/run/backend.h"
#include "planner/lower/lower.h"

/* Asks cuDNN about each pass of a plan's attention and adds a row for each that it has a kernel
 * for; the others are done by batched products. */
static void
ask (const PlanCase *of, PlanWorkspaces *rows)
{
  const gint64 *value = of->plan.value, tp = value[PLAN_TP];
  const PlanModel *model = of->model;
  for (PlanPass pass = 0; pass < PLAN_N_PASSES; pass++)
    {
      PlanWorkspace row
          = { .dtype = PLAN_DTYPE_BF16, .pass = pass, .version = cli_backend.cudnn->version () };
      g_autoptr (GError) why = NULL;
      row.dims[PLAN_DIM_ATTENTION_BWD_batch] = value[PLAN_MBS];
      row.dims[PLAN_DIM_ATTENTION_BWD_seq] = value[PLAN_SEQ];
      row.dims[PLAN_DIM_ATTENTION_BWD_heads] = model->heads / tp;
      row.dims[PLAN_DIM_ATTENTION_BWD_kv_heads] = model->kv_heads / tp;
      row.dims[PLAN_DIM_ATTENTION_BWD_head_dim] = model->head_dim;
      if (cli_backend.cudnn->ask_here (&row, &why))
        plan_workspaces_add (rows, &row);
      else
        g_debug ("cuDNN is not asked about attention: %s", why->message);
    }
}

PlanWorkspaces *
cli_ask_linked (const AdviseInput *input)
{
  if (!cli_backend.cudnn || input->cluster->kind != PLAN_DEVICE_GPU)
    return NULL;
  /* Errors are reported later, when the plan is predicted. */
  g_autoptr (PlanCase) of = advise_case (input, &input->plan, NULL);
  if (!of)
    return NULL;
  g_autoptr (PlanWorkspaces) rows = plan_workspaces_new ();
  ask (of, rows);
  return plan_workspaces_n_rows (rows) > 0 ? g_steal_pointer (&rows) : NULL;
}
