/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/lower-private.h"

static gint32
buffer (PlanLower *self, const char *name, gint64 count, guint64 elements, PlanDtype dtype,
        PlanCategory category)
{
  return plan_schedule_add_buffer (self->schedule, name, (guint32)count, elements, dtype, category);
}

static const char *const bucket_suffix[PLAN_N_BUCKETS] = { ".embed", ".head", ".layer" };

static gint32
state (PlanLower *self, PlanBucketKind kind, const char *what, guint64 elements, PlanDtype dtype,
       PlanCategory category)
{
  g_autofree char *name = g_strconcat (what, bucket_suffix[kind], NULL);
  return buffer (self, name, self->layout.buckets[kind].units, elements, dtype, category);
}

static gint32
event (PlanLower *self, PlanBucketKind kind, const char *what)
{
  g_autofree char *name = g_strconcat (what, bucket_suffix[kind], NULL);
  return plan_schedule_add_event (self->schedule, name, (guint32)self->layout.buckets[kind].units);
}

/* Buffers and events of one bucket kind. */
static void
declare_bucket (PlanLower *self, PlanBucketKind kind)
{
  const PlanBucket *layout = &self->layout.buckets[kind];
  PlanLowerBucket *b = &self->bucket[kind];
  const guint64 full = layout->padded, part = full / self->layout.shards;
  const guint64 optimizer = self->shards_optimizer ? part : full;
  *b = (PlanLowerBucket){ .shard = -1, .bucket = -1, .cast = -1, .gathered = -1, .reduced = -1 };
  b->weights = state (self, kind, "weights", full, self->compute,
                      self->shards_weights ? PLAN_CATEGORY_GATHERED : PLAN_CATEGORY_WEIGHTS);
  if (self->shards_weights)
    b->shard = state (self, kind, "shard", part, self->compute, PLAN_CATEGORY_WEIGHTS);
  b->main = state (self, kind, "main", optimizer, PLAN_DTYPE_FP32, PLAN_CATEGORY_MAIN_PARAMS);
  b->exp_avg = state (self, kind, "exp_avg", optimizer, PLAN_DTYPE_FP32, PLAN_CATEGORY_OPTIMIZER);
  b->exp_avg_sq
      = state (self, kind, "exp_avg_sq", optimizer, PLAN_DTYPE_FP32, PLAN_CATEGORY_OPTIMIZER);
  b->grads = state (self, kind, "grads", self->shards_grads ? part : full, self->main_grads,
                    PLAN_CATEGORY_MAIN_GRADS);
  if (self->stack->casts_grads && self->main_grads != PLAN_DTYPE_FP32)
    b->cast
        = state (self, kind, "cast_grads", optimizer, PLAN_DTYPE_FP32, PLAN_CATEGORY_MAIN_GRADS);
  if (self->shards_grads || (self->ranks > 1 && self->grad_comm != self->main_grads))
    b->bucket = state (self, kind, "bucket", full, self->grad_comm, PLAN_CATEGORY_GRAD_BUCKETS);
  if (self->shards_optimizer)
    b->gathered = event (self, kind, "gathered");
  if (self->ranks > 1)
    b->reduced = event (self, kind, "reduced");
}

static void
declare_activations (PlanLower *self)
{
  const gint64 layers = self->model->layers;
  const guint64 rows = (guint64)self->rows, hidden = (guint64)self->model->hidden;
  const guint64 ffn = (guint64)self->model->ffn, logits = rows * (guint64)self->vocab;
  const guint64 qkv = rows * (guint64)self->qkv_cols, attn = rows * (guint64)self->attention_cols;
  const struct
  {
    gint32 *array;
    const char *name;
    gint64 count;
    guint64 elements;
    PlanDtype dtype;
    PlanCategory category;
  } table[] = {
    { &self->x, "x", layers + 1, rows * hidden, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->norm1, "norm1", layers, rows * hidden, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->rstd1, "rstd1", layers, rows, PLAN_DTYPE_FP32, PLAN_CATEGORY_ACTIVATIONS },
    { &self->qkv, "qkv", layers, qkv, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->attn, "attn", layers, attn, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->lse, "lse", layers, rows * (guint64)self->model->heads, PLAN_DTYPE_FP32,
      PLAN_CATEGORY_ACTIVATIONS },
    { &self->hidden2, "hidden2", layers, rows * hidden, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->norm2, "norm2", layers, rows * hidden, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->rstd2, "rstd2", layers, rows, PLAN_DTYPE_FP32, PLAN_CATEGORY_ACTIVATIONS },
    { &self->gate_up, "gate_up", layers, 2 * rows * ffn, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->act, "act", layers, rows * ffn, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->branch, "branch", 1, rows * hidden, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->norm_final, "norm_final", 1, rows * hidden, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->rstd_final, "rstd_final", 1, rows, PLAN_DTYPE_FP32, PLAN_CATEGORY_ACTIVATIONS },
    { &self->logits, "logits", 1, logits, self->compute, PLAN_CATEGORY_LOSS },
    { &self->prob, "prob", 1, logits, PLAN_DTYPE_FP32, PLAN_CATEGORY_LOSS },
    { &self->dlogits, "dlogits", 1, logits, self->compute, PLAN_CATEGORY_LOSS },
    { &self->dx, "dx", layers + 1, rows * hidden, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->dnorm, "dnorm", 1, rows * hidden, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->dbranch, "dbranch", 1, rows * hidden, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->dhidden, "dhidden", 1, rows * hidden, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->dact, "dact", 1, rows * ffn, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->dgate_up, "dgate_up", 1, 2 * rows * ffn, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->dattn, "dattn", 1, attn, self->compute, PLAN_CATEGORY_ACTIVATIONS },
    { &self->dqkv, "dqkv", 1, qkv, self->compute, PLAN_CATEGORY_ACTIVATIONS },
  };
  for (guint i = 0; i < G_N_ELEMENTS (table); i++)
    *table[i].array = buffer (self, table[i].name, table[i].count, table[i].elements,
                              table[i].dtype, table[i].category);
  self->image = self->stack->separate_loss_image
                    ? buffer (self, "loss_image", 1, logits, PLAN_DTYPE_FP32, PLAN_CATEGORY_LOSS)
                    : -1;
}

/* Raw gradients, small state and what a batch needs. */
static void
declare_rest (PlanLower *self)
{
  const guint64 rows = (guint64)self->rows, sums = 2 * PLAN_EXACT_LIMBS;
  for (PlanTensorRole role = 0; role < PLAN_N_TENSORS; role++)
    {
      const PlanSlot *slot = plan_layout_slot (&self->layout, role);
      self->raw[role] = -1;
      if (slot)
        {
          g_autofree char *name = g_strconcat ("raw.", slot->tensor.name, NULL);
          self->raw[role] = buffer (self, name, 1, slot->tensor.rows * slot->tensor.cols,
                                    self->compute, PLAN_CATEGORY_GRAD_BUCKETS);
        }
    }
  if (self->raw[PLAN_TENSOR_OUTPUT] < 0) /* tied: the head's share of the embedding's gradient */
    self->raw[PLAN_TENSOR_OUTPUT]
        = buffer (self, "raw.output", 1, (guint64)(self->vocab * self->model->hidden),
                  self->compute, PLAN_CATEGORY_GRAD_BUCKETS);
  self->tokens = buffer (self, "tokens", 1, rows, PLAN_DTYPE_I32, PLAN_CATEGORY_WORKSPACE);
  self->targets = buffer (self, "targets", 1, rows, PLAN_DTYPE_I32, PLAN_CATEGORY_WORKSPACE);
  self->sums = buffer (self, "sums", 1, sums, PLAN_DTYPE_I64, PLAN_CATEGORY_WORKSPACE);
  self->all_sums = self->ranks > 1 ? buffer (self, "all_sums", 1, sums * (guint64)self->ranks,
                                             PLAN_DTYPE_I64, PLAN_CATEGORY_WORKSPACE)
                                   : self->sums;
  self->coef = buffer (self, "coef", 1, 4, PLAN_DTYPE_FP32, PLAN_CATEGORY_WORKSPACE);
  const gboolean is_cpu = self->cluster->kind == PLAN_DEVICE_CPU;
  self->scratch = self->stack->needs_kernel_scratch && is_cpu
                      ? buffer (self, "scratch", 1, 0, PLAN_DTYPE_FP32, PLAN_CATEGORY_WORKSPACE)
                      : -1;
  /* What cuDNN's fused backward pass wants on Hopper (9.19, its own figures for six shapes): the
   * gradient of q in fp32, a sum per row, and in bf16 those of k and v for every query head where
   * heads are grouped. */
  const guint64 heads_rows = rows * (guint64)self->model->heads;
  const guint64 copies = self->model->heads > self->model->kv_heads ? 2 : 1;
  self->attention_work = is_cpu
                             ? -1
                             : buffer (self, "attention_work", 1,
                                       heads_rows * (1 + copies * (guint64)self->model->head_dim),
                                       PLAN_DTYPE_FP32, PLAN_CATEGORY_WORKSPACE);
}

static void
measure (PlanLower *self, guint rank)
{
  const Plan *plan = self->plan;
  const gint64 strategy = plan->value[PLAN_STRATEGY];
  self->ranks = plan_data_parallel (plan, self->cluster);
  self->rank = rank;
  self->micro_batches = plan_micro_batches (plan, self->cluster);
  self->rows = plan->value[PLAN_MBS] * plan->value[PLAN_SEQ];
  self->vocab = plan_stack_padded_vocab (self->stack, self->model->vocab, plan->value[PLAN_TP]);
  self->attention_cols = self->model->heads * self->model->head_dim;
  self->qkv_cols = self->attention_cols + 2 * self->model->kv_heads * self->model->head_dim;
  self->compute = plan_field_dtype (plan, PLAN_COMPUTE);
  self->main_grads = plan_field_dtype (plan, PLAN_MAIN_GRADS);
  self->grad_comm = plan_field_dtype (plan, PLAN_GRAD_COMM);
  plan_layout_init (&self->layout, self->model, self->stack, plan, self->ranks);

  /* A group of one shards nothing. */
  self->shards_optimizer = self->ranks > 1 && strategy >= PLAN_STRATEGY_OPTIM;
  self->shards_grads = self->ranks > 1 && strategy >= PLAN_STRATEGY_OPTIM_GRADS;
  self->shards_weights = self->ranks > 1 && strategy >= PLAN_STRATEGY_OPTIM_GRADS_PARAMS;

  /* `auto` looks at parameters, the queues count padding too: two units never fit exactly. */
  const PlanBucket *layer = &self->layout.buckets[PLAN_BUCKET_LAYER];
  const gint64 unit = (gint64)layer->padded;
  self->comm_unit = plan->value[PLAN_COMM_UNIT] != PLAN_UNSET
                        ? plan->value[PLAN_COMM_UNIT]
                        : MAX (self->stack->comm_unit_floor, 2 * (gint64)layer->raw);
  self->prefetch = MIN ((self->comm_unit / 2 + unit - 1) / unit, self->model->layers - 1);
}

/* Micro batches differ only where gradients are reduced once per step: then the last one does. */
static void
lower_micro_batches (PlanLower *self)
{
  const gboolean last_differs = self->ranks > 1 && !self->shards_grads;
  const gint64 alike = self->micro_batches - (last_differs ? 1 : 0);
  if (alike > 1)
    {
      plan_schedule_begin_repeat (self->schedule, "m", 0, alike, 1);
      self->depth++;
    }
  if (alike > 0)
    {
      plan_lower_forward (self);
      plan_lower_backward (self, !last_differs);
    }
  if (alike > 1)
    {
      plan_schedule_end_repeat (self->schedule);
      self->depth--;
    }
  if (last_differs)
    {
      plan_lower_forward (self);
      plan_lower_backward (self, TRUE);
    }
}

PlanSchedule *
plan_lower (const PlanModel *model, const PlanCluster *cluster, const Plan *plan, guint rank,
            GError **error)
{
  PlanLower self = { .model = model, .cluster = cluster, .plan = plan };
  self.stack = plan_stack_of (plan, cluster->kind, error);
  if (!self.stack)
    return NULL;
  measure (&self, rank);
  g_return_val_if_fail (rank < self.ranks, NULL);

  g_autoptr (PlanSchedule) schedule = plan_schedule_new (rank, (guint)self.ranks);
  self.schedule = schedule;
  for (PlanBucketKind kind = 0; kind < PLAN_N_BUCKETS; kind++)
    declare_bucket (&self, kind);
  declare_rest (&self);
  declare_activations (&self);
  self.done = plan_schedule_add_event (schedule, "done", 1);

  plan_schedule_begin_section (schedule, PLAN_SECTION_SETUP);
  plan_lower_setup (&self);
  plan_schedule_begin_section (schedule, PLAN_SECTION_STEP);
  plan_lower_begin_step (&self);
  lower_micro_batches (&self);
  plan_lower_end_step (&self);
  plan_schedule_begin_section (schedule, PLAN_SECTION_TEARDOWN);
  plan_lower_teardown (&self);
  if (self.scratch >= 0)
    plan_schedule_resize_buffer (schedule, (guint)self.scratch, self.scratch_elements);
  if (g_getenv ("FSDPLAN_DEBUG_CHECK") && !plan_schedule_check (schedule, error))
    return NULL;
  return g_steal_pointer (&schedule);
}
