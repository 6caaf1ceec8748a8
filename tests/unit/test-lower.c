/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/units.h"
#include "tests/unit/test-lower-case.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Memory between steps of Llama-3-8B in bf16 with fp32 state on 8 GPUs, in MiB, by the framework's
 * own formulas: weights, gradients, main weights and moments by what is sharded, with non-unit
 * weights kept gathered. */
START_TEST (resting_memory_follows_the_formulas)
{
  static const struct
  {
    const char *strategy;
    double mib;
  } rows[] = { { "optim_grads_params", 19236 }, { "optim_grads", 30636 }, { "optim", 57444 } };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      TestCase c;
      const char *const fields[]
          = { "strategy", rows[i].strategy, "gbs", "8", "seq", "1024", NULL };
      case_init_fields (&c, "llama3-8b", "dgx-h100:1", fields);
      const PlanMemory m = memory_of (&c);
      const double mib = (double)(m.allocated - c.of->stack->memory.fixed_bytes) / PLAN_MIB;
      ck_assert_msg (fabs (mib / rows[i].mib - 1) < 0.001, "%s: %.1f MiB, not %.0f",
                     rows[i].strategy, mib, rows[i].mib);
      test_case_clear (&c);
    }
}
END_TEST

/* bf16 gradients take half the bytes, but the optimizer's fp32 copy of them takes more than is
 * saved: 2 + 4 bytes instead of 4, per parameter and shard. */
START_TEST (bf16_gradients_cost_a_copy)
{
  guint64 bytes[2];
  for (guint i = 0; i < 2; i++)
    {
      TestCase c;
      const char *const fields[]
          = { "gbs", "8", "seq", "1024", "main_grads", i ? "bf16" : "fp32", NULL };
      case_init_fields (&c, "llama3-8b", "dgx-h100:1", fields);
      bytes[i] = memory_of (&c).resting[PLAN_CATEGORY_MAIN_GRADS];
      test_case_clear (&c);
    }
  ck_assert_uint_eq (bytes[1], bytes[0] / 2 * 3);
}
END_TEST

/* How many units are gathered, and gradient buckets live, at once: 1 + ceil (S/2 / U) and floor (S
 * / U) + 2 for a communication unit S of at least 1e9 elements and units of U. */
START_TEST (queues_are_as_deep_as_the_communication_unit_says)
{
  static const struct
  {
    const char *model, *comm_unit;
    guint gathered, buckets;
  } rows[] = {
    { "llama3-8b", "auto", 4, 6 },      /* S = 1e9, U = 218e6 */
    { "llama3-70b", "auto", 2, 3 },     /* S = two units without, U = one with padding */
    { "llama3-8b", "1", 1, 2 },         /* no prefetch */
    { "llama3-8b", "218136575", 2, 2 }, /* U - 1 */
    { "llama3-8b", "436273151", 2, 3 }, /* 2 U - 1 */
  };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      TestCase c;
      const char *const fields[]
          = { "gbs", "64", "seq", "256", "comm_unit", rows[i].comm_unit, NULL };
      case_init_fields (&c, rows[i].model, "dgx-h100:1", fields);
      const guint gathered = most_live (c.schedule, "weights.layer");
      const guint buckets = most_live (c.schedule, "bucket.layer");
      ck_assert_msg (gathered == rows[i].gathered, "%s %s: %u units gathered, not %u",
                     rows[i].model, rows[i].comm_unit, gathered, rows[i].gathered);
      ck_assert_msg (buckets == rows[i].buckets, "%s %s: %u buckets, not %u", rows[i].model,
                     rows[i].comm_unit, buckets, rows[i].buckets);
      test_case_clear (&c);
    }
}
END_TEST

/* Units that are prefetched in the output layer stay in memory during the loss, though nobody needs
 * them there. */
START_TEST (the_output_layer_prefetches_uselessly)
{
  TestCase c;
  const char *const fields[] = { "gbs", "8", "seq", "8192", NULL };
  case_init_fields (&c, "llama3-8b", "dgx-h100:1", fields);
  const PlanMemory m = memory_of (&c);
  const PlanOp *op = plan_schedule_node (c.schedule, m.peak_node);
  const PlanBuffer *buffer = plan_schedule_buffer (c.schedule, (guint)op->refs[0].array);
  ck_assert_int_eq (buffer->category, PLAN_CATEGORY_LOSS);
  /* embedding and head stay gathered; three stale units beside them */
  const double units = 3 * 218136576.0 * 2 / PLAN_MIB;
  const double rest = 2 * (525336576.0 + 525369344.0) / PLAN_MIB;
  const double gathered = (double)m.by_category[PLAN_CATEGORY_GATHERED] / PLAN_MIB;
  ck_assert_msg (fabs (gathered - units - rest) < 0.01, "%.2f MiB gathered, not %.2f", gathered,
                 units + rest);
  test_case_clear (&c);
}
END_TEST

/* Bytes saved per layer in units of one activation (s b h bytes), for Llama-3-8B in bf16: 34 with
 * all activations kept, 11 without the MLP's, 2 with the input alone. */
START_TEST (recompute_keeps_what_it_says)
{
  static const struct
  {
    const char *recompute, *modules, *method, *layers;
    double per_layer;
  } rows[] = { { "none", "core_attn", "uniform", "1", 34 },
               { "selective", "mlp", "uniform", "1", 11 },
               { "full", "core_attn", "uniform", "1", 2 },
               { "full", "core_attn", "block", "8", (8 * 2 + 24 * 34) / 32.0 } };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      TestCase c;
      const char *const fields[] = { "gbs",
                                     "8",
                                     "seq",
                                     "8192",
                                     "recompute",
                                     rows[i].recompute,
                                     "recompute_modules",
                                     rows[i].modules,
                                     "recompute_method",
                                     rows[i].method,
                                     "recompute_layers",
                                     rows[i].layers,
                                     NULL };
      case_init_fields (&c, "llama3-8b", "dgx-h100:1", fields);
      const PlanMemory m = memory_of (&c);
      /* at the loss: what layers keep, and three more such inputs of norm and head */
      const double unit = 8192.0 * 4096;
      const double per_layer
          = ((double)m.by_category[PLAN_CATEGORY_ACTIVATIONS] - 4 * unit) / unit / 32;
      ck_assert_msg (fabs (per_layer - rows[i].per_layer) < 0.1, "%s %s: %.2f, not %.2f",
                     rows[i].recompute, rows[i].method, per_layer, rows[i].per_layer);
      test_case_clear (&c);
    }
}
END_TEST

/* Gathers of units in a micro batch. Where nothing is gathered ahead, every unit of a chunk but its
 * last one is gathered once more; what the unit behind it gathered ahead is still there. Rows and
 * columns in MXFP8 are gathered apart, rows once more for what is computed again. */
START_TEST (recomputing_gathers_what_it_needs)
{
  static const struct
  {
    const char *cluster, *words;
    guint rows, columns; /* gathers for each of 32 units */
  } rows[] = {
    { "dgx-h100:1", "comm_unit=1", 2 * 32, 0 },
    { "dgx-h100:1", "comm_unit=1 recompute=full", 2 * 32, 0 },
    { "dgx-h100:1", "comm_unit=1 recompute=selective", 2 * 32, 0 },
    { "dgx-h100:1", "comm_unit=1 recompute=full recompute_layers=8", 2 * 32 + 4 * 7, 0 },
    { "dgx-h100:1", "comm_unit=1 recompute=full recompute_layers=5", 2 * 32 + 6 * 4 + 1, 0 },
    { "dgx-b200:1", "comm_unit=1 compute=mxfp8 param_gather=mxfp8", 32, 32 },
    { "dgx-b200:1", "comm_unit=1 compute=mxfp8 param_gather=mxfp8 recompute=full", 64, 32 },
    { "dgx-b200:1", "comm_unit=1 compute=mxfp8 param_gather=mxfp8 recompute=selective", 64, 32 },
    { "dgx-b200:1",
      "comm_unit=1 compute=mxfp8 param_gather=mxfp8 recompute=full recompute_layers=4", 64, 32 },
  };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      TestCase c;
      g_autofree char *words
          = g_strconcat ("gbs=8 seq=1024 stack=native fine_grained=on ", rows[i].words, NULL);
      test_case_init (&c, "llama3-8b", rows[i].cluster, words);
      const PlanBuffer *unit = NULL;
      for (guint b = 0; b < plan_schedule_n_buffers (c.schedule); b++)
        if (g_str_equal (plan_schedule_buffer (c.schedule, b)->name, "weights.layer"))
          unit = plan_schedule_buffer (c.schedule, b);
      ck_assert_uint_eq (gathered_into (c.schedule, "weights.layer"),
                         rows[i].rows * unit->elements);
      ck_assert_uint_eq (gathered_into (c.schedule, "columns.layer"),
                         rows[i].columns * unit->elements);
      test_case_clear (&c);
    }
}
END_TEST

/* Elements that a rank sends in a ring in a step, and the FLOPs of its attention. */
static void
measure_ring (const PlanSchedule *schedule, guint64 *out_sent, double *out_flops)
{
  PlanCursor cursor;
  const PlanOp *op;
  *out_sent = 0;
  *out_flops = 0;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    if (op->kind == PLAN_OP_EXCHANGE)
      *out_sent += (guint64)op->dims[0];
    else if (op->kind == PLAN_OP_ATTENTION || op->kind == PLAN_OP_ATTENTION_BWD)
      *out_flops += plan_op_flops (op);
}

/* Keys and values of 8 heads of 128 go to all other ranks in the forward pass, and again with their
 * gradients in the backward pass: three times 2 * 8 * 128 * (seq / cp) * (cp - 1) elements in each
 * of 32 layers. The FLOPs of all ranks add up to the same; memory is that of a shorter sequence. */
START_TEST (context_parallel_ranks_share_the_work)
{
  TestCase whole, shorter;
  double all, flops;
  guint64 sent;
  const char *const words = "gbs=8 seq=8192 comm_unit=1 ";
  test_case_init (&whole, "llama3-8b", "dgx-h100:1", "gbs=8 seq=8192 comm_unit=1");
  measure_ring (whole.schedule, &sent, &all);
  ck_assert_uint_eq (sent, 0);
  for (gint64 cp = 2; cp <= 8; cp *= 2)
    {
      TestCase c;
      g_autofree char *fields = g_strdup_printf ("%scp=%" G_GINT64_FORMAT, words, cp);
      g_autofree char *less
          = g_strdup_printf ("gbs=8 seq=%" G_GINT64_FORMAT " comm_unit=1", 8192 / cp);
      test_case_init (&c, "llama3-8b", "dgx-h100:1", fields);
      test_case_init (&shorter, "llama3-8b", "dgx-h100:1", less);
      measure_ring (c.schedule, &sent, &flops);
      /* with as many ranks fewer sequences run at once: cp micro batches */
      ck_assert_uint_eq (sent, (guint64)(cp * 32 * 3 * 2 * 8 * 128 * (8192 / cp) * (cp - 1)));
      ck_assert_double_eq_tol (flops / all, 1, 1e-12);
      ck_assert_uint_eq (most_live (c.schedule, "kv"), 2);
      ck_assert_uint_eq (most_live (c.schedule, "dkv"), 2);
      ck_assert_uint_eq (memory_of (&c).by_category[PLAN_CATEGORY_ACTIVATIONS],
                         memory_of (&shorter).by_category[PLAN_CATEGORY_ACTIVATIONS]);
      ck_assert_uint_eq (memory_of (&c).allocated,
                         memory_of (&whole).allocated
                             - memory_of (&whole).resting[PLAN_CATEGORY_WORKSPACE]
                             + memory_of (&c).resting[PLAN_CATEGORY_WORKSPACE]);
      test_case_clear (&c);
      test_case_clear (&shorter);
    }
  test_case_clear (&whole);
}
END_TEST

/* Every rank of a tensor-parallel group has whole norms: the group sums the gradients of all 2 * 32
 * + 1 of them once, shard by shard. */
START_TEST (tensor_parallel_ranks_sum_norms)
{
  static const struct
  {
    const char *words;
    guint64 copies; /* ranks that have the same parameters */
  } rows[] = { { "strategy=optim_grads_params", 1 },
               { "strategy=optim", 1 },
               { "strategy=no_shard", 4 },
               { "dp_outer=2", 2 },
               { "dp_outer=2 outer_strategy=optim", 1 },
               { "main_grads=bf16", 1 } };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      TestCase c;
      guint64 summed = 0;
      g_autofree char *words = g_strconcat ("gbs=8 seq=256 tp=2 ", rows[i].words, NULL);
      test_case_init (&c, "llama3-8b", "dgx-h100:1", words);
      for (guint rank = 0; rank < 8; rank += 2)
        {
          PlanCursor cursor;
          const PlanOp *op;
          g_autoptr (PlanSchedule) schedule = plan_lower (c.of, rank, NULL);
          for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
               (op = plan_cursor_next (&cursor));)
            if (op->kind == PLAN_OP_ALL_REDUCE && op->stream == PLAN_STREAM_TENSOR
                && g_str_equal (plan_schedule_buffer (schedule, (guint)op->refs[0].array)->name,
                                "replicated"))
              summed += (guint64)op->dims[0];
        }
      ck_assert_uint_eq (summed, rows[i].copies * (2 * 32 + 1) * 4096);
      test_case_clear (&c);
    }
}
END_TEST

/* A sequence that is gathered again in the backward pass is gathered from what the forward pass has
 * kept, so norms are computed once: two in each of 32 layers and the last one, per micro batch. */
START_TEST (gathering_again_makes_no_norm_again)
{
  static const char *const stacks[]
      = { "stack=megatron-fsdp", "stack=megatron strategy=optim", "stack=nanotron strategy=optim" };
  for (guint i = 0; i < G_N_ELEMENTS (stacks); i++)
    {
      TestCase c;
      PlanCursor cursor;
      const PlanOp *op;
      guint norms = 0;
      g_autofree char *words = g_strconcat ("gbs=16 seq=256 tp=2 ", stacks[i], NULL);
      test_case_init (&c, "llama3-8b", "dgx-h100:1", words);
      plan_cursor_start (&cursor, c.schedule, PLAN_SECTION_STEP);
      while ((op = plan_cursor_next (&cursor)))
        norms += op->kind == PLAN_OP_RMSNORM;
      ck_assert_msg (norms == 4 * (2 * 32 + 1), "%s: %u", stacks[i], norms);
      test_case_clear (&c);
    }
}
END_TEST

/* Where all gradients are summed by one call, that is once the last product is done, of all of
 * them, and each rank measures them all; else they go by the bucket, beside products, and of a
 * sharded optimizer each rank gets and measures its part. */
START_TEST (gradients_are_summed_at_once)
{
  static const struct
  {
    const char *fields;
    PlanOpKind kind;
    gboolean is_late;
    guint64 summed, measured; /* as shares of the parameters */
  } rows[] = {
    { "stack=nanotron strategy=optim", PLAN_OP_ALL_REDUCE, TRUE, 1, 1 },
    { "stack=nanotron strategy=no_shard", PLAN_OP_ALL_REDUCE, FALSE, 1, 1 },
    { "stack=megatron strategy=optim", PLAN_OP_REDUCE_SCATTER, FALSE, 8, 8 },
  };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      TestCase c;
      PlanCursor cursor;
      const PlanOp *op;
      guint64 summed = 0, measured = 0;
      gboolean is_late = TRUE;
      g_autofree char *words = g_strconcat ("gbs=16 seq=256 ", rows[i].fields, NULL);
      test_case_init (&c, "llama3-8b", "dgx-h100:1", words);
      for (plan_cursor_start (&cursor, c.schedule, PLAN_SECTION_STEP);
           (op = plan_cursor_next (&cursor));)
        {
          if (op->kind == rows[i].kind && op->stream == PLAN_STREAM_REDUCE)
            summed += (guint64)op->dims[0];
          if (op->kind == PLAN_OP_NORM_SQ)
            measured += (guint64)op->dims[0];
          is_late = is_late && (op->kind != PLAN_OP_GEMM || summed == 0);
        }
      const guint64 elements = 8030261248;
      ck_assert_uint_le (elements / rows[i].summed, summed);
      ck_assert_uint_le (summed, elements / rows[i].summed + elements / 1000);
      ck_assert_uint_le (elements / rows[i].measured, measured);
      ck_assert_uint_le (measured, elements / rows[i].measured + elements / 1000);
      ck_assert_msg (is_late == rows[i].is_late, "%s", rows[i].fields);
      test_case_clear (&c);
    }
}
END_TEST

/* Counts the ops of a step by kind; for gradients of norms also those that add to another
 * gradient. */
static void
count_ops (const PlanSchedule *schedule, guint out_n[PLAN_N_OPS], guint *out_adding)
{
  PlanCursor cursor;
  const PlanOp *op;
  memset (out_n, 0, PLAN_N_OPS * sizeof *out_n);
  *out_adding = 0;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    {
      out_n[op->kind]++;
      if (op->kind == PLAN_OP_RMSNORM_BWD || op->kind == PLAN_OP_LAYERNORM_BWD)
        *out_adding += op->refs[7].array >= 0;
    }
}

/* Where kernels of norms add: the sum behind attention comes with the norm that reads it, also when
 * it is made again, and the one behind the other branch is an op, as its norm is the next unit's;
 * going back, what two of a layer's nodes hand to one value is added up by the norm. Not where a
 * part is dropped before the sum, nor where the norm is one of another value. Per layer and micro
 * batch, of which there are two of two each, and for the last norm. */
START_TEST (sums_are_made_by_norms)
{
#define MODEL "layers=2,hidden=64,ffn=128,heads=2,vocab=256,max_seq=64"
  static const struct
  {
    const char *model, *fields;
    guint norms, adding_norms, adds, adding_gradients; /* per layer */
  } rows[] = {
    { "family=llama," MODEL, "stack=native", 1, 1, 1, 2 },
    { "family=gpt2," MODEL, "stack=native", 1, 1, 1, 2 },
    { "family=llama," MODEL, "stack=native recompute=full", 2, 2, 1, 2 },
    { "family=llama," MODEL, "stack=native recompute=selective recompute_modules=mlp", 2, 1, 1, 2 },
    { "family=llama," MODEL, "stack=native compute=fp8-delayed", 1, 1, 1, 2 },
    { "family=llama," MODEL, "stack=native tp=2", 1, 1, 1, 2 },
    { "family=llama," MODEL, "stack=native cp=2", 1, 1, 1, 2 },
    { "family=llama," MODEL, "stack=native hidden_dropout=0.1", 2, 0, 0, 2 },
    { "family=llama,post_norms=on," MODEL, "stack=native", 3, 1, 1, 2 },
    { "family=llama,parallel=on," MODEL, "stack=native", 2, 0, 3, 1 },
    { "family=llama," MODEL, "stack=megatron-fsdp", 2, 0, 4, 0 },
    { "family=llama," MODEL, "stack=fsdp2", 2, 0, 4, 0 },
  };
#undef MODEL
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      TestCase c;
      guint n[PLAN_N_OPS], adding;
      g_autofree char *words = g_strconcat ("gbs=4 seq=64 ", rows[i].fields, NULL);
      test_case_init (&c, rows[i].model, "h100-80gb:2", words);
      const guint batches = (guint)plan_micro_batches (&c.of->plan, c.cluster);
      count_ops (c.schedule, n, &adding);
      const guint norms = n[PLAN_OP_RMSNORM] + n[PLAN_OP_LAYERNORM];
      const guint adding_norms = n[PLAN_OP_ADD_RMSNORM] + n[PLAN_OP_ADD_LAYERNORM];
      ck_assert_msg (norms == batches * (2 * rows[i].norms + 1)
                         && adding_norms == batches * 2 * rows[i].adding_norms
                         && n[PLAN_OP_ADD] == batches * 2 * rows[i].adds
                         && adding == batches * 2 * rows[i].adding_gradients,
                     "%s, %s: %u norms, %u that add, %u sums, %u gradients that add, of %u batches",
                     rows[i].model, rows[i].fields, norms, adding_norms, n[PLAN_OP_ADD], adding,
                     batches);
      test_case_clear (&c);
    }
}
END_TEST

/* Bytes that are copied in a step from the device to the host, and back. */
static void
measure_copies (const PlanSchedule *schedule, guint64 *out_out, guint64 *out_back)
{
  PlanCursor cursor;
  const PlanOp *op;
  *out_out = *out_back = 0;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    if (op->kind == PLAN_OP_COPY)
      {
        const PlanBuffer *to = plan_schedule_buffer (schedule, (guint)op->refs[0].array);
        const guint64 bytes = plan_dtype_bytes (to->dtype, (guint64)op->dims[0]);
        *(to->category == PLAN_CATEGORY_HOST ? out_out : out_back) += bytes;
      }
}

/* What a layer keeps is copied to the host and back once per micro batch: 34 s h bytes, and fp32
 * numbers per row (two) and per head and row (32). For half of the optimizer four bytes per
 * parameter are copied each way, once. */
START_TEST (offloading_copies_each_byte_out_and_back)
{
  TestCase c;
  guint64 out, back;
  test_case_init (&c, "llama3-8b", "dgx-h100:1", "gbs=16 seq=4096 offload_layers=12");
  measure_copies (c.schedule, &out, &back);
  ck_assert_uint_eq (out, G_GUINT64_CONSTANT (2) * 12 * 4096 * (34 * 4096 + 4 * (2 + 32)));
  ck_assert_uint_eq (back, out);
  test_case_clear (&c);
  test_case_init (&c, "llama3-8b", "dgx-h100:1",
                  "gbs=16 seq=4096 precision_aware=on offload_optimizer=0.5");
  measure_copies (c.schedule, &out, &back);
  ck_assert_uint_eq (out, (32 * G_GUINT64_CONSTANT (218136576) + 525336576 + 525369344) / 8 * 2);
  ck_assert_uint_eq (back, out);
  test_case_clear (&c);
}
END_TEST

/* Our own runtime's host has the formats of the device, and works beside it: the device's step is
 * issued once gradients are on their way, and weights are rounded when both are done. */
START_TEST (the_host_updates_beside_the_device)
{
  static const PlanOpKind expected[]
      = { PLAN_OP_CLIP,       PLAN_OP_COPY, PLAN_OP_ADAMW, PLAN_OP_SYNC,
          PLAN_OP_ADAMW_HOST, PLAN_OP_SYNC, PLAN_OP_COPY,  PLAN_OP_CAST };
  TestCase c;
  guint64 out, back;
  const gint64 own = (32 * G_GINT64_CONSTANT (218136576) + 525336576 + 525369344) / 8;
  PlanCursor cursor;
  const PlanOp *op;
  gint64 here = 0, host = 0;
  guint n = 0; /* kinds seen, of those expected */
  test_case_init (&c, "llama3-8b", "dgx-h100:1",
                  "gbs=16 seq=4096 stack=native precision_aware=on offload_optimizer=0.25 "
                  "main_grads=bf16 exp_avg=bf16");
  for (plan_cursor_start (&cursor, c.schedule, PLAN_SECTION_STEP);
       (op = plan_cursor_next (&cursor));)
    {
      here += op->kind == PLAN_OP_ADAMW ? op->dims[PLAN_DIM_ADAMW_count] : 0;
      host += op->kind == PLAN_OP_ADAMW_HOST ? op->dims[PLAN_DIM_ADAMW_HOST_count] : 0;
      if (op->kind == PLAN_OP_WAIT || n == G_N_ELEMENTS (expected)
          || (n == 0 && op->kind != PLAN_OP_CLIP) || (n > 0 && op->kind == expected[n - 1]))
        continue;
      ck_assert_str_eq (plan_op_name (op->kind), plan_op_name (expected[n]));
      n++;
    }
  ck_assert_uint_eq (n, G_N_ELEMENTS (expected));
  ck_assert_int_eq (host, own / 4);
  ck_assert_int_eq (here + host, own);
  measure_copies (c.schedule, &out, &back);
  ck_assert_uint_eq (out, (guint64)host * 2 + 4 * sizeof (float));
  ck_assert_uint_eq (back, (guint64)host * 4);
  test_case_clear (&c);
}
END_TEST

START_TEST (one_rank_communicates_nothing)
{
  TestCase c;
  const char *const fields[] = { "gbs", "4", "seq", "16", "stack", "native", NULL };
  PlanCursor cursor;
  const PlanOp *op;
  case_init_fields (&c, "llama-tiny", "h100-80gb:1", fields);
  for (PlanSection s = 0; s < PLAN_N_SECTIONS; s++)
    for (plan_cursor_start (&cursor, c.schedule, s); (op = plan_cursor_next (&cursor));)
      ck_assert (plan_op_class (op->kind) != PLAN_CLASS_COLLECTIVE);
  test_case_clear (&c);
}
END_TEST

START_TEST (repeats_keep_the_schedule_small)
{
  TestCase small, large;
  const char *const few[] = { "gbs", "64", "seq", "256", NULL };
  const char *const many[] = { "gbs", "4096", "seq", "256", NULL };
  case_init_fields (&small, "llama3-8b", "dgx-h100:1", few);
  case_init_fields (&large, "llama3-8b", "dgx-h100:1", many);
  ck_assert_uint_eq (plan_schedule_n_nodes (small.schedule),
                     plan_schedule_n_nodes (large.schedule));
  ck_assert_uint_lt (plan_schedule_n_nodes (large.schedule), 1000);
  test_case_clear (&small);
  test_case_clear (&large);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("lower");
  TCase *tcase = tcase_create ("lower");
  tcase_set_timeout (tcase, 120);
  tcase_add_test (tcase, resting_memory_follows_the_formulas);
  tcase_add_test (tcase, bf16_gradients_cost_a_copy);
  tcase_add_test (tcase, queues_are_as_deep_as_the_communication_unit_says);
  tcase_add_test (tcase, the_output_layer_prefetches_uselessly);
  tcase_add_test (tcase, recompute_keeps_what_it_says);
  tcase_add_test (tcase, recomputing_gathers_what_it_needs);
  tcase_add_test (tcase, context_parallel_ranks_share_the_work);
  tcase_add_test (tcase, tensor_parallel_ranks_sum_norms);
  tcase_add_test (tcase, gathering_again_makes_no_norm_again);
  tcase_add_test (tcase, gradients_are_summed_at_once);
  tcase_add_test (tcase, sums_are_made_by_norms);
  tcase_add_test (tcase, offloading_copies_each_byte_out_and_back);
  tcase_add_test (tcase, the_host_updates_beside_the_device);
  tcase_add_test (tcase, one_rank_communicates_nothing);
  tcase_add_test (tcase, repeats_keep_the_schedule_small);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
