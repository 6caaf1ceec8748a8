/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA graphs of parts of layers (graph_modules): which ops they hold, what the host launches, what
 * is copied before, and what stays in memory. */
#include "config.h"

#include "planner/base/units.h"
#include "sim/memory.h"
#include "tests/unit/test-lower-case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define DENSE \
  "layers=4,hidden=1024,ffn=4096,heads=8,kv_heads=8,head_dim=128,vocab=32000,max_seq=2048"
#define EXPERTS \
  "family=qwen3_moe,layers=4,hidden=1024,ffn=512,heads=8,kv_heads=8,head_dim=128,vocab=32000," \
  "max_seq=2048,experts=16,topk=4,expert_ffn=512"
#define MEGATRON "stack=megatron strategy=optim gbs=16 seq=2048 mbs=1 recompute=none "
#define HIDDEN G_GUINT64_CONSTANT (2 * 2048 * 1024) /* bytes of a layer's input */

/* Writes the names of a layer's compute and tensor-parallel ops in the first pass of a step, those
 * within its graph between brackets: "cast [ rmsnorm gemm ] gemm". `layer`: among all passes. */
static char *
pass_of (const TestCase *c, gint64 pass)
{
  GString *out = g_string_new (NULL);
  gint64 n = -1;
  gboolean is_open = FALSE;
  PlanCursor cursor;
  plan_cursor_start (&cursor, c->schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    {
      if (plan_op_class (op->kind) != PLAN_CLASS_COMPUTE)
        continue;
      n += op->graph == PLAN_GRAPH_FORWARD || op->graph == PLAN_GRAPH_BACKWARD;
      if (n != pass)
        continue;
      if ((op->graph != PLAN_GRAPH_NONE) != is_open)
        g_string_append (out, is_open ? "] " : "[ ");
      is_open = op->graph != PLAN_GRAPH_NONE;
      g_string_append_printf (out, "%s ", plan_op_name (op->kind));
    }
  return g_string_free (out, FALSE);
}

/* What the first layer's graph holds in its forward pass, and what follows up to the next graph. */
static const struct
{
  const char *model, *words, *ops;
} passes[] = {
  { DENSE, "graph_modules=attn",
    "[ rmsnorm gemm rope attention gemm add ] rmsnorm gemm swiglu gemm "
    "add cast " },
  { DENSE, "graph_modules=mlp",
    "[ rmsnorm gemm swiglu gemm add ] rmsnorm gemm rope attention gemm "
    "add cast " },
  { DENSE, "graph_modules=attn+mlp",
    "[ rmsnorm gemm rope attention gemm add rmsnorm gemm swiglu gemm add ] cast " },
};

START_TEST (graphs_hold_their_modules)
{
  TestCase c;
  g_autofree char *words = g_strconcat (MEGATRON, passes[_i].words, NULL);
  test_case_init (&c, passes[_i].model, "dgx-h100:1", words);
  g_autofree char *ops = pass_of (&c, 0);
  ck_assert_str_eq (ops, passes[_i].ops);
  test_case_clear (&c);
}
END_TEST

/* Of experts the router's graph holds the router, and preprocessing what sorts rows before they are
 * sent, where the dispatcher sends rows; never an exchange, nor what the host waits for. */
START_TEST (graphs_end_where_rows_are_sent)
{
  static const struct
  {
    const char *words;
    gboolean routes, sorts;
  } cases[]
      = { { "graph_modules=attn", FALSE, FALSE },
          { "graph_modules=attn+moe_router", TRUE, FALSE },
          { "graph_modules=attn+moe_router+moe_preprocess", TRUE, TRUE },
          { "graph_modules=moe_router+moe_preprocess moe_dispatcher=deepep", TRUE, FALSE },
          { "graph_modules=moe_router+moe_preprocess moe_dispatcher=hybridep", TRUE, FALSE } };
  for (guint i = 0; i < G_N_ELEMENTS (cases); i++)
    {
      TestCase c;
      gboolean is_first_permute = TRUE;
      g_autofree char *words = g_strconcat (MEGATRON "ep=8 ", cases[i].words, NULL);
      test_case_init (&c, EXPERTS, "dgx-h100:1", words);
      PlanCursor cursor;
      plan_cursor_start (&cursor, c.schedule, PLAN_SECTION_STEP);
      for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
        {
          const gboolean is_in = op->graph != PLAN_GRAPH_NONE;
          if (op->kind == PLAN_OP_ROUTE || op->kind == PLAN_OP_ROUTE_BWD)
            ck_assert_msg (is_in == cases[i].routes, "%s", cases[i].words);
          if (op->kind == PLAN_OP_PERMUTE && is_first_permute)
            ck_assert_msg (is_in == cases[i].sorts, "%s", cases[i].words);
          is_first_permute &= op->kind != PLAN_OP_PERMUTE;
          if (op->kind == PLAN_OP_GROUPED_GEMM || op->kind == PLAN_OP_EXPERT_ACTIVATE
              || plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE || op->kind == PLAN_OP_SYNC
              || op->kind == PLAN_OP_ADAMW)
            ck_assert_msg (!is_in, "%s", cases[i].words);
        }
      test_case_clear (&c);
    }
}
END_TEST

/* Each layer has one graph in each pass of each micro batch; what is within costs the host nothing,
 * the first op a module's call, or autograd's. */
START_TEST (the_host_launches_graphs)
{
  TestCase c;
  gint64 forward = 0, backward = 0;
  g_autoptr (GError) error = NULL;
  test_case_init (&c, DENSE, "dgx-h100:1", MEGATRON "graph_modules=attn");
  const SimCostInput input = sim_cost_input (c.of, c.schedule);
  g_autoptr (SimCost) cost = sim_cost_new (&input, &error);
  PlanCursor cursor;
  plan_cursor_start (&cursor, c.schedule, PLAN_SECTION_STEP);
  const gint64 *launch_ns = c.of->stack->host.launch_ns;
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    {
      const gint64 ns = sim_cost_launch_ns (cost, cursor.node);
      forward += op->graph == PLAN_GRAPH_FORWARD;
      backward += op->graph == PLAN_GRAPH_BACKWARD;
      if (op->graph == PLAN_GRAPH_WITHIN)
        ck_assert_int_eq (ns, 0);
      if (op->graph == PLAN_GRAPH_FORWARD)
        ck_assert_int_eq (ns, launch_ns[PLAN_LAUNCH_PRODUCT]);
      if (op->graph == PLAN_GRAPH_BACKWARD)
        ck_assert_int_eq (ns, launch_ns[PLAN_LAUNCH_GRADIENT]);
    }
  ck_assert_int_eq (forward, 4 * 2);
  ck_assert_int_eq (backward, 4 * 2);
  test_case_clear (&c);
}
END_TEST

/* A graph of attention takes one gradient's static memory. Whole layers keep what each reads beside
 * what the layer before made: as much again for each layer. */
START_TEST (graphs_keep_static_memory)
{
  TestCase plain, attn, whole;
  test_case_init (&plain, DENSE, "dgx-h100:1", MEGATRON);
  test_case_init (&attn, DENSE, "dgx-h100:1", MEGATRON "graph_modules=attn");
  test_case_init (&whole, DENSE, "dgx-h100:1", MEGATRON "graph_modules=attn+mlp");
  const PlanMemory a = memory_of (&plain), b = memory_of (&attn), d = memory_of (&whole);
  ck_assert_uint_eq (b.allocated - a.allocated, HIDDEN);
  ck_assert_uint_eq (d.allocated - a.allocated, HIDDEN);
  ck_assert_uint_eq (b.max_allocated - a.max_allocated, HIDDEN);
  ck_assert_uint_eq (d.max_allocated - a.max_allocated, HIDDEN + 4 * HIDDEN);
  ck_assert_uint_gt (d.reserved, a.reserved);
  test_case_clear (&plain);
  test_case_clear (&attn);
  test_case_clear (&whole);
}
END_TEST

/* Sorted rows that a graph makes stay until its backward pass, topk rows of each token; in their
 * place the router's probabilities, which it would leave as well, are within it. */
START_TEST (preprocessed_rows_stay)
{
  TestCase router, rows;
  test_case_init (&router, EXPERTS, "dgx-h100:1", MEGATRON "ep=8 graph_modules=moe_router");
  test_case_init (&rows, EXPERTS, "dgx-h100:1",
                  MEGATRON "ep=8 graph_modules=moe_router+moe_preprocess");
  const guint64 before = kept_bytes (&router, PLAN_LAYER_EXPERTS);
  const guint64 after = kept_bytes (&rows, PLAN_LAYER_EXPERTS);
  ck_assert_uint_eq (after - before, 4 * HIDDEN - 4 * 2048 * 16);
  test_case_clear (&router);
  test_case_clear (&rows);
}
END_TEST

/* The text form says which ops graphs hold, and reads it back; graphs' memory is a pool of its
 * own. */
START_TEST (graphs_are_printed)
{
  TestCase c;
  g_autoptr (GError) error = NULL;
  test_case_init (&c, DENSE, "dgx-h100:1", MEGATRON "graph_modules=attn");
  g_autofree char *text = plan_schedule_print (c.schedule);
  ck_assert (strstr (text, " graph=forward") && strstr (text, " graph=backward")
             && strstr (text, " graph=within"));
  g_autoptr (PlanSchedule) again = plan_schedule_parse (text, "text", &error);
  ck_assert_msg (again != NULL, "%s", error ? error->message : "");
  g_autofree char *printed = plan_schedule_print (again);
  ck_assert_str_eq (printed, text);
  ck_assert_uint_ne (sim_memory_pool (PLAN_GIB, PLAN_STREAM_COMPUTE, FALSE),
                     sim_memory_pool (PLAN_GIB, PLAN_STREAM_COMPUTE, TRUE));
  test_case_clear (&c);
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("lower-graphs");
  TCase *tests = tcase_create ("graphs");
  tcase_add_loop_test (tests, graphs_hold_their_modules, 0, G_N_ELEMENTS (passes));
  tcase_add_test (tests, graphs_end_where_rows_are_sent);
  tcase_add_test (tests, the_host_launches_graphs);
  tcase_add_test (tests, graphs_keep_static_memory);
  tcase_add_test (tests, preprocessed_rows_stay);
  tcase_add_test (tests, graphs_are_printed);
  suite_add_tcase (suite, tests);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
