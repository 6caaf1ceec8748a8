/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a run, by parameter: where a parameter lies in this rank's shards, its initial
 * values, and what is saved of it. */
#include "config.h"

#include "exec/walk/walk-update.h"

#include "exec/number/number.h"
#include "exec/walk/source.h"
#include "planner/layout/slice.h"
#include "planner/schedule/quantizers.h"

#include <string.h>

/* Elements that are made or read at once. */
#define BLOCK (G_GUINT64_CONSTANT (1) << 20)

/* How many of a shard's first elements have this state on the host. */
static guint64
hosted (const ExecShard *shard, ExecState state)
{
  return state == EXEC_STATE_MAIN ? 0 : shard->hosted;
}

gboolean
exec_walk_is_on_host (const ExecShard *shard, ExecState state, guint64 element, guint64 *io_count)
{
  const guint64 end = hosted (shard, state);
  if (element < end)
    *io_count = MIN (*io_count, end - element);
  return element < end;
}

guint8 *
exec_walk_state (const ExecWalk *self, const ExecShard *shard, ExecState state, guint64 element)
{
  const guint64 before = hosted (shard, state);
  const PlanDtype dtype = shard->state[state].dtype;
  if (element < before)
    return self->tags[shard->state[state].host].bytes + plan_dtype_bytes (dtype, element);
  return self->tags[shard->state[state].buffer].bytes
         + plan_dtype_bytes (dtype, shard->state[state].at + element - before);
}

gboolean
exec_walk_part_of (const ExecShard *shard, const PlanSlot *slot, guint64 *out_at,
                   guint64 *out_count, guint64 *out_first)
{
  const guint64 end = slot->offset + slot->tensor.rows * slot->tensor.cols;
  const guint64 from = MAX (shard->first, slot->offset);
  const guint64 to = MIN (shard->first + shard->count, end);
  if (from >= to)
    return FALSE;
  *out_at = from - shard->first;
  *out_count = to - from;
  *out_first = from - slot->offset;
  return TRUE;
}

/* Which part of the whole parameter a slot of this rank holds: its part of its experts, or its
 * slice of the tensor-parallel group. */
static PlanSlice
slice_of (const ExecWalk *self, const PlanSlot *slot)
{
  const PlanBucketRule *rule = &self->part.layout.rule;
  const gboolean is_of_experts = slot->tensor.part == PLAN_PART_EXPERTS;
  return plan_slice_of (&self->part.model, slot->tensor.role, rule,
                        self->part.place % (is_of_experts ? rule->ep * rule->etp : rule->tp));
}

gboolean
exec_walk_read_part (const ExecWalk *self, ExecState state, const PlanSlot *slot, gint64 layer,
                     guint64 first, guint64 count, float *out, GError **error)
{
  const PlanSlice slice = slice_of (self, slot);
  const PlanTensorRole role = exec_part_is_copy (&self->part, slot->tensor.role)
                                  ? PLAN_TENSOR_EMBEDDING
                                  : slot->tensor.role;
  for (guint64 done = 0, n, at; done < count; done += n)
    {
      n = MIN (plan_slice_run (&slice, first + done, &at), count - done);
      if (!exec_source_state (self->job, state, role, layer, at, n, out + done, error))
        return FALSE;
    }
  return TRUE;
}

/* Reads initial values of one state of a shard, `count` from element `begin` on; padding is 0. */
static gboolean
read_source (const ExecWalk *self, const ExecShard *shard, const GArray *slots, ExecState state,
             guint64 begin, guint64 count, float *out, GError **error)
{
  const guint64 end = begin + count;
  memset (out, 0, count * sizeof *out);
  for (guint s = 0; s < slots->len; s++)
    {
      const PlanSlot *slot = &g_array_index (slots, PlanSlot, s);
      guint64 at, n, first;
      if (!exec_walk_part_of (shard, slot, &at, &n, &first) || at >= end || at + n <= begin)
        continue;
      const guint64 from = MAX (at, begin), to = MIN (at + n, end);
      if (!exec_walk_read_part (
              self, state, slot,
              exec_part_layer (&self->part, shard->kind, shard->unit + slot->layer),
              first + from - at, to - from, out + from - begin, error))
        return FALSE;
    }
  return TRUE;
}

/* Fills one state of a shard with initial values. */
static gboolean
fill (const ExecWalk *self, const ExecShard *shard, ExecState state, GError **error)
{
  g_autoptr (GArray) slots = plan_layout_slots (&self->part.layout, &self->buckets, shard->kind);
  const PlanDtype dtype = shard->state[state].dtype;
  if (dtype == PLAN_DTYPE_E4M3)
    return exec_walk_fill_scaled (self, shard, state, error);
  g_autofree float *values = g_new (float, BLOCK);
  g_autofree guint8 *narrow = g_malloc (plan_dtype_bytes (dtype, BLOCK));
  for (guint64 at = 0, n; at < shard->count; at += n)
    {
      n = MIN (BLOCK, shard->count - at);
      const gboolean is_host = exec_walk_is_on_host (shard, state, at, &n);
      guint8 *to = exec_walk_state (self, shard, state, at);
      if (!read_source (self, shard, slots, state, at, n, values, error))
        return FALSE;
      exec_number_narrow (is_host ? to : narrow, dtype, values, n);
      if (!is_host
          && !exec_device_write (self->device, to, narrow, plan_dtype_bytes (dtype, n), error))
        return FALSE;
    }
  return TRUE;
}

gboolean
exec_walk_init_shard (ExecWalk *self, const PlanCursor *cursor, const ExecArgs *args,
                      GError **error)
{
  const PlanOp *op = args->op;
  const guint64 shards = (guint64)op->dims[PLAN_DIM_INIT_shards];
  const guint64 part = self->part.layout.buckets[op->dims[PLAN_DIM_INIT_bucket]].padded / shards;
  /* Ranks that have different parameters of one kind (or parts of them) follow one another, so this
   * many ranks in a row hold the same shard of a bucket. */
  const PlanBucketRule *rule = &self->part.layout.rule;
  const guint64 each = plan_bucket_is_of_experts ((PlanBucketKind)op->dims[PLAN_DIM_INIT_bucket])
                           ? rule->ep * rule->etp
                           : rule->tp;
  ExecShard shard = { .kind = (PlanBucketKind)op->dims[PLAN_DIM_INIT_bucket],
                      .unit = MAX (plan_cursor_unit (cursor, op), 0),
                      .first = part * (guint64)op->dims[PLAN_DIM_INIT_shard],
                      .count = part,
                      .is_owner = self->part.place / each < shards };
  shard.state[EXEC_STATE_MAIN].exists = TRUE;
  shard.state[EXEC_STATE_MAIN].buffer = plan_cursor_buffer (cursor, &op->refs[PLAN_REF_INIT_out]);
  shard.state[EXEC_STATE_MAIN].dtype = args->dtype[PLAN_REF_INIT_out];
  shard.state[EXEC_STATE_MAIN].at = op->refs[PLAN_REF_INIT_out].at;
  g_array_append_val (self->shards, shard);
  if (!self->trained)
    return fill (self, &shard, EXEC_STATE_MAIN, error);
  const ExecShard *trained
      = &g_array_index (self->trained->shards, ExecShard, self->shards->len - 1);
  g_assert (trained->first == shard.first && trained->count == shard.count
            && trained->state[EXEC_STATE_MAIN].dtype == args->dtype[PLAN_REF_INIT_out]);
  return self->device->ops->copy (self->device, args->ptr[PLAN_REF_INIT_out],
                                  exec_walk_state (self->trained, trained, EXEC_STATE_MAIN, 0),
                                  plan_dtype_bytes (args->dtype[PLAN_REF_INIT_out], part),
                                  op->stream, error);
}

static void
set_moment (const ExecWalk *self, const PlanCursor *cursor, const PlanOp *op, guint i,
            ExecShard *shard, ExecState state)
{
  const PlanRef *ref = &op->refs[i];
  shard->state[state].exists = TRUE;
  shard->state[state].dtype = plan_schedule_buffer (self->schedule, (guint)ref->array)->dtype;
  if (op->kind == PLAN_OP_ADAMW_HOST)
    {
      shard->state[state].host = plan_cursor_buffer (cursor, ref);
      return;
    }
  shard->state[state].buffer = plan_cursor_buffer (cursor, ref);
  shard->state[state].at = ref->at;
}

G_STATIC_ASSERT ((int)PLAN_REF_ADAMW_main == (int)PLAN_REF_SGD_main);
G_STATIC_ASSERT ((int)PLAN_REF_ADAMW_exp_avg == (int)PLAN_REF_SGD_momentum);

/* Finds the weights that the host has, too, by the copies that give it its first ones. */
static void
find_hosted (ExecWalk *self)
{
  PlanCursor cursor;
  const PlanOp *op;
  plan_cursor_start (&cursor, self->schedule, PLAN_SECTION_SETUP);
  while ((op = plan_cursor_next (&cursor)))
    for (guint i = 0; op->kind == PLAN_OP_COPY && i < self->shards->len; i++)
      {
        ExecShard *shard = &g_array_index (self->shards, ExecShard, i);
        if (shard->state[EXEC_STATE_MAIN].buffer
                != plan_cursor_buffer (&cursor, &op->refs[PLAN_REF_COPY_in])
            || shard->state[EXEC_STATE_MAIN].at != op->refs[PLAN_REF_COPY_in].at)
          continue;
        shard->state[EXEC_STATE_MAIN].host
            = plan_cursor_buffer (&cursor, &op->refs[PLAN_REF_COPY_out]);
        shard->hosted = (guint64)op->dims[PLAN_DIM_COPY_count];
      }
}

/* Finds the moments of each shard by the optimizer's ops, which name them beside the main
 * weights. */
gboolean
exec_walk_find_moments (ExecWalk *self, GError **error)
{
  PlanCursor cursor;
  const PlanOp *op;
  guint n_scales = 0;
  find_hosted (self);
  plan_cursor_start (&cursor, self->schedule, PLAN_SECTION_STEP);
  while ((op = plan_cursor_next (&cursor)))
    {
      const gboolean is_adam = op->kind == PLAN_OP_ADAMW || op->kind == PLAN_OP_ADAMW_HOST;
      guint64 first;
      ExecShard *shard = is_adam || op->kind == PLAN_OP_SGD
                             ? exec_walk_updated_shard (self, &cursor, op, &first)
                             : NULL;
      if (!shard)
        continue;
      set_moment (self, &cursor, op, PLAN_REF_ADAMW_exp_avg, shard, EXEC_STATE_EXP_AVG);
      if (is_adam)
        set_moment (self, &cursor, op, PLAN_REF_ADAMW_exp_avg_sq, shard, EXEC_STATE_EXP_AVG_SQ);
      if (!exec_walk_take_moment_scales (self, shard, &n_scales, error))
        return FALSE;
    }
  return TRUE;
}

gboolean
exec_walk_restore_moments (ExecWalk *self, GError **error)
{
  for (guint i = 0; self->job->resume && i < self->shards->len; i++)
    {
      const ExecShard *shard = &g_array_index (self->shards, ExecShard, i);
      for (ExecState state = EXEC_STATE_EXP_AVG; state < EXEC_N_STATES; state++)
        if (shard->state[state].exists && !fill (self, shard, state, error))
          return FALSE;
    }
  return TRUE;
}

/* Whether a parameter is saved by another rank that has the same values: the first of the
 * tensor-parallel group, or of those that split an expert, or, for a tied embedding, a rank of the
 * first stage. */
static gboolean
is_saved_elsewhere (const ExecWalk *self, const PlanSlot *slot)
{
  const PlanBucketRule *rule = &self->part.layout.rule;
  const PlanTensor whole = plan_model_tensor (&self->part.model, slot->tensor.role, rule->vocab);
  const PlanTensor part = plan_buckets_part (&self->part.model, slot->tensor.role, rule);
  const guint64 parts = slot->tensor.part == PLAN_PART_EXPERTS ? rule->etp : rule->tp;
  if (exec_part_is_copy (&self->part, slot->tensor.role))
    return TRUE;
  return self->part.place % parts > 0 && part.rows == whole.rows && part.cols == whole.cols;
}

/* Cuts elements of this rank's part of a parameter, from `first` on, into pieces that are
 * contiguous or regular in the whole parameter. Rows that pad the vocabulary are left out. */
static void
divide (const ExecWalk *self, const PlanSlot *slot, guint64 first, ExecPiece all, GArray *pieces)
{
  const PlanSlice slice = slice_of (self, slot);
  const guint64 exist = exec_source_elements (self->of->model, slot->tensor.role);
  for (guint64 done = 0; done < all.count;)
    {
      ExecPiece piece = all;
      const guint64 left = all.count - done, cols = slice.cols;
      piece.count = MIN (plan_slice_run (&slice, first + done, &piece.first), left);
      piece.data = (const guint8 *)all.data + plan_dtype_bytes (all.dtype, done);
      if (cols < slice.whole_cols && (first + done) % cols == 0 && left >= cols)
        {
          piece.count = left / cols * cols;
          piece.run = cols;
          piece.stride = slice.whole_cols;
        }
      done += piece.count;
      if (piece.first >= exist)
        continue;
      if (piece.run == 0)
        piece.count = MIN (piece.count, exist - piece.first);
      g_array_append_val (pieces, piece);
    }
}

/* Adds the pieces of what a slot has of one state of a shard, from element `at` of the shard on:
 * those on the device apart from those on the host. Moments in eight bits are saved as fp32;
 * `widened` owns those copies. */
static gboolean
add_slot (const ExecWalk *self, const ExecShard *shard, guint64 at, const GArray *slots, guint s,
          guint64 first, const ExecPiece *whole, GArray *pieces, GPtrArray *widened, GError **error)
{
  ExecPiece piece = *whole;
  for (guint64 done = 0; done < whole->count; done += piece.count)
    {
      piece = *whole;
      piece.count -= done;
      piece.is_on_host = exec_walk_is_on_host (shard, piece.state, at + done, &piece.count);
      piece.data = exec_walk_state (self, shard, piece.state, at + done);
      if (piece.dtype == PLAN_DTYPE_E4M3)
        {
          piece.dtype = PLAN_DTYPE_FP32;
          piece.is_on_host = TRUE;
          piece.data = exec_walk_widen_scaled (self, shard, piece.state, s, at, piece.count, error);
          if (!piece.data)
            return FALSE;
          g_ptr_array_add (widened, (gpointer)piece.data);
        }
      divide (self, &g_array_index (slots, PlanSlot, s), first + done, piece, pieces);
    }
  return TRUE;
}

static gboolean
add_pieces (const ExecWalk *self, const ExecShard *shard, ExecState state, GArray *pieces,
            GPtrArray *widened, GError **error)
{
  g_autoptr (GArray) slots = plan_layout_slots (&self->part.layout, &self->buckets, shard->kind);
  for (guint s = 0; s < slots->len; s++)
    {
      const PlanSlot *slot = &g_array_index (slots, PlanSlot, s);
      guint64 at, first;
      ExecPiece piece
          = { .state = state,
              .role = slot->tensor.role,
              .layer = exec_part_layer (&self->part, shard->kind, shard->unit + slot->layer),
              .dtype = shard->state[state].dtype };
      if (is_saved_elsewhere (self, slot)
          || !exec_walk_part_of (shard, slot, &at, &piece.count, &first))
        continue;
      if (!add_slot (self, shard, at, slots, s, first, &piece, pieces, widened, error))
        return FALSE;
    }
  return TRUE;
}

static gboolean
fetch (gpointer device, void *out, const void *from, guint64 bytes, GError **error)
{
  return exec_device_read (device, out, from, bytes, error);
}

/* --- sites of delayed fp8 scaling --------------------------------------------------------- */

/* The piece that saves a state of the sites of one product of a layer of this stage, and in
 * `out_at` where it lies in the array of all its sites. */
static ExecPiece
site_piece (const ExecWalk *self, ExecState state, gint64 layer, guint product, guint64 *out_at)
{
  const guint64 each = state == EXEC_STATE_HISTORY ? PLAN_QUANTIZER_HISTORY : 1;
  const PlanModel *model = self->of->model;
  const PlanTensorRole role = plan_quantizer_weight (model, product);
  *out_at = ((guint64)layer * plan_quantizers_of_layer (model) + plan_quantizer_of (model, role, 0))
            * each;
  return (ExecPiece){ .state = state,
                      .role = role,
                      .layer = exec_part_layer (&self->part, PLAN_BUCKET_LAYER, layer),
                      .count = PLAN_QUANTIZERS_OF_PRODUCT * each,
                      .dtype = PLAN_DTYPE_FP32 };
}

/* An array of fp32 that holds state of all layers of this stage. */
static float *
sites_at (const ExecWalk *self, gint32 array)
{
  const guint32 id = plan_schedule_buffer (self->schedule, (guint)array)->first;
  return (float *)(gpointer)self->tags[id].bytes;
}

static gboolean
fill_sites (const ExecWalk *self, ExecState state, float *sites, GError **error)
{
  g_autofree float *values = g_new (float, PLAN_QUANTIZERS_OF_PRODUCT *PLAN_QUANTIZER_HISTORY);
  for (gint64 layer = 0; layer < self->part.stage.layers; layer++)
    for (guint product = 0; product < plan_quantizer_products (self->of->model); product++)
      {
        guint64 at;
        const ExecPiece piece = site_piece (self, state, layer, product, &at);
        if (!exec_source_state (self->job, state, piece.role, piece.layer, 0, piece.count, values,
                                error)
            || !exec_device_write (self->device, sites + at, values, piece.count * sizeof *values,
                                   error))
          return FALSE;
      }
  return TRUE;
}

gboolean
exec_walk_init_scales (const ExecWalk *self, const ExecArgs *args, GError **error)
{
  const ExecWalk *trained = self->trained;
  if (trained)
    return self->device->ops->copy (self->device, args->ptr[PLAN_REF_INIT_SCALES_scales],
                                    sites_at (trained, trained->sites.scales),
                                    (guint64)args->op->dims[PLAN_DIM_INIT_SCALES_count]
                                        * sizeof (float),
                                    args->op->stream, error);
  return fill_sites (self, EXEC_STATE_SCALES, args->ptr[PLAN_REF_INIT_SCALES_scales], error)
         && (!args->ptr[PLAN_REF_INIT_SCALES_history]
             || fill_sites (self, EXEC_STATE_HISTORY, args->ptr[PLAN_REF_INIT_SCALES_history],
                            error));
}

/* Adds the pieces of this stage's sites, on its first rank only, because all its ranks hold the
 * same. */
static void
add_sites (const ExecWalk *self, GArray *pieces)
{
  if (self->sites.scales < 0 || self->part.place > 0)
    return;
  for (gint64 layer = 0; layer < self->part.stage.layers; layer++)
    for (guint product = 0; product < plan_quantizer_products (self->of->model); product++)
      for (ExecState state = EXEC_STATE_SCALES; state <= EXEC_STATE_HISTORY; state++)
        {
          const gboolean is_scales = state == EXEC_STATE_SCALES;
          guint64 at;
          ExecPiece piece = site_piece (self, state, layer, product, &at);
          piece.data = sites_at (self, is_scales ? self->sites.scales : self->sites.history) + at;
          g_array_append_val (pieces, piece);
        }
}

/* --- biases of routers -------------------------------------------------------------------- */

/* The piece that saves the biases of a layer of this stage, and in `out_at` where they lie in the
 * array of all its layers. A count of 0: the layer has no experts. */
static ExecPiece
balance_piece (const ExecWalk *self, gint64 layer, guint64 *out_at)
{
  const gint64 whole = exec_part_layer (&self->part, PLAN_BUCKET_LAYER, layer);
  const guint64 experts = (guint64)self->of->model->experts;
  *out_at = (guint64)layer * experts;
  return (ExecPiece){ .state = EXEC_STATE_MAIN,
                      .role = PLAN_TENSOR_ROUTER_BIAS,
                      .layer = whole,
                      .count = plan_model_is_moe_layer (self->of->model, whole) ? experts : 0,
                      .dtype = PLAN_DTYPE_FP32 };
}

gboolean
exec_walk_init_balance (const ExecWalk *self, const ExecArgs *args, GError **error)
{
  const ExecWalk *trained = self->trained;
  const gint64 layers = args->op->dims[PLAN_DIM_INIT_BALANCE_layers],
               experts = args->op->dims[PLAN_DIM_INIT_BALANCE_experts];
  const guint64 bytes = (guint64)(layers * experts) * sizeof (float);
  float *out = args->ptr[PLAN_REF_INIT_BALANCE_bias];
  if (trained)
    return self->device->ops->copy (self->device, out, sites_at (trained, trained->sites.bias),
                                    bytes, args->op->stream, error);
  g_autofree float *values = g_malloc0 (bytes);
  for (gint64 layer = 0; layer < layers; layer++)
    {
      guint64 at;
      const ExecPiece piece = balance_piece (self, layer, &at);
      if (piece.count > 0
          && !exec_source_state (self->job, piece.state, piece.role, piece.layer, 0, piece.count,
                                 values + at, error))
        return FALSE;
    }
  return exec_device_write (self->device, out, values, bytes, error);
}

/* Adds the biases of this stage's routers, on its first rank only, because all its ranks hold the
 * same. */
static void
add_balance (const ExecWalk *self, GArray *pieces)
{
  for (gint64 layer = 0;
       self->sites.bias >= 0 && self->part.place == 0 && layer < self->part.stage.layers; layer++)
    {
      guint64 at;
      ExecPiece piece = balance_piece (self, layer, &at);
      piece.data = sites_at (self, self->sites.bias) + at;
      if (piece.count > 0)
        g_array_append_val (pieces, piece);
    }
}

gboolean
exec_walk_save (ExecWalk *self, gint64 steps_done, gboolean behind, GError **error)
{
  const ExecJob *job = self->job;
  g_autoptr (GArray) pieces = g_array_new (FALSE, FALSE, sizeof (ExecPiece));
  g_autoptr (GPtrArray) widened = g_ptr_array_new_with_free_func (g_free);
  if (!self->checkpoints)
    self->checkpoints = exec_checkpoint_names (job->resume, job->save);
  if (!exec_walk_finish_saving (self, error))
    return FALSE;
  const ExecCheckpointHead head = { .folder = job->save,
                                    .keep = job->keep ? job->keep : EXEC_CHECKPOINT_KEEP,
                                    .names = self->checkpoints,
                                    .step = steps_done,
                                    .tokens = exec_source_first_token (job, FALSE, steps_done),
                                    .model = job->of->model,
                                    .settings = job->settings };
  for (guint i = 0; i < self->shards->len; i++)
    {
      const ExecShard *shard = &g_array_index (self->shards, ExecShard, i);
      for (ExecState state = 0; shard->is_owner && state < EXEC_N_STATES; state++)
        if (shard->state[state].exists && !add_pieces (self, shard, state, pieces, widened, error))
          return FALSE;
    }
  add_sites (self, pieces);
  add_balance (self, pieces);
  self->saving = exec_checkpoint_begin (&head, (const ExecPiece *)(gpointer)pieces->data,
                                        pieces->len, self->device->ops->is_immediate ? NULL : fetch,
                                        self->device, behind, self->comm, error);
  return self->saving && (behind || exec_walk_finish_saving (self, error));
}

gboolean
exec_walk_finish_saving (ExecWalk *self, GError **error)
{
  return !self->saving || exec_saving_finish (g_steal_pointer (&self->saving), self->comm, error);
}

GByteArray *
exec_walk_main_params (const ExecWalk *self, GError **error)
{
  g_autoptr (GByteArray) out = g_byte_array_new ();
  for (guint i = 0; i < self->shards->len; i++)
    {
      const ExecShard *shard = &g_array_index (self->shards, ExecShard, i);
      const PlanDtype dtype = shard->state[EXEC_STATE_MAIN].dtype;
      const guint64 bytes = plan_dtype_bytes (dtype, shard->count);
      const guint begin = out->len;
      g_autofree guint8 *narrow = g_malloc (bytes);
      if (!exec_device_read (self->device, narrow,
                             exec_walk_state (self, shard, EXEC_STATE_MAIN, 0), bytes, error))
        return NULL;
      g_byte_array_set_size (out, begin + (guint)(shard->count * sizeof (float)));
      exec_number_widen ((float *)(gpointer)(out->data + begin), narrow, dtype, shard->count);
    }
  return g_steal_pointer (&out);
}
