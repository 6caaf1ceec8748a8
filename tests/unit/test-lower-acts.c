/* SPDX-License-Identifier: Apache-2.0 */
/* When ops come in a schedule, and how many there are. */
#include "config.h"

#include "tests/unit/test-lower-case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* The position of the last op of a kind in a step, and the number of these ops; 0 where there are
 * none. */
static guint
last_op (const PlanSchedule *schedule, PlanOpKind kind, guint *out_count)
{
  guint at = 0, last = 0;
  PlanCursor cursor;
  const PlanOp *op;
  *out_count = 0;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    {
      at++;
      last = op->kind == kind ? at : last;
      *out_count += op->kind == kind ? 1 : 0;
    }
  return last;
}

static guint
first_op (const PlanSchedule *schedule, PlanOpKind kind)
{
  guint at = 0;
  PlanCursor cursor;
  const PlanOp *op;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    if (at++, op->kind == kind)
      return at;
  return 0;
}

/* Without overlap, sharded optimizers reduce once all gradients are there and gather once all
 * weights are updated, one bucket at a time; otherwise both begin before. */
START_TEST (without_overlap_communication_stands_apart)
{
  for (guint i = 0; i < 2; i++)
    {
      TestCase c;
      guint n;
      g_autofree char *words
          = g_strconcat ("gbs=16 seq=1024 strategy=optim grad_comm=bf16 overlap_grad_reduce=",
                         i ? "off overlap_param_gather=off" : "on", NULL);
      test_case_init (&c, "llama3-8b", "dgx-h100:1", words);
      const guint reduces = first_op (c.schedule, PLAN_OP_REDUCE_SCATTER);
      const guint gathers = first_op (c.schedule, PLAN_OP_ALL_GATHER);
      ck_assert_int_eq (reduces > last_op (c.schedule, PLAN_OP_EMBED_BWD, &n), i == 1);
      ck_assert_int_eq (gathers > reduces, TRUE);
      const guint updates = last_op (c.schedule, PLAN_OP_ADAMW, &n);
      ck_assert_uint_eq (n, i ? 33 : 34); /* embedding and head share a bucket */
      last_op (c.schedule, PLAN_OP_ALL_GATHER, &n);
      ck_assert_uint_eq (n, i ? 34 : 35); /* and the norm's sums */
      PlanCursor cursor;
      const PlanOp *op;
      guint at = 0, early = 0;
      for (plan_cursor_start (&cursor, c.schedule, PLAN_SECTION_STEP);
           (op = plan_cursor_next (&cursor));)
        if (at++, op->kind == PLAN_OP_ALL_GATHER && op->stream == PLAN_STREAM_GATHER)
          early += at < updates ? 1 : 0;
      ck_assert_int_eq (early > 0, i == 0);
      ck_assert_uint_eq (most_live (c.schedule, "bucket.layer"), i ? 1 : 5);
      test_case_clear (&c);
    }
}
END_TEST

/* Two micro batches: what is reduced in the last one alone, is reduced in both. */
/* Weights in fp8 and norms in bf16 have buckets of their own: both are sent before the sum of
 * either is added. */
START_TEST (buckets_of_a_unit_leave_together)
{
  TestCase c;
  PlanCursor cursor;
  const PlanOp *op;
  guint pairs = 0;
  PlanOpKind last = PLAN_N_OPS, before = PLAN_N_OPS;
  gint64 unit = -1;
  test_case_init (&c, "llama3-8b", "dgx-h100:1",
                  "gbs=16 seq=1024 stack=megatron-fsdp compute=fp8-delayed param_gather=fp8");
  for (plan_cursor_start (&cursor, c.schedule, PLAN_SECTION_STEP);
       (op = plan_cursor_next (&cursor));)
    {
      if (op->stream != PLAN_STREAM_REDUCE || plan_cursor_unit (&cursor, op) < 0)
        continue;
      const gboolean is_same = plan_cursor_unit (&cursor, op) == unit;
      ck_assert (!(is_same && op->kind == PLAN_OP_REDUCE_SCATTER && last == PLAN_OP_ACCUMULATE
                   && before == PLAN_OP_REDUCE_SCATTER));
      pairs += is_same && op->kind == PLAN_OP_REDUCE_SCATTER && last == PLAN_OP_REDUCE_SCATTER;
      before = last;
      last = op->kind;
      unit = plan_cursor_unit (&cursor, op);
    }
  ck_assert_uint_eq (pairs, 2 * 32);
  test_case_clear (&c);
}
END_TEST

START_TEST (syncing_reduces_in_every_micro_batch)
{
  for (guint i = 0; i < 2; i++)
    {
      TestCase c;
      guint n;
      g_autofree char *words = g_strconcat (
          "gbs=32 seq=1024 mbs=2 strategy=optim sync_every_micro_batch=", i ? "on" : "off", NULL);
      test_case_init (&c, "llama3-8b", "dgx-h100:1", words);
      last_op (c.schedule, PLAN_OP_REDUCE_SCATTER, &n);
      ck_assert_uint_eq (n, (i + 1) * 34);
      test_case_clear (&c);
    }
}
END_TEST

/* The host waits at the end of a step, after each of two losses, or after each gradient: 6 in each
 * of 32 layers, and those of embedding, final norm and output, in each of two micro batches. */
/* The host waits at the end of a step; for the norm; in each micro batch, for what it loads and
 * what it looks at. */
#define NORM 1
#define LOADING 1
START_TEST (host_waits_where_the_stack_looks)
{
  static const struct
  {
    const char *stack, *check, *fusion;
    guint syncs;
  } rows[] = { { "native", "off", "off", 1 },
               { "megatron-fsdp", "off", "off", 1 + NORM },
               { "megatron-fsdp@2026-05-20", "off", "off", 1 + NORM + 2 * LOADING },
               { "fsdp2", "off", "off", 1 + 2 * LOADING },
               { "megatron-fsdp", "loss", "off", 1 + NORM + 2 },
               { "megatron-fsdp", "params", "off", 1 + NORM + 2 * (32 * 6 + 3) },
               { "megatron-fsdp", "params", "on", 1 + NORM + 2 * (32 * 6 + 3) } };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      TestCase c;
      guint n;
      g_autofree char *words
          = g_strconcat ("gbs=16 seq=1024 stack=", rows[i].stack, " nan_check=", rows[i].check,
                         " grad_accum_fusion=", rows[i].fusion, NULL);
      test_case_init (&c, "llama3-8b", "dgx-h100:1", words);
      last_op (c.schedule, PLAN_OP_SYNC, &n);
      ck_assert_uint_eq (n, rows[i].syncs);
      test_case_clear (&c);
    }
}
END_TEST

/* An all-to-all sends the same bytes, but every reduction in flight holds the other ranks' shares
 * beside its bucket: up to 5 units, and at the peak the head and 3 units, in bf16. */
START_TEST (all_to_all_takes_a_second_bucket)
{
  TestCase ring, direct;
  guint n;
  test_case_init (&ring, "llama3-8b", "dgx-h100:1",
                  "gbs=8 seq=256 grad_comm=bf16 stack=native comm_unit=1000000000");
  test_case_init (&direct, "llama3-8b", "dgx-h100:1",
                  "gbs=8 seq=256 grad_comm=bf16 stack=native comm_unit=1000000000 reduce_algo=a2a");
  last_op (direct.schedule, PLAN_OP_REDUCE_SCATTER, &n);
  ck_assert_uint_eq (n, 0);
  last_op (direct.schedule, PLAN_OP_ALL_TO_ALL, &n);
  ck_assert_uint_eq (n, 34);
  ck_assert_uint_eq (most_live (direct.schedule, "received.layer"), 5);
  const PlanMemory a = memory_of (&ring), b = memory_of (&direct);
  ck_assert_uint_eq (b.max_allocated - a.max_allocated,
                     2 * (G_GUINT64_CONSTANT (525369344) + 3 * 218136576));
  test_case_clear (&ring);
  test_case_clear (&direct);
}
END_TEST

/* In a graph the host issues no single ops, and what the graph's end would gather is gathered at
 * its beginning. */
START_TEST (graphs_gather_when_they_begin)
{
  for (guint i = 0; i < 2; i++)
    {
      TestCase c;
      guint n, gathers_behind = 0;
      g_autoptr (GError) error = NULL;
      g_autofree char *words = g_strconcat ("gbs=8 seq=256 cuda_graph=", i ? "on" : "off", NULL);
      test_case_init (&c, "llama3.2-1b", "dgx-h100:1", words);
      const guint updates = last_op (c.schedule, PLAN_OP_ADAMW, &n);
      const guint gathers = last_op (c.schedule, PLAN_OP_ALL_GATHER, &gathers_behind);
      ck_assert_int_eq (gathers > updates, i == 0);
      g_autofree char *text = plan_schedule_print (c.schedule);
      g_autoptr (PlanSchedule) again = plan_schedule_parse (text, "text", &error);
      ck_assert_msg (again != NULL, "%s", error ? error->message : "");
      ck_assert_int_eq (plan_schedule_is_graph (again), i == 1);
      const SimCostInput input = {
        .schedule = c.schedule, .cluster = c.cluster, .stack = c.of->stack, .plan = &c.of->plan
      };
      g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
      for (guint node = 0; node < plan_schedule_n_nodes (c.schedule); node++)
        if (plan_schedule_node (c.schedule, node)->kind == PLAN_OP_ADAMW)
          ck_assert_int_eq (sim_cost_launch_ns (cost, node),
                            i ? 0 : c.of->stack->host.launch_ns[PLAN_LAUNCH_KERNEL]);
      test_case_clear (&c);
    }
}
END_TEST

/* Evaluating gathers units once per micro batch, and embedding and head once; it reduces nothing,
 * and keeps no more than one layer works on; what training keeps stays in memory. */
START_TEST (evaluating_is_forward_only)
{
  TestCase train, eval;
  guint n;
  test_case_init (&train, "llama3-8b", "dgx-h100:1", "gbs=32 seq=4096 stack=native ce_fusion=off");
  test_case_init (&eval, "llama3-8b", "dgx-h100:1",
                  "gbs=32 seq=4096 stack=native ce_fusion=off task=eval");
  const guint64 unit = 218136576;
  ck_assert_uint_eq (gathered_into (train.schedule, "weights.layer"), 2 * 4 * 32 * unit);
  ck_assert_uint_eq (gathered_into (eval.schedule, "weights.layer"), 4 * 32 * unit);
  ck_assert_uint_eq (gathered_into (eval.schedule, "weights.embed"),
                     gathered_into (train.schedule, "weights.embed"));
  last_op (eval.schedule, PLAN_OP_REDUCE_SCATTER, &n);
  ck_assert_uint_eq (n, 0);
  last_op (eval.schedule, PLAN_OP_ADAMW, &n);
  ck_assert_uint_eq (n, 0);
  const PlanMemory t = memory_of (&train), e = memory_of (&eval);
  ck_assert_uint_eq (t.allocated, e.allocated);
  /* at the loss: logits of 4096 tokens in bf16 and fp32, their softmax, and nothing of any layer */
  ck_assert_uint_eq (e.by_category[PLAN_CATEGORY_LOSS], G_GUINT64_CONSTANT (10) * 4096 * 128256);
  ck_assert_uint_eq (e.by_category[PLAN_CATEGORY_ACTIVATIONS], 0);
  ck_assert_uint_eq (e.by_category[PLAN_CATEGORY_GRAD_BUCKETS], 0);
  test_case_clear (&train);
  test_case_clear (&eval);
}
END_TEST

/* For each piece a product makes logits, which become their gradient, and two products read that.
 * Their results are added up in fp32: in the accumulation buffer if that is in fp32 and products
 * may add to it, otherwise in a buffer of their own. */
START_TEST (loss_in_pieces_holds_one_of_them)
{
  static const struct
  {
    const char *words;
    guint products, sums, syncs;
    gboolean is_apart;
  } rows[] = { { "loss_chunks=1 grad_accum_fusion=on strategy=optim", 2, 1, 1, FALSE },
               { "loss_chunks=8 grad_accum_fusion=on strategy=optim", 16, 8, 1, FALSE },
               { "loss_chunks=8 grad_accum_fusion=on", 17, 7, 1, FALSE },
               { "loss_chunks=8 strategy=optim", 17, 7, 1, TRUE },
               { "loss_chunks=8 grad_accum_fusion=on grad_comm=bf16", 17, 7, 1, TRUE },
               { "loss_chunks=8 nan_check=loss", 17, 7, 2, TRUE },
               { "loss_chunks=8 task=eval", 8, 0, 1, FALSE } };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      TestCase c;
      guint n, products = 0, sums = 0;
      g_autofree char *words
          = g_strconcat ("gbs=32 mbs=4 seq=4096 stack=native ", rows[i].words, NULL);
      test_case_init (&c, "llama3-8b", "dgx-h100:1", words);
      const guint pieces = strstr (words, "loss_chunks=8") ? 8 : 1;
      for (guint node = 0; node < plan_schedule_n_nodes (c.schedule); node++)
        {
          const PlanOp *op = plan_schedule_node (c.schedule, node);
          const gboolean is_head
              = (op->kind == PLAN_OP_GEMM || op->kind == PLAN_OP_GEMM_ADD)
                && (op->dims[0] == 128256 || op->dims[1] == 128256 || op->dims[2] == 128256);
          products += is_head && op->kind == PLAN_OP_GEMM;
          sums += is_head && op->kind == PLAN_OP_GEMM_ADD;
        }
      last_op (c.schedule, PLAN_OP_LOSS_GRAD, &n);
      ck_assert_uint_eq (n, pieces);
      ck_assert_msg (products == rows[i].products && sums == rows[i].sums, "%s: %u, %u",
                     rows[i].words, products, sums);
      ck_assert_uint_eq (most_live (c.schedule, "logits"), 1);
      for (guint b = 0; b < plan_schedule_n_buffers (c.schedule); b++)
        if (g_str_equal (plan_schedule_buffer (c.schedule, b)->name, "logits"))
          ck_assert_uint_eq (plan_schedule_buffer (c.schedule, b)->elements,
                             G_GUINT64_CONSTANT (4) * 4096 * 128256 / pieces);
      last_op (c.schedule, PLAN_OP_SYNC, &n);
      ck_assert_uint_eq (n, rows[i].syncs);
      g_autofree char *text = plan_schedule_print (c.schedule);
      ck_assert_int_eq (strstr (text, "raw.sum") != NULL, rows[i].is_apart);
      test_case_clear (&c);
    }
}
END_TEST

/* Elements that ops of a kind move on a stream in a step into a buffer `name`. */
static guint64
elements_into (const PlanSchedule *schedule, PlanOpKind kind, const char *name, guint *out_count)
{
  guint64 elements = 0;
  PlanCursor cursor;
  const PlanOp *op;
  *out_count = 0;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    if (op->kind == kind
        && strcmp (plan_schedule_buffer (schedule, (guint)op->refs[0].array)->name, name) == 0)
      {
        elements += (guint64)op->dims[0];
        *out_count += 1;
      }
  return elements;
}

/* The most bytes of a category that are live at once in a step. */
static guint64
most_bytes (const PlanSchedule *schedule, PlanCategory category)
{
  guint64 live = 0, most = 0;
  PlanCursor cursor;
  const PlanOp *op;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    {
      if (plan_op_class (op->kind) != PLAN_CLASS_MEMORY)
        continue;
      const PlanBuffer *buffer = plan_schedule_buffer (schedule, (guint)op->refs[0].array);
      const guint64 bytes = plan_dtype_bytes (buffer->dtype, buffer->elements);
      if (buffer->category == category)
        live = op->kind == PLAN_OP_ALLOC ? live + bytes : live - bytes;
      most = MAX (most, live);
    }
  return most;
}

/* torchtitan's pieces: eight times a product of each kind; each weight gradient is rounded, the
 * first one widened to the sum that is reduced once, seven added to it; each gradient of the input
 * takes its place in fp32, which is rounded once. Of the loss, the logits of one piece in bf16 and
 * three fp32 images are there, 14 bytes each; the head's weights are gathered before the pieces
 * and, for the norm, behind them. Compiled, it is the logits twice and their gradient, and beside
 * them the logits that came before. */
START_TEST (torchtitan_joins_pieces)
{
  static const struct
  {
    const char *words;
    guint widened, added, gathered;
    guint64 bytes;
  } rows[] = { { "loss_chunks=8", 1, 7, 2, 14 },
               { "loss_chunks=8 grad_comm=bf16", 0, 7, 2, 14 },
               { "loss_chunks=8 compile=on", 1, 7, 2, 6 },
               { "loss_chunks=1", 0, 0, 1, 8 * 12 },
               { "loss_chunks=8 strategy=optim_grads", 1, 7, 2, 14 },
               { "loss_chunks=8 tp=2", 1, 7, 2, 18 } };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      TestCase c;
      guint n;
      const guint tp = strstr (rows[i].words, "tp=2") ? 2 : 1;
      const guint pieces = strstr (rows[i].words, "loss_chunks=8") ? 8 : 1;
      const guint64 head = G_GUINT64_CONSTANT (128256) / tp * 4096;
      g_autofree char *words
          = g_strconcat ("mbs=1 seq=4096 ce_fusion=off stack=fsdp2 gbs=", tp == 2 ? "4 " : "8 ",
                         rows[i].words, NULL);
      test_case_init (&c, "llama3-8b", "dgx-h100:1", words);
      ck_assert_uint_eq (elements_into (c.schedule, PLAN_OP_CAST, "raw.sum", &n),
                         rows[i].widened * head);
      ck_assert_uint_eq (elements_into (c.schedule, PLAN_OP_ACCUMULATE, "raw.sum", &n),
                         rows[i].added * head);
      elements_into (c.schedule, PLAN_OP_ALL_GATHER, "landing.head", &n);
      ck_assert_uint_eq (n, rows[i].gathered);
      elements_into (c.schedule, PLAN_OP_CAST, "d.norm_final.sum", &n);
      ck_assert_uint_eq (n, pieces > 1 ? pieces : 0);
      last_op (c.schedule, PLAN_OP_CROSS_ENTROPY_BWD, &n);
      ck_assert_uint_eq (n, pieces);
      const guint64 logits = G_GUINT64_CONSTANT (4096) / 8 * (128256 / tp);
      ck_assert_msg (most_bytes (c.schedule, PLAN_CATEGORY_LOSS) == rows[i].bytes * logits,
                     "%s: %" G_GUINT64_FORMAT, rows[i].words,
                     most_bytes (c.schedule, PLAN_CATEGORY_LOSS) / logits);
      test_case_clear (&c);
    }
}
END_TEST

/* The head's hook prefetches the last layer before the head's own backward products, which
 * therefore wait behind it; one more layer is prefetched when that layer's turn comes. */
START_TEST (head_gathers_the_last_layer)
{
  static const char *const words[] = { "stack=fsdp2", "stack=fsdp1", "stack=fsdp2 loss_chunks=8" };
  for (guint i = 0; i < G_N_ELEMENTS (words); i++)
    {
      TestCase c;
      guint at = 0, n = 0, gathered = 0, turned = 0, reduced = 0;
      PlanCursor cursor;
      const PlanOp *op;
      g_autofree char *fields = g_strconcat ("gbs=8 seq=4096 ce_fusion=off ", words[i], NULL);
      test_case_init (&c, "llama3-8b", "dgx-h100:1", fields);
      for (plan_cursor_start (&cursor, c.schedule, PLAN_SECTION_STEP);
           (op = plan_cursor_next (&cursor)); at++)
        {
          const char *name = op->kind == PLAN_OP_ALL_GATHER
                                 ? plan_schedule_buffer (c.schedule, (guint)op->refs[0].array)->name
                                 : "";
          n += strstr (name, ".layer") != NULL;
          if (n == 33 && gathered == 0)
            gathered = at;
          if (op->kind == PLAN_OP_RMSNORM_BWD && turned == 0)
            turned = at;
          if (op->kind == PLAN_OP_REDUCE_SCATTER && reduced == 0)
            reduced = at;
        }
      ck_assert_uint_eq (n, 64);
      ck_assert_msg (gathered < turned, "%s: %u, %u", words[i], gathered, turned);
      ck_assert_uint_lt (turned, reduced);
      test_case_clear (&c);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("lower-order");
  TCase *tcase = tcase_create ("lower-order");
  tcase_set_timeout (tcase, 120);
  tcase_add_test (tcase, without_overlap_communication_stands_apart);
  tcase_add_test (tcase, buckets_of_a_unit_leave_together);
  tcase_add_test (tcase, syncing_reduces_in_every_micro_batch);
  tcase_add_test (tcase, host_waits_where_the_stack_looks);
  tcase_add_test (tcase, all_to_all_takes_a_second_bucket);
  tcase_add_test (tcase, graphs_gather_when_they_begin);
  tcase_add_test (tcase, evaluating_is_forward_only);
  tcase_add_test (tcase, loss_in_pieces_holds_one_of_them);
  tcase_add_test (tcase, torchtitan_joins_pieces);
  tcase_add_test (tcase, head_gathers_the_last_layer);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
