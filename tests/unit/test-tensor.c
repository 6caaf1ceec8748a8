/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"
#include "sim/cost/cost.h"
#include "tests/case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Counts the products of a step that run while the tensor-parallel group communicates. */
static guint
products_beside_exchanges (const PlanSchedule *schedule)
{
  PlanCursor cursor;
  const PlanOp *op;
  PlanRef awaited = PLAN_REF_NONE;
  guint n = 0;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    if (op->stream == PLAN_STREAM_TENSOR && plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE)
      awaited = op->record;
    else if (op->kind == PLAN_OP_GEMM)
      n += awaited.array >= 0 ? 1 : 0;
    else if (op->kind == PLAN_OP_WAIT && op->n_waits > 0 && op->waits[0].array == awaited.array)
      awaited = PLAN_REF_NONE;
  return n;
}

/* Of two products in each of 32 layers that read a whole sequence, going backward: it is gathered
 * beside the one that does not read it, and gradients are summed beside the other. Where sequences
 * are whole there is only the sum; PyTorch does one after the other. */
START_TEST (sequences_are_exchanged_beside_products)
{
  static const struct
  {
    const char *words;
    guint per_layer;
  } rows[] = { { "stack=megatron-fsdp", 4 },
               { "stack=megatron-fsdp compute=fp8-tensorwise param_gather=fp8", 4 },
               { "stack=megatron strategy=optim", 4 },
               { "stack=megatron strategy=optim sp=off", 2 },
               { "stack=nanotron strategy=optim", 4 },
               { "stack=fsdp2", 0 } };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      TestCase c;
      g_autofree char *words = g_strconcat ("gbs=16 seq=256 tp=2 ", rows[i].words, NULL);
      test_case_init (&c, "llama3-8b", "dgx-h100:1", words);
      ck_assert_msg (products_beside_exchanges (c.schedule) == 4 * 32 * rows[i].per_layer, "%s: %u",
                     rows[i].words, products_beside_exchanges (c.schedule));
      test_case_clear (&c);
    }
}
END_TEST

/* Counts how often an op runs on the tensor-parallel stream in a step, and the FLOPs of
 * products. */
static void
count_products (const PlanSchedule *schedule, guint *out_exchanges, guint *out_sums,
                double *out_flops)
{
  PlanCursor cursor;
  const PlanOp *op;
  *out_exchanges = *out_sums = 0;
  *out_flops = 0;
  for (plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP); (op = plan_cursor_next (&cursor));)
    {
      *out_exchanges += op->stream == PLAN_STREAM_TENSOR && op->kind == PLAN_OP_EXCHANGE;
      *out_sums += op->stream == PLAN_STREAM_TENSOR && op->kind == PLAN_OP_REDUCE_SCATTER;
      if (op->kind == PLAN_OP_GEMM || op->kind == PLAN_OP_GEMM_ADD)
        *out_flops += plan_op_flops (op);
    }
}

/* By user buffers, gathers go round the ring of four piece by piece: for two products of a layer
 * forward, for two backward where gradients have one scale; two products forward are summed in four
 * pieces. All of it computes as much as without, whatever the rank, and needs ten buffers. */
START_TEST (user_buffers_take_products_apart)
{
  static const struct
  {
    const char *words;
    guint gathers, sums; /* of a layer, in pieces */
    double bytes;        /* bytes of ten buffers, per token and hidden element */
  } rows[] = { { "stack=megatron-fsdp", 4, 2, 20 },
               { "stack=megatron strategy=optim", 4, 2, 20 },
               { "stack=megatron strategy=optim compute=fp8-delayed param_gather=fp8", 4, 2, 14 },
               { "stack=megatron strategy=optim compute=mxfp8", 2, 2, 14.1875 },
               { "stack=megatron-fsdp recompute=full", 6, 4, 20 },
               { "stack=megatron-fsdp recompute=selective recompute_modules=mlp", 5, 3, 20 } };
  const gboolean is_mxfp8 = g_strrstr (rows[_i].words, "mxfp8") != NULL;
  g_autoptr (GError) error = NULL;
  g_autofree char *plain = g_strconcat ("gbs=4 seq=256 tp=4 ", rows[_i].words, NULL);
  g_autofree char *words = g_strconcat (plain, " tp_overlap=ub", NULL);
  TestCase without, c;
  guint exchanges, sums, all_sums;
  double flops, all_flops;
  test_case_init (&without, "llama3-8b", is_mxfp8 ? "dgx-b200:1" : "dgx-h100:1", plain);
  count_products (without.schedule, &exchanges, &all_sums, &all_flops);
  ck_assert_uint_eq (exchanges, 0);
  test_case_init (&c, "llama3-8b", is_mxfp8 ? "dgx-b200:1" : "dgx-h100:1", words);
  for (guint rank = 0; rank < 4; rank++)
    {
      g_autoptr (PlanSchedule) schedule = plan_lower (c.of, rank, &error);
      ck_assert_msg (plan_schedule_check (schedule, &error), "%s: %s", words,
                     error ? error->message : "");
      count_products (schedule, &exchanges, &sums, &flops);
      ck_assert_uint_eq (exchanges, 2 * 32 * rows[_i].gathers * 3);
      ck_assert_uint_eq (sums, all_sums + 2 * 32 * rows[_i].sums * 3);
      ck_assert_double_eq_tol (flops / all_flops, 1, 1e-12);
    }
  ck_assert_uint_eq (plan_stack_outside_bytes (c.of->stack, c.schedule)
                         - plan_stack_outside_bytes (without.of->stack, without.schedule),
                     (guint64)(rows[_i].bytes * 256 * 4096));
  test_case_clear (&without);
  test_case_clear (&c);
}
END_TEST

/* PyTorch sends the parts of sums, too: of a layer two products of gathered sequences and two that
 * are summed forward, and two of gathered gradients backward. Recomputing makes again what was not
 * kept. Our own runtime sends the parts of gathered sequences' gradients, too; where a scale is
 * that of a whole tensor's largest magnitude it sends parts of sums alone, and gathers inputs
 * before it quantises them. */
START_TEST (symmetric_memory_takes_products_apart)
{
  static const struct
  {
    const char *words;
    guint products, sums; /* of a layer, in pieces; reduce-scattered as a whole */
  } rows[] = { { "stack=fsdp2 compile=on", 6, 2 },
               { "stack=fsdp2 compile=on recompute=full", 9, 2 },
               { "stack=fsdp2 compile=on recompute=selective recompute_modules=op-sac", 7, 2 },
               { "stack=fsdp2 compile=on compute=fp8-tensorwise", 6, 2 },
               { "stack=native", 8, 0 },
               { "stack=native recompute=full", 11, 0 },
               { "stack=native compute=fp8-delayed", 8, 0 },
               { "stack=native compute=fp8-tensorwise", 4, 0 } };
  g_autoptr (GError) error = NULL;
  g_autofree char *plain = g_strconcat ("gbs=4 seq=256 tp=4 ", rows[_i].words, NULL);
  g_autofree char *words = g_strconcat (plain, " tp_overlap=async", NULL);
  TestCase without, c;
  guint exchanges, sums;
  double flops, all_flops;
  test_case_init (&without, "llama3-8b", "dgx-h100:1", plain);
  count_products (without.schedule, &exchanges, &sums, &all_flops);
  test_case_init (&c, "llama3-8b", "dgx-h100:1", words);
  for (guint rank = 0; rank < 4; rank++)
    {
      g_autoptr (PlanSchedule) schedule = plan_lower (c.of, rank, &error);
      ck_assert_msg (plan_schedule_check (schedule, &error), "%s: %s", words,
                     error ? error->message : "");
      count_products (schedule, &exchanges, &sums, &flops);
      ck_assert_msg (exchanges == 2 * 32 * rows[_i].products * 3, "%s: %u", words, exchanges);
      /* in two micro batches: sums of embedding and head, and of two gradients of a layer */
      ck_assert_uint_eq (sums, 2 * (2 + rows[_i].sums * 32));
      ck_assert_double_eq_tol (flops / all_flops, 1, 1e-12);
    }
  test_case_clear (&without);
  test_case_clear (&c);
}
END_TEST

/* PyTorch copies parts into the memory of the next rank by engines of the device; our own runtime
 * sends them by NCCL, on processors, as it sends the keys of other parts of a sequence. */
START_TEST (parts_are_copied_or_sent)
{
  static const PlanStack theirs = { .layer.kernels = PLAN_KERNELS_PYTORCH },
                         ours = { .layer.kernels = PLAN_KERNELS_OWN };
  const char *text = "schedule 2 rank=0 ranks=4\n"
                     "group tensor size=4 stride=1\n"
                     "buffer x elements=8000000 dtype=bf16 category=activations\n"
                     "buffer out elements=8000000 dtype=bf16 category=activations\n"
                     "section setup\n"
                     "exchange tensor group=tensor out=out in=x count=8000000\n"
                     "exchange tensor group=tensor out=out in=x count=8000000 distance=2\n"
                     "exchange context group=tensor out=out in=x count=8000000\n"
                     "section step\nsection teardown\n";
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "text", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  Plan plan;
  plan_init (&plan);
  plan.value[PLAN_TP_OVERLAP] = PLAN_TP_OVERLAP_ASYNC;
  SimCostInput input = { .schedule = schedule, .cluster = cluster, .plan = &plan };
  input.stack = &theirs;
  g_autoptr (SimCost) copied = sim_cost_new (&input, NULL);
  input.stack = &ours;
  g_autoptr (SimCost) sent = sim_cost_new (&input, NULL);
  for (guint node = 0; node < 2; node++)
    {
      ck_assert_uint_eq (sim_cost_sms (copied, node), 0);
      ck_assert_uint_gt (sim_cost_sms (sent, node), 0);
      ck_assert_uint_eq (sim_cost_sms (sent, node), sim_cost_sms (sent, 2));
      ck_assert_int_eq (sim_cost_ns (sent, node), sim_cost_ns (sent, 2));
      ck_assert_int_eq (sim_cost_ns (copied, node), sim_cost_ns (copied, 0));
      ck_assert_int_lt (sim_cost_ns (copied, node), sim_cost_ns (sent, node));
    }
}
END_TEST

/* Whether a schedule is sound without one of its lines. */
static gboolean
is_sound_without (char **lines, guint line)
{
  g_autoptr (GString) text = g_string_new (NULL);
  for (guint i = 0; lines[i]; i++)
    if (i != line)
      g_string_append_printf (text, "%s\n", lines[i]);
  g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text->str, "text", NULL);
  return schedule && plan_schedule_check (schedule, NULL);
}

/* An exchange that a schedule lacks, or a wait for the last one before it is used, is found. */
START_TEST (no_exchange_of_pieces_can_be_left_out)
{
  TestCase c;
  guint n = 0;
  test_case_init (&c, "layers=1,hidden=64,ffn=96,heads=4,head_dim=16,vocab=32,max_seq=16",
                  "dgx-h100:1", "stack=native gbs=2 tp=4 dp_outer=1 tp_overlap=async");
  g_autofree char *text = plan_schedule_print (c.schedule);
  g_auto (GStrv) lines = g_strsplit (text, "\n", -1);
  ck_assert (is_sound_without (lines, G_MAXUINT));
  for (guint i = 0; lines[i]; i++)
    if (g_strrstr (lines[i], "exchange tensor ")
        || (g_strrstr (lines[i], "wait compute wait=exchanged")
            && g_strrstr (lines[i + 1], "sum_parts ")))
      {
        ck_assert_msg (!is_sound_without (lines, i), "%s", lines[i]);
        n++;
      }
  /* eight products of three exchanges each, of which four are awaited once, before the sum */
  ck_assert_uint_eq (n, 8 * 3 + 4);
  test_case_clear (&c);
}
END_TEST

/* Of a sum each rank sends the rows of another one to that rank, and receives its own from the rank
 * as far behind; its place among the parts says whose they are. */
START_TEST (parts_go_to_their_ranks)
{
  static const char *const stacks[] = { "stack=fsdp2 compile=on", "stack=native" };
  g_autoptr (GError) error = NULL;
  g_autofree char *words
      = g_strconcat ("gbs=2 seq=256 dp_outer=1 tp=4 tp_overlap=async ", stacks[_i], NULL);
  TestCase c;
  test_case_init (&c, "llama3-8b", "dgx-h100:1", words);
  for (guint rank = 0; rank < 4; rank++)
    {
      g_autoptr (PlanSchedule) schedule = plan_lower (c.of, rank, &error);
      guint n[4] = { 0 };
      for (guint i = 0; i < plan_schedule_n_nodes (schedule); i++)
        {
          const PlanOp *op = plan_schedule_node (schedule, i);
          const PlanRef *out = &op->refs[PLAN_REF_EXCHANGE_out],
                        *in = &op->refs[PLAN_REF_EXCHANGE_in];
          if (op->kind != PLAN_OP_EXCHANGE
              || strcmp (plan_schedule_buffer (schedule, (guint)out->array)->name,
                         "received.parts"))
            continue;
          const double said = plan_schedule_manner (schedule, op)->value[PLAN_MANNER_DISTANCE];
          const guint distance = MAX ((guint)said, 1);
          const guint64 count = (guint64)op->dims[PLAN_DIM_EXCHANGE_count];
          ck_assert_uint_lt (distance, 4);
          ck_assert_uint_eq (in->at, (rank + distance) % 4 * count);
          ck_assert_uint_eq (out->at, (rank + 4 - distance) % 4 * count);
          n[distance]++;
        }
      ck_assert (n[1] > 0 && n[2] == n[1] && n[3] == n[1]);
    }
  test_case_clear (&c);
}
END_TEST

/* Transformer Engine transposes a weight once per step where it keeps the result; Megatron-FSDP
 * frees that with the unit, so it is made in each pass. */
START_TEST (weights_are_turned_as_often_as_they_are_dropped)
{
  static const struct
  {
    const char *words;
    guint times;
  } rows[] = { { "stack=megatron strategy=optim", 1 },
               { "stack=megatron-fsdp keep_transpose=on", 1 },
               { "stack=megatron-fsdp", 3 * 2 } };
  for (guint i = 0; i < G_N_ELEMENTS (rows); i++)
    {
      TestCase c;
      PlanCursor cursor;
      const PlanOp *op;
      guint n = 0;
      g_autofree char *words = g_strconcat ("gbs=24 seq=256 compute=fp8-delayed param_gather=fp8 ",
                                            rows[i].words, NULL);
      test_case_init (&c, "llama3-8b", "dgx-h100:1", words);
      plan_cursor_start (&cursor, c.schedule, PLAN_SECTION_STEP);
      while ((op = plan_cursor_next (&cursor)))
        n += op->kind == PLAN_OP_TRANSPOSE
             && plan_schedule_buffer (c.schedule, (guint)op->refs[0].array)->category
                    == PLAN_CATEGORY_DERIVED;
      ck_assert_msg (n == 4 * 32 * rows[i].times, "%s: %u", rows[i].words, n);
      test_case_clear (&c);
    }
}
END_TEST

/* Megatron-FSDP registers permanent buffers and those that units use by turns; embedding and head,
 * where they are gathered and reduced, and units beside the pool are sent without registered
 * buffers. */
START_TEST (pools_alone_are_registered)
{
  static const PlanStack pools
      = { .memory.allocation_bytes = 1, .memory.allocator = PLAN_ALLOCATOR_CACHING };
  static const PlanStack plain = { .memory.allocation_bytes = 1 };
  g_autoptr (GError) error = NULL;
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", &error);
  Plan plan;
  plan_init (&plan);
  ck_assert (plan_set (&plan, "nccl_ub", "on", &error));
  static const struct
  {
    const char *array, *element, *category;
    guint sms;
  } cases[] = { { "", "", "gathered", 24 },
                { "[2]", "[1%2]", "gathered", 2 },
                { "", "", "weights", 2 },
                { "[2]", "[1]", "gathered", 24 } };
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      g_autofree char *text
          = g_strdup_printf ("schedule 2 rank=0 ranks=8\n"
                             "group g size=8 stride=1\n"
                             "buffer in elements=8388608 dtype=bf16 category=weights\n"
                             "buffer out%s elements=67108864 dtype=bf16 category=%s\n"
                             "section setup\n"
                             "all_gather gather group=g out=out%s in=in count=8388608\n"
                             "section step\nsection teardown\n",
                             cases[i].array, cases[i].category, cases[i].element);
      g_autoptr (PlanSchedule) schedule = plan_schedule_parse (text, "text", &error);
      g_autoptr (SimCost) theirs = sim_cost_new (
          &(SimCostInput){
              .schedule = schedule, .cluster = cluster, .stack = &pools, .plan = &plan },
          &error);
      g_autoptr (SimCost) ours = sim_cost_new (
          &(SimCostInput){
              .schedule = schedule, .cluster = cluster, .stack = &plain, .plan = &plan },
          &error);
      ck_assert_uint_eq (sim_cost_sms (theirs, 0), cases[i].sms);
      ck_assert_uint_eq (sim_cost_sms (ours, 0), 2);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("tensor");
  TCase *tcase = tcase_create ("tensor");
  tcase_set_timeout (tcase, 120);
  tcase_add_loop_test (tcase, user_buffers_take_products_apart, 0, 6);
  tcase_add_test (tcase, pools_alone_are_registered);
  tcase_add_loop_test (tcase, symmetric_memory_takes_products_apart, 0, 8);
  tcase_add_test (tcase, parts_are_copied_or_sent);
  tcase_add_test (tcase, no_exchange_of_pieces_can_be_left_out);
  tcase_add_loop_test (tcase, parts_go_to_their_ranks, 0, 2);
  tcase_add_test (tcase, weights_are_turned_as_often_as_they_are_dropped);
  tcase_add_test (tcase, sequences_are_exchanged_beside_products);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
