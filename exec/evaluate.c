/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "exec/evaluate.h"

#include "exec/data.h"
#include "exec/exact.h"
#include "exec/number.h"
#include "planner/error.h"
#include "planner/scratch.h"
#include "planner/stack.h"

#include <string.h>

/* What a plan declares, in the order of the text: forward, backward, sums of gradients, update. One
 * rank is computed after another, on arrays that are never shared or reused for other things. */

typedef struct
{
  void *data;
  PlanDtype dtype;
} Array;

/* What the backward pass of a layer needs. */
typedef struct
{
  Array x, normed1, rstd1, qkv, attention, lse;
  Array middle, normed2, rstd2, gate_up, activated; /* `middle`: after the attention's residual */
} Layer;

typedef struct
{
  const PlanModel *model;
  guint ranks;
  gint64 gbs, mbs, seq, rows, micro_batches, vocab;
  gint64 qkv_width, attention_width;
  guint64 seed;
  ExecConstants constants;
  PlanDtype compute, main_format, grad, wire;
  gboolean reduces_every_micro_batch;
  GPtrArray *owned; /* memory of all arrays */
  void *scratch;
  guint64 scratch_bytes;

  /* Parameters lie one after the other; offsets are of layer 0 where there are layers. */
  guint64 parameters, offset[PLAN_N_TENSORS], layer_parameters;
  Array main_params, weights, exp_avg, exp_avg_sq, main_grad, raw;
  Array output_raw;   /* tied: the output layer's part of the table's gradient */
  Array *kept, *sent; /* per rank: accumulated here; as it travels */

  gint32 *tokens, *targets;
  Layer *layers;
  Array x, normed, rstd, logits, prob; /* the head's */
  Array branch;                        /* what a residual adds */
  Array dx, dbranch, dmiddle, dactivated, dgate_up, dattention, dqkv, dlogits;
  Array sums, coef;
} Evaluator;

static Array
new_array (Evaluator *self, PlanDtype dtype, guint64 count)
{
  Array array = { g_malloc0 (MAX (plan_dtype_bytes (dtype, count), 1)), dtype };

  g_ptr_array_add (self->owned, array.data);
  return array;
}

static Array
from_element (Array array, guint64 element)
{
  return (Array){ (guint8 *)array.data + plan_dtype_bytes (array.dtype, element), array.dtype };
}

/* Runs one kernel; scratch is added where the op wants it. */
static void
run (Evaluator *self, PlanOpKind kind, const Array *operands, const gint64 *dims)
{
  PlanOp op = { .kind = kind };
  ExecArgs args = { .op = &op, .constants = &self->constants };
  guint64 scratch = plan_scratch_elements (kind, dims, self->compute) * sizeof (float);

  memcpy (op.dims, dims, plan_op_n_dims (kind) * sizeof *dims);
  if (scratch > self->scratch_bytes)
    {
      self->scratch = g_realloc (self->scratch, scratch);
      self->scratch_bytes = scratch;
    }
  for (guint i = 0; i < plan_op_n_refs (kind); i++)
    if (plan_op_ref_access (kind, i) == 's')
      {
        args.ptr[i] = scratch > 0 ? self->scratch : NULL;
        args.dtype[i] = PLAN_DTYPE_FP32;
      }
    else if (!plan_op_ref_is_optional (kind, i))
      {
        args.ptr[i] = operands[i].data;
        args.dtype[i] = operands[i].dtype;
      }
  exec_kernels_cpu.run[kind](&args);
}

static void
zero (Evaluator *self, Array out, guint64 count)
{
  run (self, PLAN_OP_ZERO, (Array[]){ out }, (gint64[]){ (gint64)count });
}

static void
cast (Evaluator *self, Array out, Array in, guint64 count)
{
  run (self, PLAN_OP_CAST, (Array[]){ out, in }, (gint64[]){ (gint64)count });
}

static void
accumulate (Evaluator *self, Array out, Array in, guint64 count)
{
  run (self, PLAN_OP_ACCUMULATE, (Array[]){ out, in }, (gint64[]){ (gint64)count });
}

static void
add (Evaluator *self, Array out, Array a, Array b)
{
  run (self, PLAN_OP_ADD, (Array[]){ out, a, b }, (gint64[]){ self->rows * self->model->hidden });
}

static void
norm (Evaluator *self, Array out, Array rstd, Array in, Array weight)
{
  run (self, PLAN_OP_RMSNORM, (Array[]){ out, rstd, in, weight },
       (gint64[]){ self->rows, self->model->hidden });
}

static void
norm_bwd (Evaluator *self, Array din, Array dweight, Array dout, Array in, Array weight, Array rstd)
{
  run (self, PLAN_OP_RMSNORM_BWD, (Array[]){ din, dweight, dout, in, weight, rstd },
       (gint64[]){ self->rows, self->model->hidden });
}

/* out = in * weight^T for a weight of [outputs, inputs] */
static void
linear (Evaluator *self, Array out, Array in, Array weight, gint64 outputs, gint64 inputs)
{
  run (self, PLAN_OP_GEMM, (Array[]){ out, in, weight },
       (gint64[]){ self->rows, outputs, inputs, 1 });
}

/* dweight = dout^T * in and din = dout * weight */
static void
linear_bwd (Evaluator *self, Array din, Array dweight, Array dout, Array in, Array weight,
            gint64 outputs, gint64 inputs)
{
  run (self, PLAN_OP_GEMM, (Array[]){ dweight, dout, in },
       (gint64[]){ outputs, inputs, self->rows, 2 });
  run (self, PLAN_OP_GEMM, (Array[]){ din, dout, weight },
       (gint64[]){ self->rows, inputs, outputs, 0 });
}

static void
rope (Evaluator *self, Array qkv, gint64 inverse)
{
  const PlanModel *m = self->model;

  run (self, PLAN_OP_ROPE, (Array[]){ qkv },
       (gint64[]){ self->rows, self->seq, m->heads, m->kv_heads, m->head_dim, inverse });
}

static guint64
place (const Evaluator *self, PlanTensorRole role, gint64 layer)
{
  return self->offset[role] + (guint64)layer * self->layer_parameters;
}

static Array
weight_of (const Evaluator *self, PlanTensorRole role, gint64 layer)
{
  if (role == PLAN_TENSOR_OUTPUT && self->model->tied_embeddings)
    role = PLAN_TENSOR_EMBEDDING;
  return from_element (self->weights, place (self, role, layer));
}

/* Where the gradient of a parameter goes before any sum. */
static Array
raw_of (const Evaluator *self, PlanTensorRole role, gint64 layer)
{
  if (role == PLAN_TENSOR_OUTPUT && self->model->tied_embeddings)
    return self->output_raw;
  return from_element (self->raw, place (self, role, layer));
}

/* --- one micro batch of one rank ---------------------------------------------------------- */

static void
forward_layer (Evaluator *self, gint64 i, Array out)
{
  const PlanModel *m = self->model;
  const Layer *l = &self->layers[i];

  norm (self, l->normed1, l->rstd1, l->x, weight_of (self, PLAN_TENSOR_ATTENTION_NORM, i));
  linear (self, l->qkv, l->normed1, weight_of (self, PLAN_TENSOR_QKV, i), self->qkv_width,
          m->hidden);
  rope (self, l->qkv, 0);
  run (self, PLAN_OP_ATTENTION, (Array[]){ l->attention, l->lse, l->qkv },
       (gint64[]){ self->mbs, self->seq, m->heads, m->kv_heads, m->head_dim, self->seq });
  linear (self, self->branch, l->attention, weight_of (self, PLAN_TENSOR_PROJ, i), m->hidden,
          self->attention_width);
  add (self, l->middle, l->x, self->branch);

  norm (self, l->normed2, l->rstd2, l->middle, weight_of (self, PLAN_TENSOR_MLP_NORM, i));
  linear (self, l->gate_up, l->normed2, weight_of (self, PLAN_TENSOR_GATE_UP, i), 2 * m->ffn,
          m->hidden);
  run (self, PLAN_OP_SWIGLU, (Array[]){ l->activated, l->gate_up },
       (gint64[]){ self->rows, m->ffn });
  linear (self, self->branch, l->activated, weight_of (self, PLAN_TENSOR_DOWN, i), m->hidden,
          m->ffn);
  add (self, out, l->middle, self->branch);
}

static void
forward (Evaluator *self)
{
  const PlanModel *m = self->model;

  run (self, PLAN_OP_EMBED,
       (Array[]){ self->layers[0].x,
                  weight_of (self, PLAN_TENSOR_EMBEDDING, 0),
                  { self->tokens, PLAN_DTYPE_I32 } },
       (gint64[]){ self->rows, m->hidden, self->vocab });
  for (gint64 i = 0; i < m->layers; i++)
    forward_layer (self, i, i + 1 < m->layers ? self->layers[i + 1].x : self->x);
  norm (self, self->normed, self->rstd, self->x, weight_of (self, PLAN_TENSOR_FINAL_NORM, 0));
  linear (self, self->logits, self->normed, weight_of (self, PLAN_TENSOR_OUTPUT, 0), self->vocab,
          m->hidden);
  run (self, PLAN_OP_CROSS_ENTROPY,
       (Array[]){ self->sums, self->prob, self->logits, { self->targets, PLAN_DTYPE_I32 } },
       (gint64[]){ self->rows, self->vocab });
}

/* dx is the gradient of the layer's output before, of its input afterwards. */
static void
backward_layer (Evaluator *self, gint64 i)
{
  const PlanModel *m = self->model;
  const Layer *l = &self->layers[i];

  linear_bwd (self, self->dactivated, raw_of (self, PLAN_TENSOR_DOWN, i), self->dx, l->activated,
              weight_of (self, PLAN_TENSOR_DOWN, i), m->hidden, m->ffn);
  run (self, PLAN_OP_SWIGLU_BWD, (Array[]){ self->dgate_up, self->dactivated, l->gate_up },
       (gint64[]){ self->rows, m->ffn });
  linear_bwd (self, self->branch, raw_of (self, PLAN_TENSOR_GATE_UP, i), self->dgate_up, l->normed2,
              weight_of (self, PLAN_TENSOR_GATE_UP, i), 2 * m->ffn, m->hidden);
  norm_bwd (self, self->dbranch, raw_of (self, PLAN_TENSOR_MLP_NORM, i), self->branch, l->middle,
            weight_of (self, PLAN_TENSOR_MLP_NORM, i), l->rstd2);
  add (self, self->dmiddle, self->dx, self->dbranch);

  linear_bwd (self, self->dattention, raw_of (self, PLAN_TENSOR_PROJ, i), self->dmiddle,
              l->attention, weight_of (self, PLAN_TENSOR_PROJ, i), m->hidden,
              self->attention_width);
  run (self, PLAN_OP_ATTENTION_BWD,
       (Array[]){ self->dqkv, self->dattention, l->attention, l->lse, l->qkv },
       (gint64[]){ self->mbs, self->seq, m->heads, m->kv_heads, m->head_dim, self->seq });
  rope (self, self->dqkv, 1);
  linear_bwd (self, self->branch, raw_of (self, PLAN_TENSOR_QKV, i), self->dqkv, l->normed1,
              weight_of (self, PLAN_TENSOR_QKV, i), self->qkv_width, m->hidden);
  norm_bwd (self, self->dbranch, raw_of (self, PLAN_TENSOR_ATTENTION_NORM, i), self->branch, l->x,
            weight_of (self, PLAN_TENSOR_ATTENTION_NORM, i), l->rstd1);
  add (self, self->dx, self->dmiddle, self->dbranch);
}

static void
backward (Evaluator *self)
{
  const PlanModel *m = self->model;

  run (self, PLAN_OP_CROSS_ENTROPY_BWD,
       (Array[]){ self->dlogits, self->prob, { self->targets, PLAN_DTYPE_I32 } },
       (gint64[]){ self->rows, self->vocab });
  linear_bwd (self, self->branch, raw_of (self, PLAN_TENSOR_OUTPUT, 0), self->dlogits, self->normed,
              weight_of (self, PLAN_TENSOR_OUTPUT, 0), self->vocab, m->hidden);
  norm_bwd (self, self->dx, raw_of (self, PLAN_TENSOR_FINAL_NORM, 0), self->branch, self->x,
            weight_of (self, PLAN_TENSOR_FINAL_NORM, 0), self->rstd);
  for (gint64 i = m->layers; i-- > 0;)
    backward_layer (self, i);
  run (self, PLAN_OP_EMBED_BWD,
       (Array[]){
           raw_of (self, PLAN_TENSOR_EMBEDDING, 0), self->dx, { self->tokens, PLAN_DTYPE_I32 } },
       (gint64[]){ self->rows, m->hidden, self->vocab });
}

static void
load (Evaluator *self, gint64 step, gint64 micro_batch, guint rank)
{
  gint64 first = step * self->gbs + (micro_batch * self->ranks + rank) * self->mbs;

  for (gint64 i = 0; i < self->mbs; i++)
    exec_data_sequence (self->seed, self->model->vocab, first + i, self->seq,
                        self->tokens + i * self->seq, self->targets + i * self->seq);
}

/* --- sums of gradients -------------------------------------------------------------------- */

static guint64
table_size (const Evaluator *self)
{
  return (guint64)(self->vocab * self->model->hidden);
}

/* What a rank does with the gradients of a micro batch. A tied table takes the output layer's part
 * first. */
static void
keep_raw (Evaluator *self, guint rank)
{
  gboolean is_tied = self->model->tied_embeddings;
  guint64 embedding = self->offset[PLAN_TENSOR_EMBEDDING];

  if (self->reduces_every_micro_batch)
    {
      Array table = from_element (self->sent[rank], embedding);

      cast (self, self->sent[rank], self->raw, self->parameters);
      if (is_tied)
        {
          cast (self, table, self->output_raw, table_size (self));
          accumulate (self, table, from_element (self->raw, embedding), table_size (self));
        }
      return;
    }
  if (is_tied)
    accumulate (self, from_element (self->kept[rank], embedding), self->output_raw,
                table_size (self));
  accumulate (self, self->kept[rank], self->raw, self->parameters);
}

/* in[0] = the sum over ranks of `in`. */
static void
sum_ranks (Evaluator *self, const Array *in)
{
  g_autofree const void **terms = g_new (const void *, self->ranks);

  for (guint rank = 0; rank < self->ranks; rank++)
    terms[rank] = in[rank].data;
  exec_comm_sum (in[0].data, terms, self->ranks, self->parameters, in[0].dtype);
}

static void
reduce_micro_batch (Evaluator *self)
{
  sum_ranks (self, self->sent);
  accumulate (self, self->main_grad, self->sent[0], self->parameters);
}

static void
reduce_step (Evaluator *self)
{
  if (self->wire == self->grad)
    {
      sum_ranks (self, self->kept);
      cast (self, self->main_grad, self->kept[0], self->parameters);
      return;
    }
  for (guint rank = 0; rank < self->ranks; rank++)
    cast (self, self->sent[rank], self->kept[rank], self->parameters);
  sum_ranks (self, self->sent);
  cast (self, self->main_grad, self->sent[0], self->parameters);
}

static void
compute_gradients (Evaluator *self, gint64 step)
{
  zero (self, self->sums, 2 * EXEC_EXACT_LIMBS);
  zero (self, self->main_grad, self->parameters);
  if (!self->reduces_every_micro_batch)
    for (guint rank = 0; rank < self->ranks; rank++)
      zero (self, self->kept[rank], self->parameters);
  for (gint64 micro_batch = 0; micro_batch < self->micro_batches; micro_batch++)
    {
      for (guint rank = 0; rank < self->ranks; rank++)
        {
          load (self, step, micro_batch, rank);
          forward (self);
          backward (self);
          keep_raw (self, rank);
        }
      if (self->reduces_every_micro_batch)
        reduce_micro_batch (self);
    }
  if (!self->reduces_every_micro_batch)
    reduce_step (self);
}

static void
update (Evaluator *self, gint64 step)
{
  gint64 count[] = { (gint64)self->parameters };

  self->constants.step = step + 1;
  run (self, PLAN_OP_NORM_SQ,
       (Array[]){ from_element (self->sums, EXEC_EXACT_LIMBS), self->main_grad }, count);
  run (self, PLAN_OP_CLIP, (Array[]){ self->coef, self->sums },
       (gint64[]){ 1, 1, self->gbs * self->seq });
  run (self, PLAN_OP_ADAMW,
       (Array[]){ self->main_params, self->exp_avg, self->exp_avg_sq, self->main_grad, self->coef },
       count);
  cast (self, self->weights, self->main_params, self->parameters);
}

/* --- beginning and end -------------------------------------------------------------------- */

static guint64
tensor_size (const Evaluator *self, PlanTensorRole role)
{
  PlanTensor tensor = plan_model_tensor (self->model, role, self->vocab);

  return tensor.rows * tensor.cols;
}

static const PlanTensorRole outer_roles[]
    = { PLAN_TENSOR_EMBEDDING, PLAN_TENSOR_FINAL_NORM, PLAN_TENSOR_OUTPUT };
static const PlanTensorRole layer_roles[]
    = { PLAN_TENSOR_ATTENTION_NORM, PLAN_TENSOR_QKV,     PLAN_TENSOR_PROJ,
        PLAN_TENSOR_MLP_NORM,       PLAN_TENSOR_GATE_UP, PLAN_TENSOR_DOWN };

static void
lay_out (Evaluator *self)
{
  guint64 at = 0;

  for (guint i = 0; i < G_N_ELEMENTS (outer_roles); i++)
    {
      self->offset[outer_roles[i]] = at;
      at += tensor_size (self, outer_roles[i]);
    }
  for (guint i = 0; i < G_N_ELEMENTS (layer_roles); i++)
    {
      self->offset[layer_roles[i]] = at + self->layer_parameters;
      self->layer_parameters += tensor_size (self, layer_roles[i]);
    }
  self->parameters = at + (guint64)self->model->layers * self->layer_parameters;
}

static void
init_tensor (Evaluator *self, PlanTensorRole role, gint64 layer)
{
  guint64 size = tensor_size (self, role);
  Array out = from_element (self->main_params, place (self, role, layer));

  for (guint64 i = 0; i < size; i++)
    {
      float value = exec_data_weight (self->seed, self->model, role, layer, i);

      exec_number_narrow (from_element (out, i).data, out.dtype, &value, 1);
    }
}

static void
init_params (Evaluator *self)
{
  self->main_params = new_array (self, self->main_format, self->parameters);
  self->weights = new_array (self, self->compute, self->parameters);
  self->exp_avg = new_array (self, PLAN_DTYPE_FP32, self->parameters);
  self->exp_avg_sq = new_array (self, PLAN_DTYPE_FP32, self->parameters);
  self->main_grad = new_array (self, self->grad, self->parameters);
  self->raw = new_array (self, self->compute, self->parameters);
  self->output_raw = new_array (self, self->compute, table_size (self));
  self->kept = g_new0 (Array, self->ranks);
  self->sent = g_new0 (Array, self->ranks);
  g_ptr_array_add (self->owned, self->kept);
  g_ptr_array_add (self->owned, self->sent);
  for (guint rank = 0; rank < self->ranks; rank++)
    {
      self->kept[rank] = new_array (self, self->grad, self->parameters);
      self->sent[rank] = new_array (self, self->wire, self->parameters);
    }
  for (guint i = 0; i < G_N_ELEMENTS (outer_roles); i++)
    init_tensor (self, outer_roles[i], 0);
  for (gint64 layer = 0; layer < self->model->layers; layer++)
    for (guint i = 0; i < G_N_ELEMENTS (layer_roles); i++)
      init_tensor (self, layer_roles[i], layer);
  cast (self, self->weights, self->main_params, self->parameters);
}

static void
init_activations (Evaluator *self)
{
  const PlanModel *m = self->model;
  PlanDtype c = self->compute;
  guint64 rows = (guint64)self->rows, wide = rows * (guint64)m->hidden;
  guint64 qkv = rows * (guint64)self->qkv_width;
  guint64 attention = rows * (guint64)self->attention_width, ffn = rows * (guint64)m->ffn;
  guint64 vocab = rows * (guint64)self->vocab;

  self->tokens = new_array (self, PLAN_DTYPE_I32, rows).data;
  self->targets = new_array (self, PLAN_DTYPE_I32, rows).data;
  self->layers = g_new0 (Layer, m->layers);
  g_ptr_array_add (self->owned, self->layers);
  for (Layer *l = self->layers; l < self->layers + m->layers; l++)
    {
      l->x = new_array (self, c, wide);
      l->normed1 = new_array (self, c, wide);
      l->rstd1 = new_array (self, PLAN_DTYPE_FP32, rows);
      l->qkv = new_array (self, c, qkv);
      l->attention = new_array (self, c, attention);
      l->lse = new_array (self, PLAN_DTYPE_FP32, rows * (guint64)m->heads);
      l->middle = new_array (self, c, wide);
      l->normed2 = new_array (self, c, wide);
      l->rstd2 = new_array (self, PLAN_DTYPE_FP32, rows);
      l->gate_up = new_array (self, c, 2 * ffn);
      l->activated = new_array (self, c, ffn);
    }
  self->x = new_array (self, c, wide);
  self->normed = new_array (self, c, wide);
  self->rstd = new_array (self, PLAN_DTYPE_FP32, rows);
  self->logits = new_array (self, c, vocab);
  self->prob = new_array (self, PLAN_DTYPE_FP32, vocab);
  self->branch = new_array (self, c, wide);
  self->dx = new_array (self, c, wide);
  self->dbranch = new_array (self, c, wide);
  self->dmiddle = new_array (self, c, wide);
  self->dactivated = new_array (self, c, ffn);
  self->dgate_up = new_array (self, c, 2 * ffn);
  self->dattention = new_array (self, c, attention);
  self->dqkv = new_array (self, c, qkv);
  self->dlogits = new_array (self, c, vocab);
  self->sums = new_array (self, PLAN_DTYPE_I64, 2 * EXEC_EXACT_LIMBS);
  self->coef = new_array (self, PLAN_DTYPE_FP32, 4);
}

static gboolean
is_trained_in (PlanDtype dtype)
{
  return dtype == PLAN_DTYPE_FP32 || dtype == PLAN_DTYPE_BF16;
}

static gboolean
check (const Evaluator *self, const Plan *plan, GError **error)
{
  if (self->micro_batches * self->mbs * self->ranks != self->gbs)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "gbs=%" G_GINT64_FORMAT " is not a multiple of mbs=%" G_GINT64_FORMAT
                   " times %u ranks",
                   self->gbs, self->mbs, self->ranks);
      return FALSE;
    }
  if (!is_trained_in (self->compute) || !is_trained_in (self->main_format)
      || !is_trained_in (self->grad) || !is_trained_in (self->wire)
      || plan->value[PLAN_EXP_AVG] != PLAN_EXP_AVG_FP32
      || plan->value[PLAN_EXP_AVG_SQ] != PLAN_EXP_AVG_SQ_FP32)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED,
                           "the reference knows fp32 and bf16, with moments in fp32");
      return FALSE;
    }
  if (self->parameters > G_MAXUINT / sizeof (float))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INFEASIBLE,
                   "model %s is too large for the reference", self->model->name);
      return FALSE;
    }
  return TRUE;
}

static gboolean
init (Evaluator *self, const ExecJob *job, guint ranks, GError **error)
{
  const PlanModel *m = job->model;
  const Plan *plan = job->plan;
  gint64 strategy = plan->value[PLAN_STRATEGY];
  const PlanStack *stack = plan_stack_of (plan, job->cluster->kind, error);

  if (stack == NULL)
    return FALSE;
  self->model = m;
  self->ranks = ranks;
  self->seed = job->seed;
  self->constants = job->constants;
  self->gbs = plan->value[PLAN_GBS];
  self->mbs = plan->value[PLAN_MBS];
  self->seq = plan->value[PLAN_SEQ];
  self->rows = self->mbs * self->seq;
  self->micro_batches = self->gbs / (self->mbs * ranks);
  self->vocab = plan_stack_padded_vocab (stack, m->vocab, 1);
  self->qkv_width = (m->heads + 2 * m->kv_heads) * m->head_dim;
  self->attention_width = m->heads * m->head_dim;
  self->compute = plan_field_dtype (plan, PLAN_COMPUTE);
  self->main_format = plan_field_dtype (plan, PLAN_MAIN_PARAMS);
  self->grad = plan_field_dtype (plan, PLAN_MAIN_GRADS);
  /* A rank on its own sends nothing: no sum, and no rounding on the way. */
  self->wire = ranks > 1 ? plan_field_dtype (plan, PLAN_GRAD_COMM) : self->grad;
  self->reduces_every_micro_batch
      = ranks > 1
        && (strategy == PLAN_STRATEGY_OPTIM_GRADS || strategy == PLAN_STRATEGY_OPTIM_GRADS_PARAMS);
  lay_out (self);
  return check (self, plan, error);
}

static GByteArray *
widened_params (const Evaluator *self)
{
  GByteArray *out = g_byte_array_new ();

  g_byte_array_set_size (out, (guint)(self->parameters * sizeof (float)));
  exec_number_widen ((float *)(void *)out->data, self->main_params.data, self->main_format,
                     self->parameters);
  return out;
}

static void
clear (Evaluator *self)
{
  g_ptr_array_unref (self->owned);
  g_free (self->scratch);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Evaluator, clear)

gboolean
exec_evaluate (const ExecJob *job, guint ranks, ExecResult *out_result, GError **error)
{
  g_auto (Evaluator) self = { .owned = g_ptr_array_new_with_free_func (g_free) };
  ExecResult result = { 0 };

  if (!init (&self, job, ranks, error) || !exec_kernels_cpu.open (error))
    return FALSE;
  init_params (&self);
  init_activations (&self);

  result.losses = g_new0 (double, job->steps);
  result.grad_norms = g_new0 (double, job->steps);
  result.step_ns = g_new0 (gint64, job->steps);
  for (gint64 step = 0; step < job->steps; step++)
    {
      const float *coef = self.coef.data;
      gint64 start_us = g_get_monotonic_time ();

      compute_gradients (&self, step);
      update (&self, step);
      result.grad_norms[step] = (double)coef[1];
      result.losses[step] = (double)coef[2];
      result.step_ns[step] = 1000 * (g_get_monotonic_time () - start_us);
    }
  result.main_params = widened_params (&self);
  *out_result = result;
  return TRUE;
}
