/* SPDX-License-Identifier: Apache-2.0 */
/* A multi-token-prediction module: one more layer, which reads the decoder's output of a token
 * beside the embedding of the next token, and a second loss through the same output layer
 * (Megatron-LM's multi_token_prediction.py at d98e8a64). The final norm stands between the decoder
 * and the module rather than before the head. The outputs of both are joined for the head and
 * parted again after it. The projection of the joined pair runs in the format of activations. */
#include "config.h"

#include "planner/lower/lower-emit.h"
#include "planner/lower/lower-layer.h"
#include "planner/lower/lower-loss.h"
#include "planner/lower/lower-step.h"

#define OF(array) plan_lower_in_row (self, plan_lower_ref (self->module.array))
#define OF_HEAD(array, index) plan_lower_unit_ref (self->head.array, PLAN_NO_UNIT, index)
#define KEPT(array, index) plan_lower_kept_by (self, self->head.array, index)

enum
{
  EMBEDDED,
  DECODED
};

static const PlanTensorRole norms[]
    = { PLAN_TENSOR_MTP_EMBEDDING_NORM, PLAN_TENSOR_MTP_HIDDEN_NORM };

static gboolean
splits (const PlanLower *self)
{
  return self->sizes->split_rows < self->sizes->rows;
}

/* Elements of the activations of this rank's tokens. */
static gint64
own_elements (const PlanLower *self)
{
  return self->sizes->split_rows * self->model->hidden;
}

void
plan_lower_declare_module (PlanLower *self)
{
  PlanLowerModule *m = &self->module;
  const PlanSizes *sizes = self->sizes;
  const guint64 own = (guint64)own_elements (self), rows = (guint64)sizes->rows;
  const guint64 whole = rows * (guint64)self->model->hidden;
  const guint64 tp = (guint64)self->plan->value[PLAN_TP];
  const guint32 n = (guint32)self->policy.head_rows;
  const struct
  {
    gint32 *array;
    const char *name;
    gboolean exists;
    guint64 elements;
  } table[] = {
    { &m->decoded, "mtp.decoded", TRUE, own },
    { &m->ddecoded, "d.mtp.decoded", TRUE, own },
    { &m->dshare, "d.mtp.decoded.share", TRUE, own },
    { &m->table, "mtp.embedded.whole", splits (self), whole },
    { &m->embedded, "mtp.embedded", TRUE, own },
    { &m->norm[EMBEDDED], "mtp.norm.embedded", TRUE, own },
    { &m->norm[DECODED], "mtp.norm.decoded", TRUE, own },
    { &m->dnorm[EMBEDDED], "d.mtp.norm.embedded", TRUE, own },
    { &m->dnorm[DECODED], "d.mtp.norm.decoded", TRUE, own },
    { &m->joined, "mtp.joined", TRUE, 2 * own },
    { &m->joined_full, "mtp.joined.full", splits (self), 2 * whole },
    { &m->djoined, "d.mtp.joined", TRUE, 2 * own },
    { &m->djoined_full, "d.mtp.joined.full", splits (self), 2 * whole },
    { &m->part, "mtp.part", splits (self), whole / tp },
    { &m->projected, "mtp.projected", splits (self), whole },
    { &m->normed, "mtp.normed", TRUE, own },
    { &m->dnormed, "d.mtp.normed", TRUE, own },
  };
  for (guint i = 0; i < G_N_ELEMENTS (table); i++)
    *table[i].array
        = table[i].exists && self->stage.modules > 0
              ? plan_schedule_add_buffer (self->schedule, table[i].name, n, table[i].elements,
                                          sizes->compute, PLAN_CATEGORY_ACTIVATIONS)
              : -1;
  for (guint i = 0; i < G_N_ELEMENTS (norms); i++)
    m->stats[i] = self->stage.modules > 0 ? plan_schedule_add_buffer (
                      self->schedule, i == EMBEDDED ? "rstd.mtp.embedded" : "rstd.mtp.decoded", n,
                      (guint64)sizes->split_rows, PLAN_DTYPE_FP32, PLAN_CATEGORY_ACTIVATIONS)
                                          : -1;
  m->recomputes = self->plan->value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL
                  && self->plan->value[PLAN_RECOMPUTE_METHOD] == PLAN_RECOMPUTE_METHOD_UNIFORM;
}

/* --- before its layer ------------------------------------------------------------------------- */

static PlanRef
input_of_layer (const PlanLower *self, PlanLowerUnit unit)
{
  return plan_lower_in_row (self, plan_lower_unit_ref (self->layer.value[PLAN_VALUE_X], unit, 1));
}

static PlanRef
output_of_layer (const PlanLower *self, PlanLowerUnit unit)
{
  return plan_lower_in_row (self, plan_lower_unit_ref (self->layer.value[PLAN_VALUE_X], unit, 2));
}

/* The module's layer: the last one of the virtual stage at hand. */
static PlanLowerUnit
unit_of_layer (const PlanLower *self)
{
  return (PlanLowerUnit){ .loop = -1,
                          .offset = (gint32)(self->now.here.first + self->now.here.layers - 1),
                          .is_module = TRUE };
}

static void
copy (PlanLower *self, PlanRef out, PlanRef in, gint64 elements)
{
  plan_lower_compute (self, PLAN_OP_CAST, PLAN_REFS (out, in), PLAN_DIMS (elements));
}

/* Norms both inputs and puts them side by side. */
static void
join (PlanLower *self)
{
  const PlanRef from[] = { OF (embedded), OF (decoded) };
  for (guint i = 0; i < G_N_ELEMENTS (norms); i++)
    {
      plan_lower_await_role (self, norms[i]);
      plan_lower_alloc (self, OF (norm[i]));
      plan_lower_alloc (self, OF (stats[i]));
      plan_lower_norm (self, OF (norm[i]), OF (stats[i]), from[i], norms[i], PLAN_N_TENSORS,
                       PLAN_N_TENSORS, PLAN_NO_UNIT, self->sizes->split_rows);
    }
  plan_lower_alloc (self, OF (joined));
  for (guint i = 0; i < G_N_ELEMENTS (norms); i++)
    {
      const guint64 at = i * (guint64)own_elements (self);
      copy (self, plan_lower_at (OF (joined), at), OF (norm[i]), own_elements (self));
      plan_lower_free (self, OF (norm[i]));
    }
}

static void
gather_joined (PlanLower *self)
{
  plan_lower_alloc (self, OF (joined_full));
  plan_lower_exchange (self, PLAN_OP_ALL_GATHER, PLAN_REFS (OF (joined_full), OF (joined)),
                       2 * own_elements (self));
}

static void
product (PlanLower *self, PlanRef out, PlanRef in, gint64 cols)
{
  plan_lower_compute (self, PLAN_OP_GEMM,
                      PLAN_REFS (out, in,
                                 plan_lower_weight (self, PLAN_TENSOR_MTP_PROJ, PLAN_NO_UNIT),
                                 PLAN_REF_NONE),
                      PLAN_DIMS (self->sizes->rows, cols, 2 * self->model->hidden, 1));
}

/* Projects the joined pair. If tokens are split, each rank makes some columns for all tokens; these
 * are gathered, and each rank keeps the rows of its own tokens. */
static void
project (PlanLower *self, PlanRef x)
{
  const gint64 tp = self->plan->value[PLAN_TP], hidden = self->model->hidden;
  const gint64 whole = self->sizes->rows * hidden;
  join (self);
  plan_lower_await_role (self, PLAN_TENSOR_MTP_PROJ);
  if (!splits (self))
    {
      plan_lower_alloc (self, x);
      product (self, x, OF (joined), hidden);
      return;
    }
  gather_joined (self);
  plan_lower_alloc (self, OF (part));
  product (self, OF (part), OF (joined_full), hidden / tp);
  plan_lower_free (self, OF (joined_full));
  plan_lower_alloc (self, OF (table));
  plan_lower_exchange (self, PLAN_OP_ALL_GATHER, PLAN_REFS (OF (table), OF (part)), whole / tp);
  plan_lower_free (self, OF (part));
  plan_lower_alloc (self, OF (projected));
  copy (self, OF (projected), OF (table), whole);
  plan_lower_free (self, OF (table));
  plan_lower_alloc (self, x);
  copy (self, x, plan_lower_at (OF (projected), plan_lower_own_part (self, (guint64)whole)),
        own_elements (self));
  plan_lower_free (self, OF (projected));
}

/* Makes the input of the module's layer from the decoder's output. */
void
plan_lower_begin_module (PlanLower *self, PlanLowerUnit unit)
{
  plan_lower_alloc (self, OF (decoded));
  plan_lower_final_norm (self, OF (decoded));
  plan_lower_alloc (self, splits (self) ? OF (table) : OF (embedded));
  plan_lower_await_role (self, PLAN_TENSOR_EMBEDDING);
  plan_lower_embed (self, OF (embedded), splits (self) ? OF (table) : OF (embedded));
  project (self, input_of_layer (self, unit));
}

static void
drop_joined (PlanLower *self)
{
  plan_lower_free (self, OF (joined));
  plan_lower_free (self, OF (stats[EMBEDDED]));
  plan_lower_free (self, OF (stats[DECODED]));
}

void
plan_lower_leave_module (PlanLower *self, PlanLowerUnit unit)
{
  if (!self->module.recomputes)
    return;
  drop_joined (self);
  plan_lower_free (self, input_of_layer (self, unit));
}

/* --- the two losses --------------------------------------------------------------------------- */

void
plan_lower_module_loss_forward (PlanLower *self)
{
  const gint64 own = own_elements (self);
  const PlanRef from[] = { OF (decoded), OF (normed) };
  plan_lower_await_role (self, PLAN_TENSOR_MTP_FINAL_NORM);
  plan_lower_alloc (self, OF (normed));
  plan_lower_alloc (self, KEPT (stats, 1));
  plan_lower_norm (self, OF (normed), KEPT (stats, 1), output_of_layer (self, unit_of_layer (self)),
                   PLAN_TENSOR_MTP_FINAL_NORM, PLAN_N_TENSORS, PLAN_N_TENSORS, PLAN_NO_UNIT,
                   self->sizes->split_rows);
  for (gint32 head = 0; head < 2; head++)
    {
      plan_lower_alloc (self, KEPT (norm, head));
      copy (self, KEPT (norm, head), from[head], own);
    }
  plan_lower_free (self, OF (normed));
  for (self->head.index = 1; self->head.index >= 0; self->head.index--)
    plan_lower_loss_forward (self);
  self->head.index = 0;
}

/* Backward pass from both losses to the gradients of the module layer's output and of the final
 * norm's output. */
void
plan_lower_module_loss_backward (PlanLower *self)
{
  const PlanLowerUnit unit = unit_of_layer (self);
  const PlanRef to[] = { OF (ddecoded), OF (dnormed) }, x = output_of_layer (self, unit);
  const PlanRef dx = plan_lower_layer_gradient (self, unit, 1);
  for (self->head.index = 0; self->head.index < 2; self->head.index++)
    plan_lower_loss_backward (self);
  self->head.index = 0;
  for (gint32 head = 0; head < 2; head++)
    {
      plan_lower_alloc (self, to[head]);
      copy (self, to[head], OF_HEAD (dnorm, head), own_elements (self));
    }
  for (gint32 head = 0; head < 2; head++)
    plan_lower_free (self, OF_HEAD (dnorm, head));
  plan_lower_alloc (self, dx);
  plan_lower_norm_backward (self, dx, OF (dnormed), x, KEPT (stats, 1), PLAN_TENSOR_MTP_FINAL_NORM,
                            PLAN_N_TENSORS, PLAN_NO_UNIT, self->sizes->split_rows);
  plan_lower_free (self, OF (dnormed));
  plan_lower_free (self, KEPT (stats, 1));
  plan_lower_free (self, x);
}

/* --- after its layer's backward pass ---------------------------------------------------------- */

void
plan_lower_replay_module (PlanLower *self, PlanLowerUnit unit)
{
  if (self->module.recomputes)
    project (self, input_of_layer (self, unit));
}

/* The gradient of this rank's columns of the projection, for all tokens. */
static PlanRef
part_gradient (PlanLower *self, PlanRef dx)
{
  const gint64 whole = self->sizes->rows * self->model->hidden;
  if (!splits (self))
    return dx;
  plan_lower_alloc (self, OF (projected));
  plan_lower_exchange (self, PLAN_OP_ALL_GATHER, PLAN_REFS (OF (projected), dx),
                       own_elements (self));
  plan_lower_free (self, dx);
  plan_lower_alloc (self, OF (part));
  copy (self, OF (part), OF (projected), whole / self->plan->value[PLAN_TP]);
  plan_lower_free (self, OF (projected));
  return OF (part);
}

static void
project_backward (PlanLower *self, PlanRef dx)
{
  const gint64 cols = self->model->hidden / self->plan->value[PLAN_TP];
  const gint64 depth = 2 * self->model->hidden;
  const gboolean is_split = splits (self);
  const PlanRef dpart = part_gradient (self, dx);
  const PlanRef djoined = is_split ? OF (djoined_full) : OF (djoined);
  if (is_split)
    gather_joined (self);
  plan_lower_alloc (self, djoined);
  plan_lower_compute (self, PLAN_OP_GEMM,
                      PLAN_REFS (djoined, dpart,
                                 plan_lower_weight (self, PLAN_TENSOR_MTP_PROJ, PLAN_NO_UNIT),
                                 PLAN_REF_NONE),
                      PLAN_DIMS (self->sizes->rows, depth, cols, 0));
  if (is_split)
    {
      plan_lower_alloc (self, OF (djoined));
      plan_lower_exchange (self, PLAN_OP_REDUCE_SCATTER, PLAN_REFS (OF (djoined), djoined),
                           2 * own_elements (self));
      plan_lower_free (self, djoined);
    }
  plan_lower_weight_gradient (self, PLAN_TENSOR_MTP_PROJ, PLAN_NO_UNIT, dpart,
                              is_split ? OF (joined_full) : OF (joined), self->sizes->rows, cols,
                              depth, 2);
  plan_lower_free (self, dpart);
  if (is_split)
    plan_lower_free (self, OF (joined_full));
}

/* Backward pass of one of the two norms, from its half of the joined gradient. */
static void
part_backward (PlanLower *self, guint i, PlanRef din, PlanRef in)
{
  const guint64 at = i * (guint64)own_elements (self);
  plan_lower_alloc (self, OF (dnorm[i]));
  copy (self, OF (dnorm[i]), plan_lower_at (OF (djoined), at), own_elements (self));
  plan_lower_alloc (self, din);
  plan_lower_norm_backward (self, din, OF (dnorm[i]), in, OF (stats[i]), norms[i], PLAN_N_TENSORS,
                            PLAN_NO_UNIT, self->sizes->split_rows);
  plan_lower_free (self, OF (dnorm[i]));
}

/* One share of the embedding's gradient. The other one is added when the pass ends. */
static void
embed_backward (PlanLower *self)
{
  const PlanRef dx = OF (dshare), whole = OF (table);
  if (splits (self))
    {
      plan_lower_alloc (self, whole);
      plan_lower_exchange (self, PLAN_OP_ALL_GATHER, PLAN_REFS (whole, dx), own_elements (self));
      plan_lower_free (self, dx);
    }
  plan_lower_embed_backward (self, splits (self) ? whole : dx, FALSE);
}

void
plan_lower_end_module (PlanLower *self, PlanLowerUnit unit)
{
  const PlanRef x = plan_lower_output (self), dx = plan_lower_output_gradient (self);
  project_backward (self, plan_lower_layer_gradient (self, unit, 0));
  part_backward (self, DECODED, OF (dshare), OF (decoded));
  plan_lower_compute (self, PLAN_OP_ACCUMULATE, PLAN_REFS (OF (ddecoded), OF (dshare)),
                      PLAN_DIMS (own_elements (self)));
  plan_lower_free (self, OF (dshare));
  plan_lower_free (self, OF (decoded));
  part_backward (self, EMBEDDED, OF (dshare), OF (embedded));
  plan_lower_free (self, OF (embedded));
  plan_lower_free (self, OF (djoined));
  drop_joined (self);
  embed_backward (self);
  plan_lower_alloc (self, dx);
  plan_lower_norm_backward (self, dx, OF (ddecoded), x, KEPT (stats, 0), PLAN_TENSOR_FINAL_NORM,
                            self->params.final_norm_bias, PLAN_NO_UNIT, self->sizes->split_rows);
  plan_lower_free (self, OF (ddecoded));
  plan_lower_free (self, KEPT (stats, 0));
  plan_lower_free (self, x);
}
